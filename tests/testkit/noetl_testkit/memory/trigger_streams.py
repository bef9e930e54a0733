"""The streams that triggers read, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

import msgspec

from noetl_stream.adapters.memory.bus import Line
from noetl_stream.concurrency import result_until
from noetl_stream.errors import ReaderBroken, StoreMissing
from noetl_stream.ports.streams.trigger_streams import MAX_UNACKNOWLEDGED, ReadMessage, StreamWanted
from noetl_stream.trigger.stream_messages import MAX_MESSAGE_BYTES, TriggerMessage, subject_matches


class _Consumer(msgspec.Struct):
    wanted: StreamWanted
    starts_at: int
    acknowledged: set[int] = msgspec.field(default_factory=set)
    reader: int = 0


class _Stream(msgspec.Struct):
    made: str
    last: int = 0
    messages: dict[int, TriggerMessage] = msgspec.field(default_factory=dict)
    consumers: dict[str, _Consumer] = msgspec.field(default_factory=dict)
    grown: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def left(self, consumer: _Consumer) -> list[TriggerMessage]:
        pattern = consumer.wanted.filter.subject
        return [
            one
            for sequence, one in self.messages.items()
            if sequence >= consumer.starts_at
            and sequence not in consumer.acknowledged
            and subject_matches(pattern, one.subject)
        ]


class MemoryTriggerStreams:
    """:class:`~noetl_stream.ports.streams.trigger_streams.TriggerStreams` in memory, with the actions of the streams'
    users.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self._streams: dict[str, _Stream] = {}
        self._made = count(1)
        self.readers = count(1)

    # --- the user's side ----------------------------------------------------------------------------------------------

    def make(self, stream: str) -> None:
        self._streams[stream] = _Stream(made=f"made {next(self._made)}")

    def delete(self, stream: str) -> None:
        self._streams.pop(stream).grown.set()

    def publish(self, stream: str, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        found, given = self._streams[stream], dict(headers or {})
        found.last += 1
        size = len(body) + sum(len(name) + len(text) for name, text in given.items())
        fits = size <= MAX_MESSAGE_BYTES
        found.messages[found.last] = TriggerMessage(
            stream=stream,
            sequence=found.last,
            subject=subject,
            at_ms=self.line.stamp_ms(),
            size=size,
            body=body if fits else b"",
            headers=given if fits else {},
        )
        found.grown.set()
        return found.last

    def purge(self, stream: str) -> None:
        self._streams[stream].messages.clear()

    async def left(self, stream: str, consumer: str) -> int:
        """Returns how many messages a consumer has not acknowledged."""
        found = self._stream_named(stream)
        return len(found.left(found.consumers[consumer]))

    # --- the port -----------------------------------------------------------------------------------------------------

    async def open(self, wanted: StreamWanted) -> MemoryStreamConsumer:
        stream = self._stream_named(wanted.filter.stream)
        folded = wanted.folded.sequence if wanted.folded is not None and wanted.folded.made == stream.made else 0
        known = stream.consumers.get(wanted.consumer)
        if known is None:
            later = [one.sequence for one in stream.messages.values() if one.at_ms >= wanted.from_ms]
            starts_at = folded + 1 if folded else min(later, default=stream.last + 1)
            known = stream.consumers[wanted.consumer] = _Consumer(wanted, starts_at)
        known.wanted = wanted
        known.acknowledged = {one for one in known.acknowledged if one <= folded}
        known.reader = next(self.readers)
        return MemoryStreamConsumer(self, stream, known)

    async def remove(self, stream: str, consumer: str) -> None:
        self.line.check()
        found = self._streams.get(stream)
        if found is not None and found.consumers.pop(consumer, None) is not None:
            found.grown.set()

    async def consumers(self, stream: str) -> list[str]:
        return sorted(self._streams[stream].consumers) if stream in self._streams else []

    def _stream_named(self, stream: str) -> _Stream:
        self.line.check()
        if stream not in self._streams:
            raise StoreMissing(f"stream {stream} does not exist")
        return self._streams[stream]

    def is_there(self, stream: _Stream, consumer: _Consumer) -> bool:
        """Returns whether stream and consumer both still exist."""
        return stream in self._streams.values() and consumer in stream.consumers.values()


class MemoryStreamConsumer:
    """:class:`~noetl_stream.ports.streams.trigger_streams.StreamConsumer` in memory. Two readers of one break each
    other.
    """

    def __init__(self, streams: MemoryTriggerStreams, stream: _Stream, consumer: _Consumer) -> None:
        self._streams = streams
        self._stream = stream
        self._consumer = consumer
        self._reader = consumer.reader
        self._delivered: set[int] = set()

    @property
    def made(self) -> str:
        return self._stream.made

    async def next_batch(self, limit: int, wait_s: float) -> list[ReadMessage]:
        found = self._next_messages(limit)
        if not found:
            self._stream.grown.clear()
            await result_until(self._stream.grown.wait(), self._streams.line.clock.sleep(wait_s))
            found = self._next_messages(limit)
        return found

    def _next_messages(self, limit: int) -> list[ReadMessage]:
        self._check()
        left = [one for one in self._stream.left(self._consumer) if one.sequence not in self._delivered]
        room = MAX_UNACKNOWLEDGED - len(self._delivered)
        taken = left[: min(limit, room)]
        self._delivered |= {one.sequence for one in taken}
        return [ReadMessage(one, len(left) - place, b"") for place, one in enumerate(taken, start=1)]

    async def acknowledge(self, messages: Sequence[ReadMessage]) -> None:
        sequences = {one.message.sequence for one in messages}
        self._delivered -= sequences
        self._consumer.acknowledged |= sequences

    async def pending(self) -> int:
        self._check()
        return len(self._stream.left(self._consumer))

    async def close(self) -> None:
        self._delivered.clear()

    def _check(self) -> None:
        self._streams.line.check()
        if not self._streams.is_there(self._stream, self._consumer):
            raise ReaderBroken("the consumer is gone")
        if self._consumer.reader != self._reader:
            raise ReaderBroken("another reads from it")
