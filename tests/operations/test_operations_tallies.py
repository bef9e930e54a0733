"""Counts of executions: bars of a range, groups, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import UsageError
from noetl_stream.model.ids import uuid7
from noetl_stream.operations.executions.selections import groups_of, histogram_of
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.operations.selections import MAX_GROUPS
from noetl_testkit.conformance.store_rows import committed, execution_row
from noetl_testkit.memory.store import StagedStore

MINUTE_MS = 60_000
NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00Z."""


async def filled(rows: list[tuple[int, dict[str, Any]]]) -> StagedStore:
    """Executions by minutes before noon."""
    store = StagedStore(ManualClock())
    made = [
        execution_row(uuid7(NOON_MS - ago * MINUTE_MS, number.to_bytes(10, "big")), **changes)
        for number, (ago, changes) in enumerate(rows)
    ]
    await committed(store, executions=made)
    return store


async def test_bars_begin_at_round_times_and_stay_there_while_time_goes_on() -> None:
    store = await filled([(1, {"status": "failed"}), (59, {"status": "failed"}), (60, {"status": "running"})])
    hour = ExecutionFilter(started_from_ms=NOON_MS - 60 * MINUTE_MS)
    found = await histogram_of(store, hour, 60, NOON_MS)
    assert (found.bar_s, found.first) == (120, found.since)
    assert found.counts == {"running": 1, "failed": 2}
    assert (found.bars["running"][0], found.bars["failed"][0], found.bars["failed"][-1]) == (1, 1, 1)
    assert {len(bars) for bars in found.bars.values()} == {30} and found.complete
    later = await histogram_of(store, hour, 60, NOON_MS + MINUTE_MS)
    assert (later.first, later.bar_s, len(later.bars["failed"])) == (found.first, 120, 31)


@pytest.mark.parametrize("bars", [1, 2, 7, 60, 500, 9_999])
@pytest.mark.parametrize("span_ms", [1, 999, 61_000, 86_400_000, 400 * 86_400_000, NOON_MS])
async def test_a_range_has_no_more_bars_than_requested(bars: int, span_ms: int) -> None:
    store = await filled([(0, {})])
    wanted = ExecutionFilter(started_from_ms=NOON_MS + 1 - span_ms, started_before_ms=NOON_MS + 1)
    found = await histogram_of(store, wanted, bars, NOON_MS)
    (counts,) = found.bars.values()
    assert sum(counts) == 1 and len(counts) <= max(2, min(bars, 500))


async def test_an_invalid_range_or_group_is_refused() -> None:
    store = await filled([])
    for wrong in (ExecutionFilter(started_from_ms=5, started_before_ms=5), ExecutionFilter(started_from_ms=-1)):
        with pytest.raises(UsageError, match="the range is empty"):
            await histogram_of(store, wrong, 60, NOON_MS)
    with pytest.raises(UsageError, match="is not a status"):
        await histogram_of(store, ExecutionFilter(status=("lost",)), 60, NOON_MS)
    for by in ("colour", "label:", "label"):
        with pytest.raises(UsageError, match="nothing to group by"):
            await groups_of(store, ExecutionFilter(), by)


async def test_groups_are_ordered_by_size_and_the_smallest_left_out() -> None:
    rows = [(1, {"path": f"p{number:03}", "status": "completed"}) for number in range(MAX_GROUPS + 5)]
    store = await filled([*rows, (1, {"path": "p007", "status": "failed"}), (1, {"labels": b'{"team":"a"}'})])
    found = await groups_of(store, ExecutionFilter(), "path")
    assert (found.items[0].value, found.items[0].counts) == ("p007", {"completed": 1, "failed": 1})
    assert (len(found.items), found.more) == (MAX_GROUPS, 6)
    by_team = await groups_of(store, ExecutionFilter(), "label:team")
    assert [one.value for one in by_team.items] == [None, "a"]
