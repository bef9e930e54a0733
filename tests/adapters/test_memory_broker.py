"""What the broker in memory does at command: time, restarts, losses."""

from __future__ import annotations

import asyncio

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import BlobMissing, ReaderBroken, Unreachable
from noetl_testkit.conformance.command_queue import command, issue, take
from noetl_testkit.conformance.event_log import ALL, decided, read
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.waiting import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> StagedBroker:
    return StagedBroker(clock)


async def test_sleepers_wake_in_order_when_time_passes(clock: ManualClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic_s()))

    sleeping = [asyncio.create_task(sleep(name, seconds)) for name, seconds in (("b", 2.0), ("a", 1.0), ("c", 9.0))]
    await until(lambda: clock.sleepers == 3)
    start_ms = clock.now_ms()
    clock.advance(5)
    await asyncio.gather(*sleeping[:2])
    assert woken == [("a", 5.0), ("b", 5.0)]
    assert clock.now_ms() == start_ms + 5000
    assert clock.sleepers == 1
    sleeping[2].cancel()


def test_a_seed_always_gives_the_same_random_numbers() -> None:
    one, other, third = ManualClock(seed=1), ManualClock(seed=1), ManualClock(seed=2)
    draws = [one.random_bytes(70), one.random_bytes(8)]
    assert draws == [other.random_bytes(70), other.random_bytes(8)]
    assert len(draws[0]) == 70
    assert third.random_bytes(70) != draws[0]


async def test_a_lease_ends_when_its_time_has_passed_and_not_before(broker: StagedBroker, clock: ManualClock) -> None:
    queue = broker.command_queue
    await issue(queue, command("c1"))
    source = await queue.open_source("default")
    (first,) = await take(source, 1)
    source.request(1)
    clock.advance(29)
    first.in_progress()
    clock.advance(29)
    second = asyncio.create_task(source.next())
    await asyncio.sleep(0)
    assert not second.done()
    clock.advance(1)
    assert (await second).num_delivered == 2


async def test_a_command_returned_with_a_delay_is_delivered_after_it(broker: StagedBroker, clock: ManualClock) -> None:
    queue = broker.command_queue
    await issue(queue, command("c1"))
    source = await queue.open_source("default")
    (first,) = await take(source, 1)
    first.nak(5)
    source.request(1)
    again = asyncio.create_task(source.next())
    await asyncio.sleep(0)
    assert not again.done()
    clock.advance(5)
    assert (await again).num_delivered == 2


async def test_dead_workers_leases_can_be_ended(broker: StagedBroker) -> None:
    queue = broker.command_queue
    await issue(queue, command("c1"), command("c2"))
    source = await queue.open_source("default")
    await take(source, 2)
    await source.close()
    queue.forget_unacked()
    other = await queue.open_source("default")
    assert [delivery.num_delivered for delivery in await take(other, 2)] == [2, 2]
    queue.forget_deliveries()
    assert [delivery.num_delivered for delivery in await take(other, 2)] == [1, 1]


async def test_a_lost_command_is_gone(broker: StagedBroker) -> None:
    await issue(broker.command_queue, command("c1"), command("c2"))
    broker.command_queue.lose("c1")
    assert set(await broker.command_queue.present()) == {"c2"}


async def test_message_ids_are_remembered_for_two_minutes(broker: StagedBroker, clock: ManualClock) -> None:
    log = broker.event_log
    await log.publish_request("run-1", "request-1", b"{}")
    clock.advance(120)
    await log.publish_request("run-1", "request-1", b"{}")
    assert await log.last_sequence() == 1
    clock.advance(1)
    await log.publish_request("run-1", "request-1", b"{}")
    assert await log.last_sequence() == 2


async def test_a_restart_forgets_message_ids_and_breaks_readers(broker: StagedBroker) -> None:
    log = broker.event_log
    reader = await log.open_reader(ALL, 0)
    await log.publish_request("run-1", "request-1", b"{}")
    broker.restart()
    with pytest.raises(ReaderBroken):
        await reader.next_batch(1)
    await log.publish_request("run-1", "request-1", b"{}")
    assert len(await read(await log.open_reader(ALL, 0), 2)) == 2


async def test_while_stopped_nothing_answers_and_what_must_be_stored_is_held(broker: StagedBroker) -> None:
    log, queue = broker.event_log, broker.command_queue
    source = await queue.open_source("default")
    connected_ms = source.connected_ms
    await issue(queue, command("c0"))
    (leased,) = await take(source, 1)
    broker.stop()
    leased.ack()
    for attempt in (
        log.publish_request("run-1", "request-1", b"{}"),
        log.last_sequence(),
        log.open_reader(ALL, 0),
        queue.present(),
        queue.open_source("default"),
        broker.blobs.get("key"),
    ):
        with pytest.raises(Unreachable):
            await attempt
    published = asyncio.ensure_future(log.publish_decided([decided("run-1", "0.1.1.a.0")]))
    issued = asyncio.ensure_future(issue(queue, command("c1")))
    await asyncio.sleep(0)
    assert not published.done()
    broker.start()
    await asyncio.gather(published, issued)
    assert await log.last_sequence() == 1
    assert set(await queue.present()) == {"c0", "c1"}
    assert source.connected_ms > connected_ms


async def test_a_lost_tail_is_missing_and_its_sequences_are_used_again(broker: StagedBroker) -> None:
    log = broker.event_log
    for number in range(3):
        await log.publish_request("run-1", f"request-{number}", b"%d" % number)
    log.lose_tail(2)
    assert await log.last_sequence() == 1
    assert await log.publish_request("run-1", "request-9", b"9") == 2


async def test_readers_stay_in_contact_while_time_passes(broker: StagedBroker, clock: ManualClock) -> None:
    reader = await broker.event_log.open_reader(ALL, 0)
    clock.advance(100)
    assert reader.contact_s == clock.monotonic_s()


async def test_a_lost_blob_is_missing(broker: StagedBroker) -> None:
    await broker.blobs.put("key", b"value")
    broker.blobs.lose("key")
    with pytest.raises(BlobMissing):
        await broker.blobs.get("key")


async def test_no_two_things_are_stored_at_the_same_time(broker: StagedBroker) -> None:
    for number in range(5):
        await broker.event_log.publish_request("run-1", f"request-{number}", b"{}")
    times = [stored.message.at_ms for stored in broker.event_log.stored]
    assert times == sorted(set(times))


async def test_a_question_waits_by_the_clock(broker: StagedBroker, clock: ManualClock) -> None:
    async def ignore(subject: str, body: bytes, reply: str) -> None:
        return

    await broker.bus.listen("noetl.ask.x", ignore)
    asking = asyncio.create_task(broker.bus.ask("noetl.ask.x", b"?", 2.0))
    await until(lambda: clock.sleepers == 1)
    clock.advance(2)
    assert await asking is None
