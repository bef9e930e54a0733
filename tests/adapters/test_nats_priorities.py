"""Priorities of a pool over a real nats-server: new ones, lost consumers, older workers, and what a worker requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from command_sources import next_of, serve_queues
from nats_proxy import LossyProxy

from nats_process import NatsServer
from noetl_stream.adapters.nats.commands import priority_requests
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.commands.pool_consumer import consumer_of
from noetl_stream.adapters.nats.commands.priority_requests import PriorityRequests
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.protocol import Status
from noetl_stream.ports.streams.command_queue import CommandSource
from noetl_stream.protocol.subjects import COMMANDS
from noetl_testkit.conformance.command_queue import (
    command,
    expect_present,
    issue,
    issue_and_see,
    source_of,
    take,
    waiting,
)
from noetl_testkit.waiting import TIMEOUT_S, until_it_is


async def names_of_consumers(connection: NatsConnection) -> list[str]:
    found: list[str] = msgspec.json.decode(await connection.api(f"CONSUMER.NAMES.{COMMANDS}"))["consumers"]
    return sorted(found)


async def filters_of(connection: NatsConnection, pool: str) -> list[str]:
    answer = msgspec.json.decode(await connection.api(f"CONSUMER.INFO.{COMMANDS}.{consumer_of(pool)}"))
    config = answer["config"]
    return config.get("filter_subjects") or [config["filter_subject"]]


@pytest.fixture
async def queue(connection: NatsConnection) -> AsyncIterator[NatsCommandQueue]:
    queue = await NatsCommandQueue.open(connection)
    yield queue
    await queue.close()


async def test_a_pool_has_a_consumer_for_each_priority_that_was_used(
    queue: NatsCommandQueue, connection: NatsConnection
) -> None:
    source = await source_of(queue, "default")
    assert await names_of_consumers(connection) == ["pool-default"]
    await issue(queue, *waiting(8, 1), *waiting(5, 1), *waiting(2, 1))
    assert await names_of_consumers(connection) == ["pool-default", "pool-default=2", "pool-default=8"]
    assert await filters_of(connection, "default") == ["noetl.commands.default.5.*.*"]
    await queue.add_pool("default")
    assert await filters_of(connection, "default") == ["noetl.commands.default.5.*.*"]
    await source.close()


async def test_an_idle_worker_hears_of_a_priority_that_is_new(queue: NatsCommandQueue) -> None:
    source = await source_of(queue, "default")
    source.request(4)
    await issue(queue, *waiting(9, 2))
    assert [one.body for one in await next_of(source, 2)] == [b"9.0", b"9.1"]
    await issue(queue, *waiting(0, 1), *waiting(5, 1))
    assert {one.body for one in await next_of(source, 2)} == {b"0.0", b"5.0"}
    await source.close()


async def test_commands_beyond_the_free_slots_are_returned_when_a_priority_begins(
    queue: NatsCommandQueue, connection: NatsConnection
) -> None:
    """The request that was left with the pool's consumer cannot be taken back."""
    source = await source_of(queue, "default")
    source.request(1)
    await issue(queue, *waiting(9, 1))
    assert [one.body for one in await next_of(source)] == [b"9.0"]
    await issue(queue, *waiting(5, 1))
    other = await source_of(queue, "default")
    (again,) = await take(other, 1)
    assert (again.body, again.num_delivered) == (b"5.0", 2)
    for one in (source, other):
        await one.close()


async def test_a_command_stored_before_its_priority_was_found_is_older_than_the_connection(
    queue: NatsCommandQueue,
) -> None:
    """So it is claimed: another worker may have been given it by the consumer of the pool."""
    source = await source_of(queue, "default")
    source.request(1)
    before_ms = source.connected_ms
    await issue(queue, *waiting(9, 1))
    (delivery,) = await next_of(source)
    assert before_ms <= delivery.stored_ms <= source.connected_ms
    await source.close()


async def test_a_worker_with_one_slot_is_given_one_at_a_time(queue: NatsCommandQueue) -> None:
    await queue.add_pool("default")
    await issue_and_see(queue, *(one for priority in range(10) for one in waiting(priority, 3)))
    source = await source_of(queue, "default")
    for left in reversed(range(30)):
        (delivery,) = await take(source, 1)
        delivery.ack()
        pools = await queue.pools()
        assert sum(pools[0].by_priority.values()) == left
    await source.close()


async def test_a_worker_with_one_slot_sees_every_priority_while_it_is_idle(queue: NatsCommandQueue) -> None:
    source = await source_of(queue, "default")
    await issue(queue, *(one for priority in (9, 5, 1) for one in waiting(priority, 1)))
    for one in [(await take(source, 1))[0] for _ in range(3)]:
        one.ack()
    for number, priority in enumerate((1, 9, 5, 1)):
        source.request(1)
        await issue(queue, command(f"later-{number}", priority=priority, body=b"%d" % priority))
        (delivery,) = await next_of(source)
        assert (delivery.body, delivery.num_delivered) == (b"%d" % priority, 1)
        delivery.ack()
    await source.close()


@pytest.mark.parametrize("deleted", [["pool-default=9"], ["pool-default"], ["pool-default=9", "pool-default"]])
async def test_a_consumer_that_was_deleted_is_made_again(
    queue: NatsCommandQueue, connection: NatsConnection, deleted: list[str]
) -> None:
    await serve_queues(queue, connection)
    source = await queue.open_source("default")
    await issue(queue, *waiting(9, 1), *waiting(5, 1))
    source.request(4)
    for one in await next_of(source, 2):
        one.ack()
    await expect_present(queue, [])
    for name in deleted:
        await connection.api(f"CONSUMER.DELETE.{COMMANDS}.{name}")
    await issue(queue, command("after", priority=9), command("beside"))
    came: dict[str, int] = {}
    async with asyncio.timeout(TIMEOUT_S):
        while came.keys() != {"after", "beside"}:
            # NATS may refuse a new consumer while it removes the folder of the old; servers reconcile again and again.
            await queue.present()
            with contextlib.suppress(TimeoutError):
                delivery = await asyncio.wait_for(source.next(), 0.2)
                name = delivery.subject.rpartition(".")[2]
                # What one consumer has delivered another may deliver again, or itself after its lease: it is claimed.
                assert name not in came or delivery.num_delivered > 1 or delivery.stored_ms < source.connected_ms
                came[name] = delivery.num_delivered
                source.request(1)
    await source.close()


async def test_a_request_whose_end_is_lost_keeps_no_priority_from_the_worker(
    proxy: LossyProxy, through_proxy: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that to a consumer which is deleted before it has read it."""
    queue = await NatsCommandQueue.open(through_proxy)
    await issue(queue, *waiting(9, 1), *waiting(5, 1))
    source = await source_of(queue, "default")
    await take(source, 2)
    source.request(4)
    proxy.loses = lambda frame: frame.startswith(b"HMSG _INBOX") and b".9 " in frame.partition(b"\r\n")[0]
    async with asyncio.timeout(TIMEOUT_S):
        await proxy.lost.wait()
    proxy.loses = lambda frame: False
    monkeypatch.setattr(priority_requests, "LOST_S", 0.2)
    await issue(queue, *waiting(9, 1, first=1))
    assert [one.body for one in await next_of(source)] == [b"9.1"]
    await source.close()
    await queue.close()


async def test_a_worker_has_one_request_at_a_time_with_each_priority(connection: NatsConnection) -> None:
    """What comes does not say which request it answers: of two, one might count as open for ever."""
    requests = PriorityRequests(connection, {9: "pool-x=9", 5: "pool-x"}, "inbox", lambda: 0.0)

    def ask(count: int) -> int:
        assert requests.ask(count, 0, 1 << 40)
        return requests.credit

    def deliver(left: int) -> None:
        requests.count_delivery(f"$JS.ACK.{COMMANDS}.pool-x=9.1.1.1.1.{left}".encode(), 10)

    nothing = Status(404, "No Messages", {})
    assert ask(8) == 8 and requests.ends_request(b"inbox.9", nothing)  # nothing waits there,
    assert ask(8) == 8 and requests.ends_request(b"inbox.5", nothing)  # nor here:
    assert ask(8) == 2 + 2  # two are left with each.
    deliver(left=9)
    assert ask(7) == 1 + 2
    deliver(left=8)
    assert ask(6) == 4 + 2


async def test_commands_of_another_priority_have_spare_places_while_those_of_one_fill_the_slots(
    queue: NatsCommandQueue,
) -> None:
    """So long tasks of one namespace hold up no other, since servers place the other at another priority."""
    await queue.add_pool("default")
    source = await source_of(queue, "default")
    source.request(16)
    await issue(queue, *waiting(5, 40))
    await next_of(source, 16)
    await issue(queue, *waiting(6, 3))
    (first, _) = came = await next_of(source, 2)
    assert [(one.body, one.num_delivered) for one in came] == [(b"6.0", 1), (b"6.1", 1)]
    first.ack()
    assert [one.body for one in await next_of(source)] == [b"6.2"]
    assert {one.by_priority[5] for one in await queue.pools()} == {24}
    await source.close()


async def test_a_worker_of_few_slots_has_no_spare_place(queue: NatsCommandQueue) -> None:
    await queue.add_pool("default")
    source = await source_of(queue, "default")
    source.request(7)
    await issue(queue, *waiting(5, 7))
    full = await next_of(source, 7)
    await issue(queue, *waiting(6, 1))
    full[0].ack()
    source.request(1)
    assert [(one.body, one.num_delivered) for one in await next_of(source)] == [(b"6.0", 1)]
    await source.close()


async def test_priorities_outlive_a_restart_of_the_server(own_nats: NatsServer, own_connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(own_connection)
    await issue(queue, *waiting(9, 2), *waiting(1, 2))
    source = await source_of(queue, "default")
    source.request(1)
    (first,) = await next_of(source)
    assert first.body == b"9.0"
    own_nats.kill()
    own_nats.start()
    came: set[bytes] = set()
    while not came >= {b"9.1", b"1.0", b"1.1"}:
        source.request(1)
        came |= {one.body for one in await next_of(source)}
    await source.close()
    await queue.close()


async def make_as_version_0_3(connection: NatsConnection, pool: str) -> None:
    """The consumer of a pool as servers of version 0.3 make it."""
    name, pattern = f"pool-{pool}", f"noetl.commands.{pool}.>"
    config = {"durable_name": name, "ack_policy": "explicit", "max_waiting": 8192, "filter_subject": pattern}
    request = {"stream_name": COMMANDS, "config": config}
    await connection.api(f"CONSUMER.CREATE.{COMMANDS}.{name}.{pattern}", request)


async def test_a_pool_with_older_workers_alone_has_one_priority_until_a_newer_one_comes(
    queue: NatsCommandQueue, connection: NatsConnection
) -> None:
    await make_as_version_0_3(connection, "default")
    await serve_queues(queue, connection)
    await issue(queue, command("old", priority=9))
    assert await names_of_consumers(connection) == ["pool-default"]
    source = await queue.open_source("default")
    await issue(queue, command("new", priority=9))
    assert await names_of_consumers(connection) == ["pool-default", "pool-default=9"]
    taken = [(await take(source, 1))[0].subject.split(".")[3:] for _ in range(2)]
    assert sorted(taken) == [["5", "run-1", "old"], ["9", "run-1", "new"]]
    await source.close()


async def test_commands_under_the_subjects_of_earlier_versions_are_delivered(
    queue: NatsCommandQueue, connection: NatsConnection
) -> None:
    for subject in ("noetl.commands.default.run-2.c2", "noetl.commands.default.5.run-3.c3"):
        await connection.client.request(subject, b"{}")
    await issue(queue, command("c9", priority=9))
    assert await filters_of(connection, "default") == ["noetl.commands.default.5.*.*", "noetl.commands.default.*.*"]
    source = await source_of(queue, "default")
    first, *_ = await take(source, 3)
    assert first.subject.endswith(".c9")
    assert {name.rpartition("-")[2] for name in await queue.present()} == {"c9", "c2", "c3"}
    await source.close()


async def test_an_older_server_does_not_join_what_was_split(
    queue: NatsCommandQueue, connection: NatsConnection
) -> None:
    await issue(queue, *waiting(9, 1))
    with pytest.raises(Exception, match="not unique on workqueue"):
        await make_as_version_0_3(connection, "default")
    assert await filters_of(connection, "default") == ["noetl.commands.default.5.*.*"]


async def requests_for(queue: NatsCommandQueue, source: CommandSource, priorities: list[int], first: int) -> int:
    """How many requests a worker with 64 slots sends for 400 commands that wait at these priorities."""
    each, slots = 400 // len(priorities), 64
    await issue(queue, *(one for priority in priorities for one in waiting(priority, each, first)))
    sent: Counter[str] = Counter()
    wire = source._connection.wire  # type: ignore[attr-defined]  # noqa: SLF001
    send = wire.send

    def count(subject: str, *words: object) -> None:
        sent["NEXT" if ".MSG.NEXT." in subject else "other"] += 1
        send(subject, *words)

    wire.send = count
    try:
        owed, free = 0, slots
        for _ in range(each * len(priorities)):
            if owed == 0 or free >= slots // 4:
                source.request(free)
                owed, free = owed + free, 0
            (delivery,) = await next_of(source)
            delivery.ack()
            owed, free = owed - 1, free + 1
    finally:
        wire.send = send
    await until_it_is({}, queue.present)
    return sent["NEXT"]


async def test_a_worker_sends_few_more_requests_for_three_priorities_than_for_one(queue: NatsCommandQueue) -> None:
    source = await source_of(queue, "default")
    plain = await requests_for(queue, source, [5], 0)
    await requests_for(queue, source, [9, 5, 1], 1000)
    several = await requests_for(queue, source, [9, 5, 1], 2000)
    assert several <= 4 * plain
    await source.close()
