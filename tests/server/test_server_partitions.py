from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import Unreachable
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.messages import Report, Request
from noetl_stream.ports.stores.store import PartitionLease
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.protocol import subjects
from noetl_stream.sealing.keys import KEY_BYTES, Key, KeyRing
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_stream.server.memory import snapshots
from noetl_stream.server.ticks.fold import Fold
from noetl_testkit.keys import ACCESS_KEYS, SERVER_KEYS
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost

EXECUTION = "execution-1"


class Freezing(FaultInjector):
    """Freezes its host at the first ``point`` after it was armed."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.armed = False
        self.struck = False

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if self.armed and point == self.point:
            self.armed, self.struck = False, True
            host.freeze()


class SlowOnce(FaultInjector):
    """Once armed, makes one call wait."""

    def __init__(self, stage: Stage, point: str) -> None:
        self.stage = stage
        self.point = point
        self.armed = False

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if self.armed and point == self.point:
            self.armed = False
            await self.stage.clock.sleep(2)


async def test_only_servers_of_this_installation_have_a_share(stage: Stage) -> None:
    first = await stage.server()
    second = await stage.server_beside(first)
    strangers = Capabilities(KeyRing(Key("server-key-1", b"x" * KEY_BYTES)), ACCESS_KEYS)
    for _ in range(20):
        for number in range(64):
            stage.broker.bus.send(subjects.SERVERS, f"invented-{number}".encode())
            stage.broker.bus.send(subjects.SERVERS, f"{first.owner} {number}".encode())
            stage.broker.bus.send(subjects.SERVERS, strangers.presence(f"invented-{number}"))
        await stage.pass_time(0.5)
        assert (len(first.ownership), len(second.ownership)) == (16, 16)


def test_only_a_server_of_this_installation_takes_its_leave() -> None:
    ours = Capabilities(SERVER_KEYS, ACCESS_KEYS)
    strangers = Capabilities(KeyRing(Key("server-key-1", b"x" * KEY_BYTES)), ACCESS_KEYS)
    assert (ours.server_left(ours.farewell("one")), ours.server_left(strangers.farewell("one"))) == ("one", None)
    assert (ours.server_left(ours.presence("one")), ours.server_in(ours.farewell("one"))) == (None, None)


async def test_servers_share_the_partitions_fairly(stage: Stage) -> None:
    first = await stage.server()
    assert len(first.ownership) == 32
    second = await stage.server()
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))
    third = await stage.server()
    await stage.until(lambda: len(first.ownership) + len(second.ownership) + len(third.ownership) == 32)
    await stage.pass_time(10)
    assert sorted((await stage.owners()).values()) == [10, 11, 11]


async def test_partitions_are_shared_out_soon_after_a_server_joins_or_leaves(stage: Stage) -> None:
    first = await stage.server()
    await stage.pass_time(10)
    second, _, ended = stage.start_server()
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16), 2.0)
    second.stop()
    await ended
    await stage.until(lambda: len(first.ownership) == PARTITIONS, 1.0)
    assert await stage.owners() == {first.owner: PARTITIONS}


async def test_a_stopped_server_gives_its_leases_back_at_once(stage: Stage) -> None:
    server = await stage.server()
    server.stop()
    await stage.running[0]
    assert await stage.owners() == {None: 32}
    taken = await stage.store.real.take_over("next", 6.0, 32)
    assert {lease.crashes for lease in taken} == {0}


async def test_the_second_server_takes_over_when_the_first_dies(stage: Stage) -> None:
    first, host, _ = stage.start_server()
    await stage.until(lambda: len(first.ownership) == 32)
    second = await stage.server_beside(first)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    host.kill()
    died_s = stage.clock.monotonic_s()
    await stage.until(lambda: len(second.ownership) == 32)
    assert stage.clock.monotonic_s() - died_s <= first.times.lease_s + 2
    await stage.ended(EXECUTION)
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("point", ["store.commit", "store.commit.done", "store.executions", "store.renew"])
async def test_a_zombie_finds_itself_fenced_and_continues_with_what_it_still_owns(stage: Stage, point: str) -> None:
    injector = Freezing(point)
    host = stage.host("server", injector)
    first, _, task = stage.start_server(host)
    await stage.until(lambda: len(first.ownership) == 32)
    stage.start_worker()
    await stage.request("later-by-its-id", "request-0", ONE_STEP)  # so that EXECUTION is looked for in the store
    await stage.ended("later-by-its-id")
    injector.armed = True
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: injector.struck)
    second, _, _ = stage.start_server()
    await stage.until(lambda: len(second.ownership) == 32)
    await stage.ended(EXECUTION)
    host.thaw()
    await stage.until(lambda: (len(first.ownership), len(second.ownership)) == (16, 16))
    assert not task.done()
    executions = [await stage.submit(ONE_STEP) for _ in range(8)]
    for execution_id in executions:
        await stage.ended(execution_id)
    journal = await stage.journal(EXECUTION)
    assert [entry.position for entry in journal] == list(range(1, len(journal) + 1))
    if point != "store.commit.done":  # else it published when it thawed: only a fence at the queue could stop that
        assert set(stage.effects.values()) == {1}


async def test_a_takeover_reads_journals_in_portions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EXECUTIONS_AT_ONCE", 3)
    first = await stage.server()
    executions = [await stage.submit(ONE_STEP) for _ in range(10)]
    await stage.pass_time(5)  # all records are published, so the next owner does not read them
    first.stop()
    await stage.running[0]
    portions: list[int] = []
    read = stage.store.real.journals

    async def journals(after: Mapping[str, int], *limit: int) -> Any:
        portions.append(len(after))
        return await read(after, *limit)

    monkeypatch.setattr(stage.store.real, "journals", journals)
    second = await stage.server()
    assert (sum(portions), max(portions), len(second.executions)) == (10, 3, 10)
    stage.start_worker()
    for execution_id in executions:
        await stage.ended(execution_id)


async def test_cursors_of_idle_partitions_follow_the_log(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    await stage.pass_time(10)
    views = await stage.store.real.read_partitions()
    assert {view.last_seq for view in views} == {stage.broker.event_log.end}


async def test_a_publication_is_recorded_within_a_second_without_another_tick(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(0.01)
    partition = partition_of(EXECUTION)
    view = (await stage.store.real.read_partitions([partition]))[0]
    assert (view.tick, view.published_tick) == (1, 0)
    await stage.pass_time(1.6)
    view = (await stage.store.real.read_partitions([partition]))[0]
    assert view.published_tick >= 1


async def test_the_published_tick_never_goes_back_when_a_partition_comes_back(stage: Stage) -> None:
    partition = partition_of(EXECUTION)
    first = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    await stage.pass_time(5)
    seen = [(await stage.store.real.read_partitions([partition]))[0].published_tick]
    first.ownership.forget(partition)  # as if its lease had been lost unheard
    stage.expire(partition)
    thief = await stage.store.real.take_over("thief", 0.5, 32)
    await stage.steal_ticks(thief, 10)
    for _ in range(20):
        await stage.pass_time(1)
        seen.append((await stage.store.real.read_partitions([partition]))[0].published_tick)
    assert seen == sorted(seen)


async def test_nothing_is_lost_when_a_partition_goes_away_and_comes_back(stage: Stage) -> None:
    """While it was away, messages passed its reader; its new reader is slow, and the old one sees the next message."""
    injector = SlowOnce(stage, "log.next_batch.done")
    server, _, _ = stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await stage.pass_time(1)
    partition = partition_of(EXECUTION)
    neighbour = next(name for n in range(2, 1000) if partition_of(name := f"execution-{n}") == partition)
    server.ownership.forget(partition)
    await stage.request(EXECUTION, "request-1", ONE_STEP)  # read, and passed over: not ours
    await stage.pass_time(0.2)
    injector.armed = True
    stage.expire(partition)
    await stage.until(lambda: not injector.armed)
    await stage.request(neighbour, "request-2", ONE_STEP)
    assert (await stage.ended(neighbour)).status == "completed"
    assert (await stage.ended(EXECUTION)).status == "completed"


async def test_each_message_is_folded_by_one_reader_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await stage.server()
    await stage.pass_time(1)
    partition = partition_of(EXECUTION)
    server.ownership.forget(partition)
    stage.expire(partition)
    await stage.until(lambda: server.ownership.get(partition) is not None)
    seen: list[Any] = []
    fold = Fold.fold_message

    def message(self: Fold, message: ReportedMessage, body: Request | Report) -> None:
        seen.append(message.sequence)
        fold(self, message, body)

    monkeypatch.setattr(Fold, "fold_message", message)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    assert len(seen) == len(set(seen)) == 1


async def test_a_server_without_messages_releases_its_partitions_for_a_while(stage: Stage) -> None:
    server = await stage.server()
    stage.broker.event_log.deaf = True
    await stage.until(lambda: len(server.ownership) == 0, 30)
    await stage.pass_time(server.times.lease_s / 2)
    assert await stage.owners() == {None: 32}
    stage.broker.event_log.deaf = False
    await stage.until(lambda: len(server.ownership) == 32)
    stage.broker.event_log.deaf = True
    await stage.until(lambda: len(server.ownership) == 0, 30)


async def test_states_loaded_by_a_failed_reload_are_forgotten_when_another_server_owns_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await stage.server()
    await stage.submit(ONE_STEP)
    taken: list[PartitionLease] = []

    async def fail_once(partitions: Collection[int], after: int) -> None:
        if not taken:
            leases = await stage.store.owned(server.ownership.owner)
            await stage.store.give_back(
                server.ownership.owner, [(one.id, one.epoch) for one in leases], [0] * PARTITIONS
            )
            taken.extend(await stage.store.take_over("other", 60.0, PARTITIONS))
            raise Unreachable("the broker is away")

    monkeypatch.setattr(server.reader, "add", fail_once)
    await server.assignment.reload(lambda: False)
    assert len(taken) == PARTITIONS
    assert not list(server.executions)
