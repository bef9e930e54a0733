"""LANGUAGE §6: a worker pages out what a loop runs over, and reads the pages when it comes to them."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from worker_stage import Endless, Refusing, Stage, inputs_of

from noetl_stream.engine.decide.loops import PAGE_BYTES
from noetl_stream.model.events import (
    LoopDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopPagedOut,
    StepFailed,
    StepStarted,
)
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Go, LoopProgress, StepCommand
from noetl_stream.model.outcome import ItemPosition, Outcome, Page, Payload, Reference, StepValue
from noetl_stream.worker.command.results import Pages
from noetl_stream.worker.worker_limits import MAX_PAGES_KEPT_BYTES

EACH = """
- step: start
  loop: {in: "{{ other.rows }}", iterator: item, spec: %s}
  tool:
  - {name: act, kind: puppet, item: "{{ item }}", index: "{{ iter.index }}", count: "{{ iter.count }}"}
  next: {arcs: [{step: other}]}
- step: other
  tool: {kind: noop}
"""
PARALLEL, SEQUENTIAL = EACH % "{mode: parallel}", EACH % "{mode: sequential}"
AT_ONCE = EACH % "{mode: parallel, exec: local}"


async def put(stage: Stage, key: str, value: Any) -> Reference:
    data = codec.encode(value)
    await stage.broker.blobs.put(key, data)
    return Reference("nats", key, len(data), f"sha256:{sha256(data).hexdigest()}")


async def pages_of(stage: Stage, *lists: list[Any]) -> list[Page]:
    pages: list[Page] = []
    for items in lists:
        first = pages[-1].first + pages[-1].count if pages else 0
        pages.append(Page(first, len(items), await put(stage, f"execution-1/page-{len(pages)}", items)))
    return pages


async def paging(stage: Stage, rows: Any, text: str = PARALLEL, **changes: Any) -> StepCommand:
    """The order to page out what the loop runs over."""
    other = StepValue(Outcome("ok", Payload(reference=await put(stage, "execution-1/rows", {"rows": rows}))))
    return stage.command(stage.plan(text), paging=True, steps={"other": other}, **changes)


# --- paging out -------------------------------------------------------------------------------------------------------


async def test_the_items_of_a_loop_are_stored_by_page_and_reported_with_its_window(stage: Stage) -> None:
    rows = [{"n": n, "text": "x" * 100_000} for n in range(5)]
    await stage.start()
    await stage.issue(await paging(stage, rows))
    await stage.soon(lambda: len(stage.facts) == 2)  # a thread encodes the items
    started, paged = stage.facts
    assert isinstance(started, StepStarted) and isinstance(paged, LoopPagedOut)
    assert (paged.count, paged.max_in_flight, paged.path) == (5, 10, ())
    assert [(page.first, page.count) for page in paged.pages] == [(0, 2), (2, 2), (4, 1)]
    stored = [await stage.blobs.get(page.reference.key) for page in paged.pages]
    assert [item for data in stored for item in codec.decode_json(data)] == rows
    for page, data in zip(paged.pages, stored, strict=True):
        assert (page.reference.size, page.reference.checksum) == (len(data), f"sha256:{sha256(data).hexdigest()}")
        assert len(data) <= PAGE_BYTES and page.reference.execution_id == "execution-1"
    assert stage.puppet.calls == [] and await stage.queued() == set()


async def test_the_pages_are_stored_before_the_report_that_names_them(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "put")
    blobs.refuses = True
    await stage.start(blobs=blobs)
    await stage.issue(await paging(stage, [1, 2]))
    await stage.advance(1.0, step_s=0.25)
    assert not any(isinstance(fact, LoopPagedOut) for fact in stage.facts) and len(blobs.tried) > 1
    blobs.refuses = False
    await stage.advance(1.0, step_s=0.25)
    assert isinstance(stage.facts[-1], LoopPagedOut)


async def test_two_runs_of_a_paging_command_never_write_the_same_key(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go())
    await stage.start()
    command = await paging(stage, [1, 2])
    await stage.issue(command)
    await stage.issue(msgspec.structs.replace(command, issue=2))
    first, second = [fact.pages[0].reference.key for fact in stage.facts if isinstance(fact, LoopPagedOut)]
    assert first != second


@pytest.mark.parametrize(
    ("rows", "kind"), [("text", "expression_error"), (None, "expression_error"), (["x" * PAGE_BYTES] * 3, "limit")]
)
async def test_items_that_cannot_be_paged_out_fail_the_step(stage: Stage, rows: Any, kind: str) -> None:
    await stage.start()
    await stage.issue(await paging(stage, rows, limits=Limits(max_loop_pages=2)))
    await stage.soon(lambda: stage.facts)  # a thread encodes the items
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind.startswith(kind)


async def test_a_lost_result_fails_the_step_and_names_it(stage: Stage) -> None:
    await stage.start()
    command = await paging(stage, [1])
    lost = StepValue(Outcome("ok", Payload(reference=Reference("nats", "lost/key", 100))))
    await stage.issue(msgspec.structs.replace(command, steps={"other": lost}))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "result_lost" and "lost/key" in failed.error.message


async def test_a_paging_command_is_cancelled_like_any_other_work(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "put")
    blobs.refuses = True
    await stage.start(blobs=blobs)
    await stage.issue(await paging(stage, [1, 2]))
    await stage.stop_commands("command-1")
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"


async def test_an_inner_level_is_paged_by_what_it_sees_of_the_iteration_around_it(stage: Stage) -> None:
    text = """
- step: start
  loop:
    in: []
    iterator: row
    spec: {mode: parallel}
    loop: {in: "{{ row.cells }}", iterator: cell, spec: {mode: parallel}}
  tool: [{name: act, kind: puppet}]
"""
    await stage.start()
    (page,) = await pages_of(stage, [{"cells": [1]}, {"cells": [7, 8]}])
    place = {0: ItemPosition(page.reference, 1)}
    around: dict[str, Any] = {"path": (1,), "chain": [None], "counts": [2], "places": place}
    await stage.issue(stage.command(stage.plan(text), paging=True, **around))
    started, paged = stage.facts
    assert started == LoopIterationStarted((1,), "worker-1")
    assert isinstance(paged, LoopPagedOut) and (paged.path, paged.count) == ((1,), 2)
    assert codec.decode_json(await stage.blobs.get(paged.pages[0].reference.key)) == [7, 8]


# --- reading pages ----------------------------------------------------------------------------------------------------


async def test_an_iteration_reads_its_item_from_its_page(stage: Stage) -> None:
    await stage.start()
    (page,) = await pages_of(stage, ["a", "b"])
    around: dict[str, Any] = {"path": (7,), "chain": [None], "counts": [9]}
    await stage.issue(stage.command(stage.plan(PARALLEL), places={0: ItemPosition(page.reference, 1)}, **around))
    (call,) = stage.puppet.calls
    assert call.inputs == {"item": "b", "index": 7, "count": 9}
    assert call.scope["iter"]["item"] == "b"


async def test_an_iteration_whose_page_is_lost_fails_and_names_it(stage: Stage) -> None:
    await stage.start()
    around: dict[str, Any] = {"path": (0,), "chain": [None], "counts": [1]}
    gone = ItemPosition(Reference("nats", "gone/page", 10), 0)
    await stage.issue(stage.command(stage.plan(PARALLEL), places={0: gone}, **around))
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed) and failed.error.kind == "result_lost"
    assert "gone/page" in failed.error.message


@pytest.mark.parametrize("text", [SEQUENTIAL, AT_ONCE])
async def test_a_local_loop_reads_each_page_once_as_it_comes_to_it(stage: Stage, text: str) -> None:
    blobs = Refusing(stage.broker.blobs, "get")
    await stage.start(blobs=blobs)
    pages = await pages_of(stage, ["a", "b"], ["c"], ["d", "e"])
    await stage.issue(stage.command(stage.plan(text), items=[], pages=pages, max_in_flight=2))
    assert inputs_of(stage.puppet.calls, "item") == ["a", "b", "c", "d", "e"]
    assert {call.inputs["count"] for call in stage.puppet.calls} == {5}
    assert Counter(key for (key,) in blobs.tried) == {page.reference.key: 1 for page in pages}
    assert stage.facts[-1] == LoopDone("steprun-1", 5, 5, 0, 0)


async def test_a_local_loop_continues_in_the_middle_of_a_page_and_does_not_read_those_before(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "get")
    await stage.start(blobs=blobs)
    pages = await pages_of(stage, ["a", "b"], ["c", "d"], ["e"])
    resume = Go(0, loop=LoopProgress(low=3, ok=3))
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=[], pages=pages, segment=1, resume=resume))
    assert inputs_of(stage.puppet.calls, "item") == ["d", "e"]
    assert [key for (key,) in blobs.tried] == [page.reference.key for page in pages[1:]]
    assert stage.facts[-1] == LoopDone("steprun-1", 5, 5, 0, 0)


async def test_a_paused_local_loop_reads_no_page_for_what_it_does_not_begin(stage: Stage) -> None:
    blobs = Refusing(stage.broker.blobs, "get")
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start(blobs=blobs)
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=[], pages=await pages_of(stage, ["a"], ["b"], ["c"])))
    await stage.stop_commands("command-1", pausing=True)
    endless.release.set()
    await stage.until(lambda: stage.names[-1:] == ["step.suspended"])
    assert len(blobs.tried) == 1


async def test_a_lost_page_fails_its_iterations_as_the_loop_says(stage: Stage) -> None:
    await stage.start()
    pages = await pages_of(stage, ["a"], ["b"])
    pages[0] = Page(0, 1, Reference("nats", "gone/page", 10))
    best = EACH % "{mode: sequential, policy: {failure: {mode: best_effort}}}"
    await stage.issue(stage.command(stage.plan(best), items=[], pages=pages))
    assert inputs_of(stage.puppet.calls, "item") == ["b"]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, 1, 1, 0, failed_leaves=1)
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), "command-2", items=[], pages=pages))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and (failed.error.kind, failed.error.index) == ("result_lost", 0)


async def test_pages_used_last_are_kept_and_never_more_than_fit() -> None:
    kept, loads = Pages(), Counter[str]()

    async def read(reference: Reference) -> list[str]:
        loads[reference.key] += 1
        return [reference.key]

    a, b, c = (Reference("nats", key, MAX_PAGES_KEPT_BYTES // 2) for key in "abc")
    for reference in (a, b, a, c, a, b):
        assert await kept.page(reference, read) == [reference.key]
    assert loads == {"a": 1, "b": 2, "c": 1}
    huge = Reference("nats", "huge", MAX_PAGES_KEPT_BYTES + 1)
    assert [await kept.page(huge, read) for _ in range(2)] == [["huge"]] * 2
    assert loads["huge"] == 2
