"""The event log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from noetl_stream.adapters.memory.bus import Line, MemoryBus, MessageIds
from noetl_stream.errors import ReaderBroken
from noetl_stream.model.ids import partition_count, partition_of
from noetl_stream.ports.streams.event_log import DecidedMessage, HeldMessages, ReportedMessage
from noetl_stream.protocol import subjects
from noetl_stream.protocol.log_fences import FencePlace, places_of, raised, stored_again


class StoredMessage(NamedTuple):
    """A message of the log: an input or a journal record."""

    message: ReportedMessage
    is_input: bool
    message_id: str


class MemoryEventReader:
    """:class:`~noetl_stream.ports.streams.event_log.EventReader` in memory."""

    def __init__(
        self,
        log: MemoryEventLog,
        line: Line,
        partitions: frozenset[int],
        after: int,
        records: bool = False,
        bodies: bool = True,
    ) -> None:
        self.high_water = after
        self.contact_s = line.clock.monotonic_s()
        self._log = log
        self._line = line
        self._partitions = partitions
        self._records = records
        self._bodies = bodies
        self._broken: str | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def held_bytes(self) -> int:
        return 0  # unreturned messages are still in the log

    @property
    def received(self) -> int:
        return self.high_water

    @property
    def pending(self) -> int:
        above = self._log.held_above(self.high_water)
        return sum(one.is_input and one.message.partition in self._partitions for one in above)

    async def next_batch(self, limit: int) -> list[ReportedMessage]:
        while True:
            if self._broken is not None:
                raise ReaderBroken(self._broken)
            self.contact_s = self._line.clock.monotonic_s()
            batch = self._read(limit)
            if batch:
                return batch
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self) -> None:
        self.break_off("it was closed")
        self._log.forget_reader(self)

    def look(self) -> None:
        """Wakes the reader after the log has grown, or the broker has sent a heartbeat."""
        if self._broken is not None or self._log.deaf:
            return
        self.contact_s = self._line.clock.monotonic_s()
        if self._found_at(self.high_water) is None:
            self.high_water = max(self.high_water, self._log.end)
        else:
            self._wake()

    def break_off(self, reason: str) -> None:
        """Breaks the reader for good."""
        if self._broken is None:
            self._broken = reason
            self._wake()

    def _read(self, limit: int) -> list[ReportedMessage]:
        batch: list[ReportedMessage] = []
        while len(batch) < limit and (found := self._found_at(self.high_water)) is not None:
            batch.append(found)
            self.high_water = found.sequence
        if self._found_at(self.high_water) is None:
            self.high_water = max(self.high_water, self._log.end)
        return batch

    def _found_at(self, after: int) -> ReportedMessage | None:
        for sequence in range(max(after, self._log.trimmed) + 1, self._log.end + 1):
            stored = self._log.stored[sequence - 1]
            is_wanted = (stored.is_input or self._records) and stored.message.partition in self._partitions
            if is_wanted and sequence not in self._log.lost:
                message, message_id = stored.message, stored.message_id
                return message if self._bodies else replace(message, body=b"", message_id=message_id)
        return None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MemoryEventLog:
    """:class:`~noetl_stream.ports.streams.event_log.EventLog` in memory; one object serves all roles of a test."""

    def __init__(self, line: Line, bus: MemoryBus) -> None:
        self._line = line
        self._bus = bus
        self._stored: list[StoredMessage] = []
        self._message_ids = MessageIds(line.clock)
        self._readers: list[MemoryEventReader] = []
        self.deaf = False
        """Whether open readers receive no messages, and do not notice."""
        self.trimmed = 0
        """The sequence of the last trimmed message, which :attr:`stored` still has."""
        self.lost: set[int] = set()
        """The sequences of lost messages, which :attr:`stored` still has."""
        line.on_lost(lambda: self.break_readers("the broker was stopped"))

    async def publish_request(self, execution_id: str, message_id: str, body: bytes) -> int:
        subject = subjects.requested(execution_id)
        stored = self._store_input(subject, execution_id, message_id, body)
        if stored in self.lost:
            stored = self._store_input(subject, execution_id, f"{message_id}.{stored}", body)
        return stored

    async def publish_report(self, execution_id: str, pool: str, message_id: str, body: bytes) -> int:
        return self._store_input(subjects.reported(execution_id, pool), execution_id, message_id, body)

    async def publish_again(self, execution_id: str, message_id: str, body: bytes) -> int:
        return self._store_input(subjects.requeued(execution_id), execution_id, message_id, body)

    def publish_decided(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.decided, messages)

    def publish_checkpoints(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.checkpoint, messages)

    def _publish_held(self, named: Callable[[int, str], str], messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        def store() -> int:
            last = 0
            for one in messages:
                subject = named(one.partition, one.execution_id)
                stored = self._store(subject, one.partition, one.execution_id, one.message_id, one.body, is_input=False)
                last = max(last, stored)
            return last

        return self._line.hold(store)

    async def open_reader(
        self, partitions: Collection[int], after: int, records: bool = False, bodies: bool = True
    ) -> MemoryEventReader:
        self._line.check()
        reader = MemoryEventReader(self, self._line, frozenset(partitions), after, records, bodies)
        self._readers.append(reader)
        reader.look()
        return reader

    async def last_sequence(self) -> int:
        self._line.check()
        return self.end

    async def first_sequence(self) -> int:
        self._line.check()
        held = self.held_above(0)
        return held[0].message.sequence if held else self.end + bool(self.end)

    async def held(self) -> HeldMessages:
        return HeldMessages(await self.first_sequence(), self.end, len(self.held_above(0)))

    async def stored_bytes(self) -> int:
        self._line.check()
        return sum(len(one.message.body) for one in self.held_above(0))

    async def trim(self, through: int) -> None:
        self._line.check()
        for partition in range(partition_count()):
            sequence, body = self._last_fence(partition)
            if body is not None and sequence <= through:
                self._store_fence(partition, stored_again(body, sequence, through))
        self.trimmed = max(self.trimmed, min(through, self.end))

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> Collection[int]:
        self._line.check()
        return {partition for partition, epoch in epochs.items() if self._fence(partition, epoch, owner)}

    def _fence(self, partition: int, epoch: int, owner: str) -> bool:
        sequence, body = self._last_fence(partition)
        wanted = raised(body, sequence, partition, epoch, owner)
        if isinstance(wanted, bytes):
            self._store_fence(partition, wanted)
        return bool(wanted)

    async def fences(self, partition: int) -> Sequence[FencePlace]:
        self._line.check()
        sequence, body = self._last_fence(partition)
        return places_of(body, sequence)

    def _last_fence(self, partition: int) -> tuple[int, bytes | None]:
        subject = subjects.log_fence(partition)
        held = (one.message for one in reversed(self.held_above(0)) if one.message.subject == subject)
        return next(((one.sequence, one.body) for one in held), (0, None))

    def _store_fence(self, partition: int, body: bytes) -> None:
        message_id = f"fence-{self.end}"
        self._store(subjects.log_fence(partition), partition, subjects.FENCE_ID, message_id, body, is_input=False)

    async def beyond(self, cursors: Mapping[int, int]) -> dict[int, int]:
        self._line.check()
        counts = dict.fromkeys(cursors, 0)
        for message, is_input, _ in self.held_above(0):
            cursor = cursors.get(message.partition)
            if is_input and cursor is not None and message.sequence > cursor:
                counts[message.partition] += 1
        return counts

    async def last_decided(self, partition: int) -> tuple[int, bytes] | None:
        self._line.check()
        held = (one.message for one in reversed(self.held_above(0)) if one.message.partition == partition)
        return next(((one.sequence, one.body) for one in held if one.subject.endswith(".decided")), None)

    async def next_decided(self, partition: int, after: int) -> tuple[int, bytes] | None:
        self._line.check()
        above = (one.message for one in self.held_above(after) if one.message.partition == partition)
        return next(((one.sequence, one.body) for one in above if one.subject.endswith(".decided")), None)

    async def last_of(self, partition: int) -> int:
        self._line.check()
        held = reversed(self.held_above(0))
        own = (one.message.sequence for one in held if one.message.partition == partition)
        return next(own, 0)

    async def stored_at(self, sequence: int) -> int | None:
        self._line.check()
        is_held = self.trimmed < sequence <= self.end and sequence not in self.lost
        return self._stored[sequence - 1].message.at_ms if is_held else None

    async def verify(self) -> None:
        self._line.check()

    @property
    def end(self) -> int:
        """The sequence of the last message."""
        return len(self._stored)

    @property
    def stored(self) -> Sequence[StoredMessage]:
        """Returns all messages in order, for tests."""
        return self._stored

    def held_above(self, sequence: int) -> Sequence[StoredMessage]:
        """Returns the messages above this sequence that are neither trimmed nor lost."""
        above = self._stored[max(sequence, self.trimmed) :]
        return above if not self.lost else [one for one in above if one.message.sequence not in self.lost]

    def break_readers(self, reason: str = "the test broke it") -> None:
        """Breaks all open readers, like a reconnect."""
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.break_off(reason)

    def heartbeat(self) -> None:
        """Sends a heartbeat to all open readers."""
        for reader in self._readers:
            reader.look()

    def forget_reader(self, reader: MemoryEventReader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)

    def _store_input(self, subject: str, execution_id: str, message_id: str, body: bytes) -> int:
        self._line.check()
        return self._store(subject, partition_of(execution_id), execution_id, message_id, body, is_input=True)

    def _store(
        self, subject: str, partition: int, execution_id: str, message_id: str, body: bytes, *, is_input: bool
    ) -> int:
        known = self._message_ids.find(message_id)
        self._bus.deliver(subject, body, "")
        if known is not None:
            return known
        sequence = self.end + 1
        message = ReportedMessage(sequence, self._line.stamp_ms(), partition, execution_id, bytes(body), subject)
        self._stored.append(StoredMessage(message, is_input, message_id))
        self._message_ids.add(message_id, sequence)
        for reader in list(self._readers):
            reader.look()
        return sequence
