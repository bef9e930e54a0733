"""When a reader must stop vouching for what it reads."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from nats_proxy import LossyProxy

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.errors import NotReady, ReaderBroken
from noetl_stream.ports.streams.event_log import EventReader
from noetl_stream.protocol.subjects import EVENTS
from noetl_testkit.conformance.event_log import ALL, read
from noetl_testkit.waiting import TIMEOUT_S, until, until_it_is


async def consumer_names(connection: NatsConnection) -> list[str]:
    answer = msgspec.json.decode(await connection.api(f"CONSUMER.NAMES.{EVENTS}"))
    return answer["consumers"] or []


async def broken_reason(reader: EventReader) -> str:
    """Reads on until the reader breaks; why it did."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await reader.next_batch(1)
            except ReaderBroken as error:
                return str(error)


async def test_a_deleted_consumer_breaks_the_reader(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    reader = await log.open_reader(ALL, 0)
    for name in await consumer_names(connection):
        await connection.api(f"CONSUMER.DELETE.{EVENTS}.{name}")
    assert await broken_reason(reader) == "the consumer is gone: 409 Consumer Deleted"


async def test_a_deleted_stream_breaks_the_reader_and_cannot_be_read_again(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock(), heartbeat_s=0.2)
    reader = await log.open_reader(ALL, 0)
    await connection.api(f"STREAM.DELETE.{EVENTS}")
    # The server may or may not tell a pull that waits; then the missing heartbeats do.
    assert await broken_reason(reader)
    with pytest.raises(NotReady, match="EVENTS does not exist"):
        await log.open_reader(ALL, 0)
    with pytest.raises(NotReady, match="EVENTS does not exist"):
        await log.last_sequence()


async def test_an_unanswered_pull_breaks_the_reader(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    for n in range(3):
        await log.publish_request("run-1", f"request-{n}", b"{}")
    reader = await log.open_reader(ALL, 0)
    await read(reader, 3)
    for name in await consumer_names(connection):
        await connection.api(f"CONSUMER.DELETE.{EVENTS}.{name}")
    reader.look()
    assert "consumer is gone" in await broken_reason(reader)


async def test_a_lost_message_is_noticed_with_the_next_one(proxy: LossyProxy, through_proxy: NatsConnection) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock())
    reader = await log.open_reader(ALL, 0)
    proxy.loses = lambda frame: frame.startswith(b"HMSG noetl.events.") and frame.endswith(b"second\r\n")
    for body in (b"first", b"second", b"third"):
        await log.publish_request("run-1", f"request-{body.decode()}", body)
    assert await broken_reason(reader) == "a gap: message 3 came after 1 of this reader"


async def test_a_lost_last_message_is_noticed_with_the_next_heartbeat(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock(), heartbeat_s=0.2)
    reader = await log.open_reader(ALL, 0)
    proxy.loses = lambda frame: frame.startswith(b"HMSG noetl.events.")
    sequence = await log.publish_request("run-1", "request-1", b"lost")
    assert await broken_reason(reader) == "a gap: 1 messages were sent to this reader, 0 arrived"
    assert reader.high_water < sequence


async def test_a_silent_server_breaks_the_reader(own_nats: NatsServer, own_connection: NatsConnection) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock(), heartbeat_s=0.2)
    reader = await log.open_reader(ALL, 0)
    own_nats.pause()
    assert "two heartbeats missed" in await broken_reason(reader)
    own_nats.resume()


async def test_a_subject_with_no_partition_of_ours_is_passed_over(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    reader = await log.open_reader(ALL, 0)
    for subject in (
        "noetl.events.abc.run-1.reported",
        "noetl.events.99.run-1.reported",
        "noetl.events.03.run-1.reported",
    ):
        await connection.client.jetstream().publish(subject, b"{}")
    mine = await log.publish_request("run-1", "request-1", b"{}")
    assert [message.sequence for message in await read(reader, 1)] == [mine] == [4]
    await reader.close()


async def test_an_idle_reader_stays_in_contact(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock(), heartbeat_s=0.2)
    reader = await log.open_reader(ALL, 0)
    opened_s = reader.contact_s
    waiting = asyncio.create_task(reader.next_batch(1))
    # Longer than it would take to break: several heartbeats must have come.
    await until(lambda: reader.contact_s >= opened_s + 0.7 or waiting.done())
    assert not waiting.done()
    await log.publish_request("run-1", "request-1", b"{}")
    assert len(await waiting) == 1
    await reader.close()


async def test_heartbeats_alone_move_high_water(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock(), heartbeat_s=0.2)
    reader = await log.open_reader([0], 0)
    quiet = await NatsEventLog.open(connection, SystemClock())
    last = await quiet.publish_request("run-1", "request-1", b"{}")
    await until(lambda: reader.high_water >= last)
    assert reader.high_water == last
    await reader.close()


async def test_a_closed_reader_leaves_no_consumer_behind(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    reader = await log.open_reader(ALL, 0)
    assert len(await consumer_names(connection)) == 1
    await reader.close()
    await until_it_is([], lambda: consumer_names(connection))


async def test_ten_thousand_messages_pass_a_reader_that_is_slow(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    reader = await log.open_reader(ALL, 0)
    published = asyncio.gather(*(log.publish_request(f"run-{n}", f"request-{n}", b"{}") for n in range(10_000)))
    sequences: list[int] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(sequences) < 10_000:
            sequences += [message.sequence for message in await reader.next_batch(97)]
            await asyncio.sleep(0)
    assert sequences == list(range(1, 10_001)) == sorted(await published)
    await reader.close()
