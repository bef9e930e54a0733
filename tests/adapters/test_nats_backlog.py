"""A backlog of large messages: what has not been read yet stays with NATS, whatever its size (PROTOCOL §7)."""

from __future__ import annotations

import asyncio

import msgspec

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.commands.command_source import MAX_HELD_BYTES
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import BATCH_BYTES, MAX_READ_AHEAD_BYTES, NatsEventLog
from noetl_stream.adapters.nats.pull import ENVELOPE_BYTES
from noetl_stream.ports.streams.command_queue import Delivery
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_testkit.conformance.command_queue import command, issue, source_of
from noetl_testkit.conformance.event_log import ALL
from noetl_testkit.waiting import TIMEOUT_S, until

LARGE = b'"' + b"x" * 900_000 + b'"'
MESSAGES = 60


async def publish_large(connection: NatsConnection, count: int = MESSAGES) -> NatsEventLog:
    log = await NatsEventLog.open(connection, SystemClock())
    for number in range(count):
        await log.publish_request(f"run-{number}", f"request-{number}", LARGE)
    return log


async def sent_to_reader(connection: NatsConnection) -> int:
    """How many messages NATS has sent to the only reader."""
    listed = msgspec.json.decode(await connection.api(f"CONSUMER.LIST.{EVENTS}"))
    (consumer,) = listed["consumers"]
    return int(consumer["delivered"]["consumer_seq"])


async def sent_to_pool(connection: NatsConnection) -> int:
    """How many commands NATS has sent to the pool.

    What it has not seen acknowledged would be more: it reads acknowledgements in a turn of their own.
    """
    consumer = msgspec.json.decode(await connection.api(f"CONSUMER.INFO.{COMMANDS}.pool-default"))
    return int(consumer["delivered"]["consumer_seq"])


async def test_a_reader_requests_a_bounded_number_of_bytes_ahead(connection: NatsConnection) -> None:
    log = await publish_large(connection)
    reader = await log.open_reader(ALL, 0)
    window = max(MAX_READ_AHEAD_BYTES, 2 * (connection.max_payload + ENVELOPE_BYTES))
    read = 0
    async with asyncio.timeout(TIMEOUT_S):
        while read < MESSAGES:
            batch = await reader.next_batch(512)
            assert sum(len(message.body) for message in batch) <= BATCH_BYTES + len(LARGE)
            read += len(batch)
            assert (await sent_to_reader(connection) - read) * len(LARGE) <= window
    assert reader.high_water == MESSAGES
    await reader.close()


async def test_a_reader_that_holds_enough_does_not_count_as_silent(connection: NatsConnection) -> None:
    log = await publish_large(connection)
    reader = await log.open_reader(ALL, 0)
    await reader.next_batch(1)
    held_back = SystemClock().monotonic_s()
    await until(lambda: reader.contact_s > held_back + 0.2)
    assert await sent_to_reader(connection) < MESSAGES
    await reader.close()


async def test_the_largest_message_that_nats_takes_is_read(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    body = b"x" * (connection.max_payload - 512)
    for number in range(3):
        await log.publish_request("run-1", f"request-{number}", body)
    reader = await log.open_reader(ALL, 0)
    async with asyncio.timeout(TIMEOUT_S):
        assert [len(await reader.next_batch(512)) for _ in range(3)] == [1, 1, 1]
    await reader.close()


async def test_small_messages_after_large_ones_are_read_at_full_width(connection: NatsConnection) -> None:
    log = await publish_large(connection, 20)
    await asyncio.gather(*(log.publish_request("run-1", f"small-{number}", b"{}") for number in range(5_000)))
    reader = await log.open_reader(ALL, 0)
    read = 0
    async with asyncio.timeout(TIMEOUT_S):
        while read < 5_020:
            read += len(await reader.next_batch(512))
    assert reader.high_water == 5_020
    await reader.close()


async def test_a_worker_holds_a_bounded_number_of_bytes_of_commands(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    for number in range(MESSAGES):
        await issue(queue, command(f"command-{number}", body=LARGE))
    source = await source_of(queue, "default")
    source.request(MESSAGES)
    held: list[Delivery] = []
    acknowledged = 0
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(MESSAGES):
            if (len(held) + 1) * len(LARGE) > MAX_HELD_BYTES // 2:
                held.pop(0).ack()
                acknowledged += 1
            held.append(await source.next())
            assert (await sent_to_pool(connection) - acknowledged) * len(LARGE) <= MAX_HELD_BYTES
    await source.close()
