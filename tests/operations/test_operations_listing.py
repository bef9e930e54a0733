"""Lists of executions: filters, times, cursors."""

from __future__ import annotations

import pytest
from operations_stage import OperationsStage, labelled

from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_testkit.simulation.work import work


async def fill(stage: OperationsStage) -> dict[str, str]:
    """Executions by a name: two of the same path, one failed."""
    good = labelled("good", [{"step": "only", "tool": work(1)}], team="data", tier=1)
    bad = labelled("bad", [{"step": "only", "tool": {"name": "call", **work(1, failures=9)}}], team="data")
    found = {}
    for name, source in (("one", good), ("two", good), ("bad", bad)):
        found[name] = (await stage.run(source)).execution_id
        await stage.clock.sleep(1)
    return found


async def test_all_filters_of_events_hold_together(stage: OperationsStage) -> None:
    filled = await fill(stage)
    for chosen, names in (
        (ExecutionFilter(), ["bad", "two", "one"]),
        (ExecutionFilter(status=["completed"]), ["two", "one"]),
        (ExecutionFilter(status=["completed", "failed"]), ["bad", "two", "one"]),
        (ExecutionFilter(path="/tests/good"), ["two", "one"]),
        (ExecutionFilter(path="tests/bad", status=["completed"]), []),
        (ExecutionFilter(labels={"team": "data"}), ["bad", "two", "one"]),
        (ExecutionFilter(labels={"team": "data", "tier": "1"}), ["two", "one"]),
        (ExecutionFilter(labels={"team": "data"}, status=["failed"]), ["bad"]),
        (ExecutionFilter(labels={"team": "dat"}), []),
        (ExecutionFilter(error="FAILS attempt"), ["bad"]),
        (ExecutionFilter(error="fails elsewhere"), []),
    ):
        found = await stage.executions.page(chosen, 10, None)
        assert [one.execution_id for one in found.items] == [filled[name] for name in names], chosen


async def test_times_are_those_of_the_start(stage: OperationsStage) -> None:
    filled = await fill(stage)
    row = await stage.store.execution(filled["two"])
    assert row is not None
    at_ms = row.started_ms
    after = await stage.executions.page(ExecutionFilter(started_from_ms=at_ms), 10, None)
    before = await stage.executions.page(ExecutionFilter(started_before_ms=at_ms), 10, None)
    assert [one.execution_id for one in after.items] == [filled["bad"], filled["two"]]
    assert [one.execution_id for one in before.items] == [filled["one"]]


async def test_a_cursor_leads_to_the_next_page(stage: OperationsStage) -> None:
    filled = await fill(stage)
    first = await stage.executions.page(ExecutionFilter(), 2, None)
    second = await stage.executions.page(ExecutionFilter(), 2, first.next)
    assert [one.execution_id for one in (*first.items, *second.items)] == [
        filled[name] for name in ("bad", "two", "one")
    ]
    assert second.next is None
    for cursor in ("?", "e30", "WzFd", "\ud800"):
        with pytest.raises(UsageError, match="not a cursor"):
            await stage.executions.page(ExecutionFilter(), 2, cursor)


async def test_an_impossible_filter_is_refused_with_the_reason(stage: OperationsStage) -> None:
    with pytest.raises(UsageError, match="'ended' is not a status"):
        await stage.executions.page(ExecutionFilter(status=["ended"]), 10, None)
    with pytest.raises(UsageError, match="contains no word"):
        await stage.executions.page(ExecutionFilter(error=" - "), 10, None)


async def test_an_item_says_what_it_is(stage: OperationsStage) -> None:
    await fill(stage)
    bad, *_ = (await stage.executions.page(ExecutionFilter(), 10, None)).items
    assert (bad.status, bad.path, bad.labels) == ("failed", "tests/bad", {"team": "data"})
    assert (bad.error.task, bad.version) == ("call", None)
