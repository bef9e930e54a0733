"""Loop results too large for an event stand in the journal, and are gathered from it by whoever reads them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from server_stage import Stage
from waiting_stage import EXECUTION, error_of, hear, is_waiting, result_of, signal

from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.model.events import NextEvaluated
from noetl_stream.model.json import codec
from noetl_stream.storage.loop_results import gather_iterations
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

SMALL = {"policy": {"limits": {"max_inline_bytes": 300}}}
TEXT = "x" * 40
LONG = "y" * 400
"""Alone too large for an event: the object store holds it."""

LOCAL = {"mode": "parallel", "exec": "local"}
SPREAD = {"mode": "parallel", "exec": "distributed"}
IN_ORDER = {"mode": "sequential"}
BEST_EFFORT = {"policy": {"failure": {"mode": "best_effort"}}}


def loop(items: Any, spec: dict[str, Any], iterator: str = "n", **more: Any) -> dict[str, Any]:
    return {"in": items, "iterator": iterator, "spec": spec, **more}


def gathers(looping: dict[str, Any], tool: Any, **more: Any) -> str:
    """A loop whose result a guard of the server, a worker's template and the execution's result all read."""
    arcs = {"arcs": [{"step": "read", "when": "{{ all | length >= 0 }}"}]}
    steps = [
        {"step": "all", "loop": looping, "tool": tool, "next": arcs},
        {"step": "read", "tool": work("{{ all[1:3] }}")},
    ]
    return playbook("gathers", steps, executor={"spec": SMALL}, **more)


async def gathered(stage: Stage, source: str) -> tuple[Any, Any]:
    """What a server gathers of the loop, and what a worker read of it, as the last step's result."""
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", source)
    row = await stage.ended(EXECUTION)
    assert row.status == "completed", row.error
    facts = await stage.facts(EXECUTION)
    step_run_id = next(fact.step_run_id for fact in facts if isinstance(fact, NextEvaluated))
    names = [entry.name for entry in await stage.journal(EXECUTION)]
    assert "reference.resolved" in names, "the loop's result was too small for this test"
    data = await gather_iterations(stage.store.real, stage.blobs, EXECUTION, step_run_id)
    read = codec.decode_payload(row.result or b"")
    value = await stage.blobs.get(read.reference.key) if read.reference else bytes(read.value)
    return codec.decode_json(data), codec.decode_json(value)


PLACES = {"local": LOCAL, "distributed": SPREAD, "in order": IN_ORDER}


@pytest.mark.parametrize("spec", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("text", [TEXT, LONG], ids=["small items", "items in the object store"])
async def test_results_are_in_the_order_of_the_items(stage: Stage, spec: dict[str, Any], text: str) -> None:
    tool = work({"n": "{{ iter.n }}", "text": text}, "{{ (20 - iter.n) / 100 }}")
    whole, read = await gathered(stage, gathers(loop(list(range(20)), spec), tool))
    assert whole == [{"n": n, "text": text} for n in range(20)]
    assert read == whole[1:3]


@pytest.mark.parametrize("spec", PLACES.values(), ids=PLACES)
async def test_failed_iterations_are_null(stage: Stage, spec: dict[str, Any]) -> None:
    tool = work(TEXT, failures="{{ 9 if iter.n % 3 == 1 else 0 }}")
    whole, read = await gathered(stage, gathers(loop(list(range(20)), spec | BEST_EFFORT), tool))
    assert whole == [None if n % 3 == 1 else TEXT for n in range(20)]
    assert read == whole[1:3]


@pytest.mark.parametrize("spec", PLACES.values(), ids=PLACES)
async def test_an_iteration_that_failed_after_a_first_task_is_null_anyway(stage: Stage, spec: dict[str, Any]) -> None:
    tasks = [
        {"name": "first", **work(TEXT)},
        {"name": "second", **work("{{ first }}", failures="{{ 9 if iter.n == 1 else 0 }}")},
    ]
    whole, _ = await gathered(stage, gathers(loop(list(range(20)), spec | BEST_EFFORT), tasks))
    assert whole == [None if n == 1 else TEXT for n in range(20)]


NESTED = {f"{one} in {other}": (outer, inner) for other, outer in PLACES.items() for one, inner in PLACES.items()}
del NESTED["distributed in local"]  # `check` refuses it


@pytest.mark.parametrize(("outer", "inner"), NESTED.values(), ids=NESTED)
async def test_nested_loops_give_lists_of_lists_empty_and_failed_ones_too(
    stage: Stage, outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    rows = [[1, 2, 3], [], [4], [9, 5], [6]]
    below = loop("{{ iter.row }}", inner | BEST_EFFORT, "n")
    tool = work({"n": "{{ iter.n }}", "text": TEXT}, failures="{{ iter.n if iter.n == 9 else 0 }}")
    whole, read = await gathered(stage, gathers(loop(rows, outer, "row", loop=below), tool))
    found = {n: {"n": n, "text": TEXT} for n in range(9)}
    assert whole == [[found[1], found[2], found[3]], [], [found[4]], [None, found[5]], [found[6]]]
    assert read == whole[1:3]


@pytest.mark.parametrize("inner", PLACES.values(), ids=PLACES)
async def test_a_row_whose_loop_failed_fast_is_null(stage: Stage, inner: dict[str, Any]) -> None:
    rows = [[1, 2, 3], [9, 5], [6, 7, 8]]
    below = loop("{{ iter.row }}", inner, "n")
    tool = work({"n": "{{ iter.n }}", "text": TEXT}, failures="{{ iter.n if iter.n == 9 else 0 }}")
    whole, _ = await gathered(stage, gathers(loop(rows, SPREAD | BEST_EFFORT, "row", loop=below), tool))
    assert [row if row is None else [one["n"] for one in row] for row in whole] == [[1, 2, 3], None, [6, 7, 8]]


async def test_three_levels_of_loops_are_gathered(stage: Stage) -> None:
    cube = [[[1, 2], []], [], [[3]]]
    inmost = loop("{{ iter.line }}", LOCAL, "n")
    middle = loop("{{ iter.plane }}", SPREAD, "line", loop=inmost)
    tool = work({"n": "{{ iter.n }}", "text": LONG})
    whole, read = await gathered(stage, gathers(loop(cube, SPREAD, "plane", loop=middle), tool))
    assert [[[one["n"] for one in line] for line in plane] for plane in whole] == cube
    assert read == whole[1:3]


async def test_a_jump_back_leaves_the_last_runs_result(stage: Stage) -> None:
    again = {"when": "{{ _prev is none }}", "then": {"do": "jump", "to": "see"}}
    tasks = [{"name": "see", **work(TEXT), "spec": {"policy": {"rules": [again]}}}, {"name": "last", **work(LONG)}]
    whole, _ = await gathered(stage, gathers(loop(list(range(5)), SPREAD), tasks))
    assert whole == [LONG] * 5


async def test_iterations_that_waited_have_what_came_after_the_wait(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    source = gathers(
        loop([0, 1, 2, 3], LOCAL), [hear(), {"name": "after", **work({"n": "{{ iter.n }}", "text": LONG})}]
    )
    await stage.request(EXECUTION, "request-1", source)
    for number in range(4):
        await is_waiting(stage, EXECUTION)
        await stage.ask(EXECUTION, signal(number))
        await stage.pass_time(1)
    row = await stage.ended(EXECUTION)
    read = codec.decode_payload(row.result or b"")
    assert read.reference is not None
    assert codec.decode_json(await stage.blobs.get(read.reference.key)) == [{"n": n, "text": LONG} for n in (1, 2)]


async def test_a_loop_whose_item_is_lost_is_lost_by_name(stage: Stage) -> None:
    class Forgetful(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "store.iteration_results":
                for key in stage.broker.blobs.keys:
                    stage.broker.blobs.lose(key)

    stage.start_server(stage.host("server", Forgetful()))
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", gathers(loop(list(range(5)), SPREAD), work(LONG)))
    assert error_of(await stage.ended(EXECUTION))["kind"] == "result_lost"


async def test_the_large_loop_of_a_child_is_read_by_its_parent(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    each = {"step": "all", "loop": loop(list(range(20)), SPREAD), "tool": work({"n": "{{ iter.n }}", "text": TEXT})}
    await stage.register(playbook("lists", [each], executor={"spec": SMALL}))
    call = [{"name": "call", "kind": "playbook", "path": "simulation/lists"}]
    steps: list[dict[str, Any]] = [
        {"step": "call", "tool": call, "next": {"arcs": [{"step": "read", "when": "{{ (call | length) == 20 }}"}]}},
        {"step": "read", "tool": work("{{ call[19].n }}")},
    ]
    await stage.request(EXECUTION, "request-1", playbook("parent", steps, executor={"spec": SMALL}))
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row)) == ("completed", 19), row.error


async def test_a_worker_asks_again_while_no_server_can_gather(stage: Stage) -> None:
    class Away(FaultInjector):
        refusals = 0

        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "store.iteration_results" and self.refusals < 5:
                self.refusals += 1
                raise Unreachable("the database is away")

    away = Away()
    stage.start_server(stage.host("server", away))
    stage.start_worker()
    steps = [
        {
            "step": "all",
            "loop": loop(list(range(20)), SPREAD),
            "tool": work(TEXT),
            "next": {"arcs": [{"step": "read"}]},
        },
        {"step": "read", "tool": work("{{ all | length }}")},
    ]
    await stage.request(EXECUTION, "request-1", playbook("gathers", steps, executor={"spec": SMALL}))
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row), away.refusals) == ("completed", 20, 5), row.error


async def test_a_loop_that_is_lost_to_a_worker_fails_its_task_in_words(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    steps = [
        {"step": "all", "loop": loop(list(range(3)), SPREAD), "tool": work(LONG), "next": {"arcs": [{"step": "wait"}]}},
        {"step": "wait", "tool": [hear()], "next": {"arcs": [{"step": "read"}]}},
        {"step": "read", "tool": work("{{ all | length }}")},
    ]
    await stage.request(EXECUTION, "request-1", playbook("gathers", steps, executor={"spec": SMALL}))
    await is_waiting(stage, EXECUTION)
    for key in stage.broker.blobs.keys:
        if not key.startswith("playbook/"):
            stage.broker.blobs.lose(key)
    await stage.ask(EXECUTION, signal())
    error = error_of(await stage.ended(EXECUTION))
    assert "read" in error["message"] and "lost" in error["message"], error


async def test_results_that_are_too_large_together_are_refused_before_they_are_read(stage: Stage) -> None:
    whole, _ = await gathered(stage, gathers(loop(list(range(20)), LOCAL), work(LONG)))
    facts = await stage.facts(EXECUTION)
    step_run_id = next(fact.step_run_id for fact in facts if isinstance(fact, NextEvaluated))
    gather = partial(gather_iterations, stage.store.real, stage.blobs, EXECUTION, step_run_id)
    stored = sum(len(codec.encode(one)) for one in whole)
    assert codec.decode_json(await gather(max_bytes=stored)) == whole
    with pytest.raises(PayloadRefused, match=f"the results of the loop have {stored:,} bytes, and at most"):
        await gather(max_bytes=stored - 1)
