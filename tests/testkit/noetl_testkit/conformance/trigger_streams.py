"""Conformance of the port of streams that triggers read, as tests to inherit.

Fixtures: ``streams``, and ``user``, who makes streams and publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from noetl_stream.errors import ReaderBroken, StoreMissing
from noetl_stream.model.aggregates import StreamFilter, StreamPlace
from noetl_stream.ports.streams.trigger_streams import (
    MAX_UNACKNOWLEDGED,
    ReadMessage,
    StreamConsumer,
    StreamWanted,
    TriggerStreams,
)
from noetl_stream.trigger.stream_messages import MAX_MESSAGE_BYTES
from noetl_testkit.waiting import until_it_is

STREAM = "ORDERS"
FOR_LONG_S = 30.0
SHORTLY_S = 0.1


class StreamUser(Protocol):
    """Whoever owns the streams."""

    async def make(self, stream: str) -> None:
        """Makes a stream of the subjects ``orders.>``."""
        ...

    async def delete(self, stream: str) -> None: ...

    async def purge(self, stream: str) -> None: ...

    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None: ...


def wanted(consumer: str = "noetl-a", *, subject: str = ">", **more: Any) -> StreamWanted:
    filter = StreamFilter(stream=STREAM, subject=subject)
    return StreamWanted(**{"filter": filter, "consumer": consumer, "trigger": "shop/a", "from_ms": 0, **more})


async def read(consumer: StreamConsumer, count: int, limit: int = 10) -> list[ReadMessage]:
    found: list[ReadMessage] = []
    while len(found) < count:
        found += await consumer.next_batch(limit, FOR_LONG_S)
    return found


def sequences(messages: Sequence[ReadMessage]) -> list[int]:
    return [one.message.sequence for one in messages]


class TriggerStreamsConformance:
    @pytest.fixture(autouse=True)
    async def stream(self, user: StreamUser) -> None:
        await user.make(STREAM)

    async def test_messages_come_in_order_as_they_were_sent(self, streams: TriggerStreams, user: StreamUser) -> None:
        await user.publish("orders.paid", b"1", {"Kind": "a"})
        await user.publish("orders.sent", b"\xff\x00")
        consumer = await streams.open(wanted())
        first, second = await read(consumer, 2)
        message = first.message
        assert (message.stream, message.sequence, message.subject, message.body) == (STREAM, 1, "orders.paid", b"1")
        assert message.headers == {"Kind": "a"} and message.at_ms > 0
        assert (second.message.body, second.message.headers, second.pending) == (b"\xff\x00", {}, 0)
        await consumer.close()

    async def test_a_subject_chooses_and_a_batch_is_as_large_as_wanted(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for number in range(6):
            await user.publish(f"orders.{number % 2}.paid", b"%d" % number)
        consumer = await streams.open(wanted(subject="orders.1.*"))
        batch = await read(consumer, 1, limit=2)
        assert len(batch) <= 2
        assert sequences([*batch, *await read(consumer, 3 - len(batch))]) == [2, 4, 6]
        assert await consumer.next_batch(10, SHORTLY_S) == []
        await consumer.close()

    async def test_what_is_not_acknowledged_is_delivered_to_the_next_reader_before_what_follows(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for _ in range(4):
            await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        first = await read(consumer, 4)
        await consumer.acknowledge(first[:1])
        await consumer.close()
        await user.publish("orders.paid", b"")
        following = await streams.open(wanted(folded=StreamPlace(STREAM, consumer.made, 1)))
        assert sequences(await read(following, 4)) == [2, 3, 4, 5]
        await following.close()

    async def test_no_more_is_delivered_than_may_be_unacknowledged(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for _ in range(MAX_UNACKNOWLEDGED + 5):
            await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        first = await read(consumer, MAX_UNACKNOWLEDGED, limit=100)
        assert len(first) == MAX_UNACKNOWLEDGED
        assert await consumer.next_batch(100, SHORTLY_S) == []
        assert await consumer.pending() == MAX_UNACKNOWLEDGED + 5
        await consumer.acknowledge(first)
        assert sequences(await read(consumer, 5)) == [MAX_UNACKNOWLEDGED + one for one in range(1, 6)]
        await consumer.close()

    async def test_of_a_message_that_is_too_large_only_its_size_is_read(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        await user.publish("orders.paid", b"x" * (MAX_MESSAGE_BYTES + 1))
        consumer = await streams.open(wanted())
        [one] = await read(consumer, 1)
        assert one.message.size > MAX_MESSAGE_BYTES and one.message.body == b""
        await consumer.close()

    async def test_a_consumer_that_is_deleted_breaks_and_is_made_again_where_it_was(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for _ in range(3):
            await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        await consumer.acknowledge(await read(consumer, 3))
        await streams.remove(STREAM, "noetl-a")
        with pytest.raises(ReaderBroken):
            await consumer.next_batch(10, FOR_LONG_S)
        await consumer.close()
        await user.publish("orders.paid", b"")
        following = await streams.open(wanted(folded=StreamPlace(STREAM, consumer.made, 2)))
        assert sequences(await read(following, 2)) == [3, 4]
        await following.close()

    async def test_messages_that_a_restored_database_has_lost_are_delivered_again(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for _ in range(3):
            await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        await consumer.acknowledge(await read(consumer, 3))
        await until_it_is(0, consumer.pending)  # NATS takes acknowledgements without an answer
        await consumer.close()
        following = await streams.open(wanted(folded=StreamPlace(STREAM, consumer.made, 1)))
        assert sequences(await read(following, 2)) == [2, 3]
        await following.close()

    async def test_a_new_subject_holds_for_what_follows(self, streams: TriggerStreams, user: StreamUser) -> None:
        for subject in ("orders.paid", "orders.sent", "orders.paid"):
            await user.publish(subject, b"")
        consumer = await streams.open(wanted(subject="orders.paid"))
        batch = await read(consumer, 2)
        await consumer.acknowledge(batch[:1])
        await consumer.close()
        place = StreamPlace(STREAM, consumer.made, 1)
        following = await streams.open(wanted(subject="orders.sent", folded=place))
        assert sequences(await read(following, 1)) == [2]
        assert await following.next_batch(10, SHORTLY_S) == []
        await following.close()

    async def test_a_stream_that_is_made_again_is_another_and_read_from_its_beginning(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        await consumer.acknowledge(await read(consumer, 1))
        await user.delete(STREAM)
        with pytest.raises(ReaderBroken):
            await consumer.next_batch(10, FOR_LONG_S)
        await consumer.close()
        with pytest.raises(StoreMissing, match=f"stream {STREAM} does not exist"):
            await streams.open(wanted())
        await user.make(STREAM)
        await user.publish("orders.paid", b"new")
        following = await streams.open(wanted(folded=StreamPlace(STREAM, consumer.made, 1)))
        assert following.made != consumer.made
        [one] = await read(following, 1)
        assert (one.message.sequence, one.message.body) == (1, b"new")
        await following.close()

    async def test_what_was_purged_is_not_waited_for(self, streams: TriggerStreams, user: StreamUser) -> None:
        for _ in range(3):
            await user.publish("orders.paid", b"")
        consumer = await streams.open(wanted())
        assert len(await read(consumer, 3)) == 3
        await consumer.close()
        await user.purge(STREAM)
        await user.publish("orders.paid", b"")
        following = await streams.open(wanted())
        assert sequences(await read(following, 1)) == [4]
        await following.close()

    async def test_consumers_are_listed_and_removed_and_others_are_left_alone(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        for name in ("noetl-a", "noetl-b"):
            await (await streams.open(wanted(name))).close()
        assert await streams.consumers(STREAM) == ["noetl-a", "noetl-b"]
        await streams.remove(STREAM, "noetl-a")
        await streams.remove(STREAM, "noetl-a")
        await streams.remove("NO_SUCH_STREAM", "noetl-a")
        assert await streams.consumers(STREAM) == ["noetl-b"]
        assert await streams.consumers("NO_SUCH_STREAM") == []

    async def test_two_readers_of_one_consumer_do_not_both_go_on(
        self, streams: TriggerStreams, user: StreamUser
    ) -> None:
        first = await streams.open(wanted())
        assert await first.next_batch(10, SHORTLY_S) == []
        second = await streams.open(wanted())
        broken = 0
        for _ in range(3):
            for _ in range(20):
                await user.publish("orders.paid", b"")
            for one in (first, second):
                try:
                    await one.next_batch(5, SHORTLY_S)
                except ReaderBroken:
                    broken += 1
        assert broken
        await first.close()
        await second.close()
