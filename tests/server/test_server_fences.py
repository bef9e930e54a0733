"""The fences: of what a server that has lost a partition still publishes, the queue refuses commands, and records in
EVENTS do not count (PROTOCOL §5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.protocol.log_fences import MOST_KEPT, places_of, raised
from noetl_stream.server.journal_records import disagreements
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost

EXECUTION = "execution-1"
PARTITION = partition_of(EXECUTION)


class FrozenAtIssue(FaultInjector):
    """Freezes its host when it is about to publish commands."""

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "queue.issue":
            host.freeze()


async def test_a_command_that_a_zombie_publishes_after_a_takeover_is_refused(stage: Stage) -> None:
    zombie, host, _ = stage.start_server(stage.host("server", FrozenAtIssue()))
    await stage.until(lambda: len(zombie.ownership) == PARTITIONS)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: host.is_frozen)
    await stage.server()  # which takes over, and issues what the queue lacks
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1, 2]
    host.injector = FaultInjector()
    host.thaw()
    await stage.pass_time(20)
    assert await stage.broker.command_queue.present() == {}
    assert list(stage.effects.values()) == [1]
    assert zombie.publications.fenced_off == set()


async def test_a_server_whose_commands_are_refused_forgets_what_another_has_taken_over(stage: Stage) -> None:
    server = await stage.server(lease_s=60.0)  # it would renew, and learn of its loss, in 20 seconds
    stage.expire(PARTITION)
    await stage.store.real.take_over("thief", 60.0, 1)
    queue = stage.broker.command_queue
    await queue.fence("thief", {PARTITION: 2})
    server.publications.fenced_off.add(PARTITION)
    await stage.until(lambda: len(server.ownership) == PARTITIONS - 1, patience_s=10.0)
    assert server.ownership.get(PARTITION) is None


async def test_a_queue_that_has_lost_its_fences_and_commands_gets_both_again(stage: Stage) -> None:
    await stage.server(reconcile_s=1000.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    queue = stage.broker.command_queue
    await stage.until(lambda: queue.queued)
    (command_id,) = queue.queued
    queue.lose_fences()  # as a stream that is made anew
    queue.lose(command_id)
    await stage.request("execution-2", "request-2", ONE_STEP)
    stage.start_worker()
    assert (await stage.ended("execution-2")).status == "completed"
    assert await stage.issues("execution-2") == [1, 2]
    assert (await stage.ended(EXECUTION)).status == "completed"


async def test_a_fence_of_an_epoch_that_postgres_has_forgotten_is_overtaken(stage: Stage) -> None:
    await stage.broker.command_queue.fence("forgotten", {PARTITION: 5})
    server = await stage.server()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    lease = server.ownership.get(PARTITION)
    assert lease is not None and lease.epoch > 5
    stage.start_worker()
    execution_id = await stage.submit(ONE_STEP)
    assert (await stage.ended(execution_id)).status == "completed"


def hold_records(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The records of the first epoch are on their way until the function that is returned is called."""
    log = stage.broker.event_log
    publish, held = log.publish_decided, list[DecidedMessage]()

    def hold(messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        if codec.decode_record(messages[0].body).epoch > 1:
            return publish(messages)
        held.extend(messages)
        return asyncio.get_running_loop().create_future()

    def release() -> None:
        publish(held)

    monkeypatch.setattr(log, "publish_decided", hold)
    return release


async def expect_no_late_record_counts(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    last = stage.records()[-1]
    assert last.epoch == 1 < stage.tables.partitions[PARTITION].epoch, "it came late"
    log, store = stage.broker.event_log, stage.store.real
    assert await disagreements(log, store, store.cursors) == []
    assert await stage.rebuilt_differences() == []
    stage.expire(*range(PARTITIONS))
    await stage.pass_time(20)
    assert "EVENTS holds a record of tick" not in caplog.text
    assert set(stage.effects.values()) == {1}


async def test_records_of_ticks_that_postgres_has_lost_do_not_count_once_another_owner_has_come(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = hold_records(stage, monkeypatch)
    server, host, _ = stage.start_server()
    stage.start_worker()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    before = stage.store.real.dump()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    host.kill()
    stage.store.real.restore(before)
    stage.expire(*range(PARTITIONS))
    await stage.server()
    await stage.ended(EXECUTION)
    release()
    await expect_no_late_record_counts(stage, caplog)


async def test_records_of_ticks_that_postgres_has_lost_under_a_living_owner_do_not_count_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = hold_records(stage, monkeypatch)
    server, _, _ = stage.start_server()
    stage.start_worker()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    before = stage.store.real.dump()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    stage.store.real.restore(before)
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.ended(EXECUTION)
    await stage.pass_time(2)
    release()
    await expect_no_late_record_counts(stage, caplog)


class FrozenAtRecords(FaultInjector):
    """Freezes its host when it is about to publish records."""

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "log.publish_decided":
            host.freeze()


async def test_records_that_a_zombie_publishes_after_a_takeover_are_there_by_its_successor(stage: Stage) -> None:
    zombie, host, _ = stage.start_server(stage.host("server", FrozenAtRecords()))
    await stage.until(lambda: len(zombie.ownership) == PARTITIONS)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: host.is_frozen)
    await stage.server()
    await stage.ended(EXECUTION)
    await stage.pass_time(2)
    host.injector = FaultInjector()
    host.thaw()
    await stage.pass_time(2)
    assert [record.epoch for record in stage.records()][-1] == 1
    assert await stage.rebuilt_differences() == []
    assert list(stage.effects.values()) == [1]


def test_a_server_that_knows_no_fences_reads_one_as_a_record_without_entries() -> None:
    body = raised(None, 0, partition=PARTITION, epoch=2, owner="new")
    assert isinstance(body, bytes)
    record = codec.decode_record(body)
    assert (record.entries, record.tick, record.epoch, record.format) == ([], 0, 2, 1)


def test_a_fence_names_a_bounded_number_of_those_before_it() -> None:
    body: bytes | None = None
    for epoch in range(2, 3 * MOST_KEPT):
        fence = raised(body, epoch, partition=PARTITION, epoch=epoch, owner="new")
        assert isinstance(fence, bytes)
        body = fence
    assert [fence.epoch for fence in places_of(body, 3 * MOST_KEPT)][-2:] == [3 * MOST_KEPT - 2, 3 * MOST_KEPT - 1]
    assert len(places_of(body, 3 * MOST_KEPT)) == MOST_KEPT + 1
