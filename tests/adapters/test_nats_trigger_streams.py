"""Streams of a user's own that keep only what is not acknowledged: read on, and never made to forget (ADR 28)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.trigger_streams import NatsTriggerStreams
from noetl_stream.model.aggregates import StreamFilter, StreamPlace
from noetl_stream.ports.streams.trigger_streams import StreamConsumer, StreamWanted
from noetl_testkit.conformance.trigger_streams import read, sequences

WANTED = StreamWanted(
    filter=StreamFilter(stream="JOBS", subject="jobs.a"), consumer="noetl-a", trigger="shop/a", from_ms=0
)


@pytest.fixture(params=["workqueue", "interest"])
async def retention(connection: NatsConnection, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    config = {"name": "JOBS", "subjects": ["jobs.*"], "retention": request.param}
    await connection.api("STREAM.CREATE.JOBS", config)
    yield request.param
    await connection.api("STREAM.DELETE.JOBS")


async def opened(
    connection: NatsConnection, folded: int = 0, made: str = "", subject: str = "jobs.a"
) -> StreamConsumer:
    wanted = replace(WANTED, filter=replace(WANTED.filter, subject=subject))
    place = StreamPlace("JOBS", made, folded) if folded else None
    return await NatsTriggerStreams(connection, SystemClock()).open(replace(wanted, folded=place))


async def test_an_acknowledged_message_is_removed_and_the_next_ones_are_read(
    connection: NatsConnection, retention: str
) -> None:
    jetstream = connection.client.jetstream()
    first = await opened(connection)
    for _ in range(3):
        await jetstream.publish("jobs.a", b"")
    batch = await read(first, 3)
    await first.acknowledge(batch[:1])
    await first.close()
    # Its subject has changed, and Postgres was restored: to make the consumer anew would delete what nobody has read.
    await jetstream.publish("jobs.a", b"")
    second = await opened(connection, subject="jobs.*")
    assert sequences(await read(second, 3)) == [2, 3, 4]
    await second.close()


async def test_a_work_queue_takes_no_second_trigger_on_the_same_subjects(
    connection: NatsConnection, retention: str
) -> None:
    await (await opened(connection)).close()
    other = NatsTriggerStreams(connection, SystemClock()).open(replace(WANTED, consumer="noetl-b"))
    if retention == "interest":
        await (await other).close()
        return
    with pytest.raises(ApiRefused, match="filtered consumer not unique"):
        await other
