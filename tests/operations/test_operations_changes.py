"""Each change of a key of ctx: who made it, why, and the values before and after."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.model.events import CancelRequested, CtxPatched
from noetl_stream.operations.views import changes as change_pages
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.reading.views import KeyChangeDocument
from noetl_testkit.simulation.work import playbook, then, work


def sets(**keys: str) -> dict[str, Any]:
    return {"policy": {"rules": [{"else": {"then": {"do": "continue", "set_ctx": keys}}}]}}


SHARED = {
    "rules": [
        {"else": {"then": {"do": "continue", "set_shared": {"total": {"op": "add", "value": "{{ outcome.result }}"}}}}}
    ]
}
PLAYBOOK = playbook(
    "changes",
    [
        {
            "step": "start",
            "tool": {"name": "one", **work(1, spec=sets(n="{{ outcome.result }}"))},
            "next": then("each"),
        },
        {
            "step": "each",
            "loop": {"in": [1, 2, 3], "iterator": "item"},
            "tool": {"name": "add", **work("{{ iter.item }}", spec={"policy": SHARED})},
            "next": then("ear"),
        },
        {"step": "ear", "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}]},
    ],
)


async def changed(stage: OperationsStage) -> str:
    started = await stage.executions.start(Start(playbook=PLAYBOOK, ctx={"n": 0, "kept": True}), BY)
    one = started.execution_id
    await stage.until_status(one, "waiting")
    await stage.ask(one, CtxPatched, patch={"n": 5}, reason="by hand", correlation_id="t-7")
    await stage.ask(one, CtxPatched, patch={"n": None}, merge=True)
    return one


async def pages(stage: OperationsStage, one: str, key: str | None, limit: int) -> list[KeyChangeDocument]:
    found: list[KeyChangeDocument] = []
    cursor: str | None = None
    while True:
        page = await stage.views.changes(one, key, limit, cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_key_has_each_of_its_values_in_order(stage: OperationsStage, limit: int) -> None:
    one = await changed(stage)
    found = await pages(stage, one, "n", limit)
    assert [(change.had, change.before, change.has, change.after) for change in found] == [
        (False, None, True, 0),
        (True, 0, True, 1),
        (True, 1, True, 5),
        (True, 5, False, None),
    ]
    first, by_task, by_hand, _ = found
    assert (first.event, first.principal, first.step) == ("ctx.patched", BY, None)
    assert (by_task.event, by_task.step, by_task.task) == ("task.processed", "start", "one")
    assert (by_hand.principal, by_hand.reason, by_hand.correlation_id) == (BY, "by hand", "t-7")


async def test_the_sum_of_a_loop_is_one_change(stage: OperationsStage) -> None:
    one = await changed(stage)
    [change] = await pages(stage, one, "total", 100)
    assert (change.event, change.step, change.had, change.after) == ("loop.done", "each", False, 6)


async def test_without_a_key_all_changes_are_listed_as_in_the_history_of_ctx(stage: OperationsStage) -> None:
    one = await changed(stage)
    by_position: dict[int, list[str]] = {}
    for change in await pages(stage, one, None, 2):
        by_position.setdefault(change.position, []).append(change.key)
    history = (await stage.executions.ctx(one)).history
    assert {entry.position: entry.keys for entry in history} == {at: sorted(keys) for at, keys in by_position.items()}


async def test_a_key_that_never_was_has_no_changes(stage: OperationsStage) -> None:
    assert await pages(stage, await changed(stage), "other", 10) == []


async def test_a_patch_that_is_discarded_is_no_change(stage: OperationsStage) -> None:
    long = playbook(
        "long", [{"step": "only", "tool": {"name": "one", **work(1, 30.0, spec=sets(n="{{ outcome.result }}"))}}]
    )
    started = await stage.executions.start(Start(playbook=long), BY)
    await stage.clock.sleep(1)
    await stage.ask(started.execution_id, CancelRequested)
    await stage.executions.wait(started.execution_id, 600)
    assert await pages(stage, started.execution_id, None, 10) == []


async def test_a_page_is_short_rather_than_late(stage: OperationsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await changed(stage)
    whole = await pages(stage, one, None, 100)
    monkeypatch.setattr(change_pages, "MOST_REPLAYED", 3)
    first = await stage.views.changes(one, None, 100, None)
    assert first.next is not None and 0 < len(first.items) < len(whole)
    assert await pages(stage, one, None, 100) == whole, "each page replays so much, and goes on"
    monkeypatch.setattr(change_pages, "PAGE_BYTES", 1)
    assert len((await stage.views.changes(one, None, 100, None)).items) == 1


async def test_large_values_are_shown_as_their_size(stage: OperationsStage) -> None:
    ended = await stage.run(playbook("big", [{"step": "only", "tool": work(1)}]), ctx={"big": "x" * 5_000})
    [change] = await pages(stage, ended.execution_id, "big", 10)
    assert change.after == {"$large": {"size": 5_002}}
