"""Leases of servers whose stores are far away or slow (PROTOCOL §7 *Renewal apart from work*)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import Unreachable
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.stores.store import LONGEST_LEASE_S
from noetl_stream.server.ownership.leases import ROUND_TRIPS, RoundTrips
from noetl_stream.server.server import Server
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost

NATS, POSTGRES = ("log.", "queue.", "bus.", "blobs."), ("store.",)
FAR_S = 1.0


class Far(FaultInjector):
    """Calls take time: ``takes_s`` by the beginning of their names. Those in ``fails`` get no further."""

    def __init__(self, stage: Stage, takes_s: Mapping[str, float]) -> None:
        self.stage = stage
        self.takes_s = dict(takes_s)
        self.fails: set[str] = set()
        self.seen: list[str] = []

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point.endswith(".done"):
            return
        self.seen.append(point)
        if point in self.fails:
            raise Unreachable(f"{point} does not get through")
        for beginning, seconds in tuple(self.takes_s.items()):
            if point.startswith(beginning):
                await self.stage.clock.sleep(seconds)


def far(stage: Stage, *stores: str) -> Far:
    return Far(stage, dict.fromkeys(stores, FAR_S))


async def server_far_away(stage: Stage, injector: Far) -> tuple[Server, SimulatedHost]:
    server, host, _ = stage.start_server(stage.host("server", injector))
    await stage.until(lambda: len(server.ownership) > 0)
    return server, host


def epochs(stage: Stage) -> int:
    return sum(row.epoch for row in stage.tables.partitions)


@pytest.mark.parametrize("stores", [NATS, POSTGRES, (*NATS, *POSTGRES)], ids=["NATS", "Postgres", "both"])
async def test_servers_far_from_their_stores_keep_their_partitions_and_all_ends(
    stage: Stage, stores: tuple[str, ...]
) -> None:
    first, _ = await server_far_away(stage, far(stage, *stores))
    second, _ = await server_far_away(stage, far(stage, *stores))
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))
    shared_out = epochs(stage)
    assert shared_out == PARTITIONS + PARTITIONS // 2
    stage.start_worker(16, far(stage, *stores))
    executions = await asyncio.gather(*(stage.submit(ONE_STEP) for _ in range(60)))
    for execution_id in executions:
        assert (await stage.ended(execution_id)).status == "completed"
    await stage.pass_time(60)
    assert epochs(stage) == shared_out
    assert set(stage.effects.values()) == {1}


async def test_a_lease_lasts_twenty_of_the_longest_round_trips(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    server, _ = await server_far_away(stage, Far(stage, {"store.": 0.1, "bus.": FAR_S}))
    assert server.leases.lease_s == pytest.approx(ROUND_TRIPS * FAR_S)
    await stage.pass_time(1)
    left_s = [row.lease_until_s - stage.clock.monotonic_s() for row in stage.tables.partitions]
    assert server.times.lease_s < min(left_s) <= max(left_s) <= server.leases.lease_s
    await stage.until(lambda: "leases last 20.0 s now: a round trip takes" in caplog.text)
    assert "Postgres 100 ms, NATS 1000 ms" in caplog.text


async def test_a_lease_is_never_shorter_or_longer_than_its_limits(stage: Stage) -> None:
    near = await stage.server()
    assert near.leases.lease_s == near.times.lease_s
    near.leases.round_trips.add("Mars", 180.0)
    assert near.leases.lease_s == LONGEST_LEASE_S


def test_one_slow_answer_is_no_long_round_trip() -> None:
    trips = RoundTrips()
    for took_s in (0.1, 0.1, 9.0, 0.2):
        trips.add("Postgres", took_s)
    assert trips.longest_s == pytest.approx(0.15)
    for _ in range(3):
        trips.add("Postgres", 0.5)
    assert trips.longest_s == 0.5


async def test_a_tick_that_takes_longer_than_a_lease_costs_none(stage: Stage) -> None:
    injector = Far(stage, {})
    first, _ = await server_far_away(stage, injector)
    second = await stage.server_beside(first)
    before = epochs(stage)
    stage.start_worker()
    injector.takes_s["store.commit"] = 5 * first.times.lease_s
    executions = [await stage.submit(ONE_STEP) for _ in range(8)]
    injector.takes_s.clear()
    for execution_id in executions:
        await stage.ended(execution_id)
    assert epochs(stage) == before
    assert (len(first.ownership), len(second.ownership)) == (16, 16)


async def test_leases_are_kept_while_a_failed_tick_is_read_again(stage: Stage) -> None:
    injector = Far(stage, {})
    server, _ = await server_far_away(stage, injector)
    await stage.server_beside(server)
    before = epochs(stage)
    injector.takes_s["store.owned"] = 1.5 * server.times.lease_s
    injector.fails.add("store.commit")
    await stage.request("execution-1", "request-1", ONE_STEP)
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.until(lambda: "store.owned" in injector.seen)
    injector.fails.clear()
    stage.start_worker()
    for execution_id in ("execution-1", "execution-2"):
        await stage.ended(execution_id)
    assert epochs(stage) == before


@pytest.mark.parametrize("how", ["refused", "unanswered"])
async def test_a_server_that_cannot_renew_gives_its_partitions_back_in_time(stage: Stage, how: str) -> None:
    injector = Far(stage, {})
    server, _ = await server_far_away(stage, injector)
    taken_at = epochs(stage)
    if how == "refused":
        injector.fails.add("store.renew")
    else:
        injector.takes_s["store.renew"] = 3600.0
    until_s = min(row.lease_until_s for row in stage.tables.partitions) + server.times.lease_s
    await stage.until(lambda: all(row.owner is None for row in stage.tables.partitions))
    assert stage.clock.monotonic_s() < until_s
    assert all(row.given_back for row in stage.tables.partitions)
    await stage.until(lambda: len(server.ownership) == 0)
    injector.fails.clear()
    injector.takes_s.clear()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    assert (epochs(stage), {row.crashes for row in stage.tables.partitions}) == (taken_at + PARTITIONS, {0})


async def test_servers_serve_again_as_soon_as_postgres_is_back(stage: Stage) -> None:
    """All of them may have failed to renew, and reach it first to give their partitions back."""
    injector = Far(stage, {})
    first, _ = await server_far_away(stage, injector)
    second, _ = await server_far_away(stage, injector)
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))
    injector.fails.add("store.renew")
    await stage.until(lambda: injector.seen.count("store.give_back") == 3)  # the first has shared them out
    injector.fails.clear()
    back_s = stage.clock.monotonic_s()
    await stage.until(lambda: all(row.owner is None for row in stage.tables.partitions))
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))
    assert stage.clock.monotonic_s() - back_s < first.times.lease_s / 2


async def test_a_server_that_only_waits_for_its_stores_is_not_counted_on(stage: Stage) -> None:
    """It is in no one's way: the other takes all partitions, and gives half of them up when it is back."""
    injector = Far(stage, {})
    first, _ = await server_far_away(stage, injector)
    second = await stage.server_beside(first)
    injector.fails |= {"log.open_reader", "log.last_sequence", "log.first_sequence"}
    stage.broker.event_log.break_readers()
    await stage.until(lambda: len(second.ownership) == PARTITIONS or "log.open_reader" in injector.seen)
    await stage.until(lambda: len(second.ownership) == PARTITIONS)
    assert await stage.owners() == {second.owner: PARTITIONS}
    injector.fails.clear()
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))


async def test_all_cursors_are_looked_up_at_once(stage: Stage) -> None:
    injector = Far(stage, {})
    server, _ = await server_far_away(stage, injector)
    for _ in range(8):
        await stage.submit(ONE_STEP)
    assert len({lease.last_seq for lease in server.ownership}) > 4
    injector.takes_s["log."] = FAR_S
    began_s = stage.clock.monotonic_s()
    assert await server.ownership.give_up_lost() == set()
    assert stage.clock.monotonic_s() - began_s == pytest.approx(3 * FAR_S), "first, last, and all others together"


async def test_a_server_that_finds_no_free_partition_looks_less_often_the_farther_it_is(stage: Stage) -> None:
    await stage.store.real.take_over("stranger", LONGEST_LEASE_S, 22)
    injector = Far(stage, {"store.": FAR_S})
    server, _ = await server_far_away(stage, injector)
    assert len(server.ownership) == 10
    injector.seen.clear()
    await stage.pass_time(30)
    assert injector.seen.count("store.take_over") <= 6
    await stage.until(lambda: len(server.ownership) == PARTITIONS, 2 * LONGEST_LEASE_S)
