"""A week of schedules under every kind of trouble, and the days on which clocks are set (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from schedule_world import ScheduleWorld, every

from effort import first_in_gate, in_gate
from noetl_stream.adapters.simulated_time import SimulatedLoop, cancel_all_tasks
from noetl_stream.model.aggregates import Timetable
from noetl_stream.model.json import codec
from noetl_stream.zones import iso_in, zone_named

WEEK_H = 7 * 24


async def lived(seed: int, hours: float, restored_h: float = 0.0) -> tuple[list[str], dict[str, int], int]:
    """What is wrong after so many hours of trouble, what the trouble was, and how many executions there were.

    Args:
        restored_h: By how many hours Postgres is restored to the past after that.
    """
    world = ScheduleWorld(seed)
    await world.begin(3)
    await world.clock.sleep(60)
    await world.register("team/often", timetable=every(17), overlap="allow", missed="all", missed_within_s=5400)
    await world.register("team/hourly", timetable=Timetable(cron=("0 * * * *",), zone="Asia/Kolkata"))
    await world.register("team/spread", timetable=every(120), jitter_s=1800, overlap="queue_all", missed="all")
    await world.suffer(hours)
    if restored_h:
        await world.restore(restored_h)
    await world.recover(3)
    found = list(await world.problems())
    executions = len(world.store.tables.executions)
    struck = dict(world.faults.struck)
    await cancel_all_tasks()
    return found, struck, executions


def simulated(seed: int, hours: float, restored_h: float = 0.0) -> tuple[list[str], dict[str, int], int]:
    loop = SimulatedLoop(seed)
    try:
        return loop.run_until_complete(lived(seed, hours, restored_h))
    finally:
        loop.close()


of_two_seeds = pytest.mark.parametrize("seed", first_in_gate(range(2)))


@of_two_seeds
def test_each_occurrence_of_a_day_starts_once_or_is_skipped_with_a_reason(seed: int) -> None:
    problems, struck, executions = simulated(seed, 24)
    assert problems == []
    assert executions > 60 and sum(struck.values()) > 5


@pytest.mark.verify
@of_two_seeds
def test_occurrences_from_before_postgres_was_restored_by_hours_are_not_started_again_or_called_skipped(
    seed: int,
) -> None:
    problems, struck, _ = simulated(seed, 4, restored_h=8)
    assert problems == []
    assert struck["postgres restored"] == 1


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(2, 9))
def test_so_does_each_occurrence_of_a_week(seed: int) -> None:
    problems, struck, executions = simulated(seed, WEEK_H)
    assert problems == []
    assert executions > 500
    assert {"commit unknown", "tick fenced", "postgres away", "_kill_one", "_kill_all", "set"} <= struck.keys()


CHANGES = {
    ("Europe/Berlin", "2026-03-28T20:00"): ["29T01:30:00+01:00", "29T03:00:00+02:00", "29T03:30:00+02:00"],
    ("Europe/Berlin", "2026-10-24T20:00"): ["25T01:30:00+02:00", "25T02:30:00+02:00", "25T03:30:00+01:00"],
    ("America/New_York", "2026-03-08T03:00"): ["08T01:30:00-05:00", "08T03:00:00-04:00", "08T03:30:00-04:00"],
    ("America/New_York", "2026-11-01T03:00"): ["01T01:30:00-04:00", "01T02:30:00-05:00", "01T03:30:00-05:00"],
    ("Australia/Lord_Howe", "2026-10-03T12:00"): ["04T01:30:00+10:30", "04T02:30:00+11:00", "04T03:30:00+11:00"],
    ("Australia/Lord_Howe", "2026-04-04T12:00"): ["05T01:30:00+11:00", "05T02:30:00+10:30", "05T03:30:00+10:30"],
}
"""The half hours of the night in which clocks are set, by zone and when the test begins (UTC)."""


@pytest.mark.parametrize("change", in_gate(CHANGES, one_of=3), ids="-".join)
def test_an_occurrence_in_the_night_when_clocks_change_starts_once(change: tuple[str, str]) -> None:
    zone, begins = change

    async def night() -> list[str]:
        world = ScheduleWorld(0)
        world.faults.is_fair = True
        await world.begin(2)
        await world.clock.sleep(60)
        await world.register("team/nightly", timetable=Timetable(cron=("30 1-3 * * *",), zone=zone))
        await world.clock.sleep(10 * 3600)
        assert list(await world.problems()) == []
        rows = await world.history("team/nightly")
        await cancel_all_tasks()
        assert {row.status for row in rows} == {"completed"}
        return [iso_in(codec.decode_json(row.body)["scheduled_ms"], zone_named(zone))[8:] for row in rows]

    loop = SimulatedLoop(0, int(datetime.fromisoformat(begins).replace(tzinfo=UTC).timestamp() * 1000))
    try:
        assert loop.run_until_complete(night())[:3] == CHANGES[zone, begins]
    finally:
        loop.close()
