"""Reads EVENTS for the owned partitions: consumers that feed one queue.

A partition that is far behind the others at its takeover catches up on a reader of its own and delays no other
(PROTOCOL §2). A partition that returns is read by its new consumer alone: the old one has skipped messages owned by
another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from noetl_stream.concurrency import end_tasks
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.event_log import EventLog, EventReader, ReportedMessage
from noetl_stream.server.inputs.fair_queue import UnfoldedMessages, size_of

BATCH_MESSAGES = 512
MAX_READERS = 4

TAKE_BYTES = 8 * 1024 * 1024
"""The bytes of waiting messages beyond which :meth:`PartitionReader.take` returns no more."""


class Backlog:
    """The number of messages of EVENTS that a server has not read, determined without reading them.

    While nothing is read because the messages read before are not folded, it grows with EVENTS.
    """

    def __init__(self, reader: PartitionReader, log: EventLog) -> None:
        self._reader = reader
        self._log = log
        self._messages = 0
        self._received = -1
        self._last_sequence: int | None = None

    async def messages(self) -> int:
        """Returns the approximate number of messages.

        Raises:
            Unreachable: EVENTS does not answer.
        """
        received = self._reader.received
        if received != self._received or not self._reader.held_bytes:
            self._received, self._messages, self._last_sequence = received, self._reader.pending, None
            return self._messages
        before, self._last_sequence = self._last_sequence, await self._log.last_sequence()
        self._messages += 0 if before is None else max(0, self._last_sequence - before)
        return self._messages


@dataclass(slots=True, eq=False)
class PartitionConsumer:
    """A reader of EVENTS, and the number of its batches that are still queued."""

    reader: EventReader
    task: asyncio.Task[None] | None = None
    queued: int = 0
    queued_bytes: int = 0


Arrived = tuple[PartitionConsumer, list[ReportedMessage], int] | Exception | None
"""A batch of messages and its bytes, a reader's error, or ``None`` for a nudge."""


class PartitionReader:
    """Reads the owned partitions with one or more consumers. A broken one surfaces in :meth:`take`.

    Args:
        unfolded: The messages that were taken and are not folded.
    """

    def __init__(self, log: EventLog, clock: Clock, unfolded: UnfoldedMessages) -> None:
        self._log = log
        self._clock = clock
        self._unfolded = unfolded
        self._consumers: list[PartitionConsumer] = []
        self._consumer_of: dict[int, PartitionConsumer] = {}
        self._arrived: asyncio.Queue[Arrived] = asyncio.Queue(maxsize=8)
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_s = 0.0

    @property
    def is_open(self) -> bool:
        return bool(self._consumers)

    @property
    def is_full(self) -> bool:
        return len(self._consumers) >= MAX_READERS

    async def add(self, partitions: Collection[int], after: int) -> None:
        """Starts reading these partitions too, from the first message above ``after``."""
        consumer = PartitionConsumer(await self._log.open_reader(sorted(partitions), after))
        consumer.task = asyncio.create_task(self._run(consumer))
        self._consumers.append(consumer)
        self._consumer_of.update(dict.fromkeys(partitions, consumer))
        await self._close_idle()

    async def drop(self, partitions: Collection[int]) -> None:
        """Stops returning messages of these partitions."""
        for partition in partitions:
            self._consumer_of.pop(partition, None)
        self._unfolded.drop(partitions)
        await self._close_idle()

    def reads(self, partition: int) -> bool:
        return partition in self._consumer_of

    def nudge(self) -> None:
        """Makes :meth:`take` return early, for work other than a message."""
        if self._arrived.empty():
            self._arrived.put_nowait(None)

    async def take(self, timeout_s: float) -> list[ReportedMessage]:
        """Returns the arrived messages, fewer if those that wait are large, in order for each partition. Waits if there
        are none and none waits; returns none after ``timeout_s`` or earlier.

        Raises:
            ReaderBroken: a reader may have missed messages. Any other error of a reader is raised unchanged.
        """
        messages: list[ReportedMessage] = []
        size = self._unfolded.size
        if not self._unfolded and self._arrived.empty():
            self._set_alarm(timeout_s)
        arrived = self._next(size) if self._unfolded else await self._arrived.get()
        while arrived is not None:
            if isinstance(arrived, Exception):
                raise arrived
            consumer, batch, batch_size = arrived
            consumer.queued -= 1
            consumer.queued_bytes -= batch_size
            messages += [message for message in batch if self._consumer_of.get(message.partition) is consumer]
            size += batch_size
            arrived = self._next(size)
        return messages

    def _next(self, size: int) -> Arrived:
        """Returns the next arrived batch, if messages of ``size`` bytes leave room for it."""
        return self._arrived.get_nowait() if size < TAKE_BYTES and not self._arrived.empty() else None

    def folded_through(self) -> dict[int, int]:
        """Returns, by partition, the sequence up to which all messages were returned; only of consumers with nothing
        queued.

        A partition with unfolded messages is left out.
        """
        return {
            partition: consumer.reader.high_water
            for partition, consumer in self._consumer_of.items()
            if not consumer.queued and partition not in self._unfolded.partitions
        }

    @property
    def held_bytes(self) -> int:
        """The bytes of messages that were read and wait."""
        queued = sum(consumer.reader.held_bytes + consumer.queued_bytes for consumer in self._consumers)
        return queued + self._unfolded.size

    @property
    def received(self) -> int:
        """The number of messages received from EVENTS."""
        return sum(consumer.reader.received for consumer in self._consumers)

    @property
    def pending(self) -> int:
        """The number of messages that followed the last received one at that time."""
        return sum(consumer.reader.pending for consumer in self._consumers)

    def silent_s(self, now_s: float) -> float:
        """Returns the seconds since the reader that is silent longest received anything."""
        return max((now_s - consumer.reader.contact_s for consumer in self._consumers), default=0.0)

    async def close(self) -> None:
        """Closes all consumers and drops the messages that they had read."""
        consumers, self._consumers = self._consumers, []
        self._consumer_of.clear()
        self._unfolded.drop_all()
        if self._alarm is not None:
            await end_tasks([self._alarm])
        await _end(consumers)
        while not self._arrived.empty():
            self._arrived.get_nowait()

    async def _close_idle(self) -> None:
        used = set(self._consumer_of.values())
        idle = [consumer for consumer in self._consumers if consumer not in used]
        if idle:
            self._consumers = [consumer for consumer in self._consumers if consumer in used]
            await _end(idle)

    def _set_alarm(self, timeout_s: float) -> None:
        """Nudges :meth:`take` after ``timeout_s`` or earlier. A set alarm stays: one per message would cost more."""
        due_s = self._clock.monotonic_s() + timeout_s
        if self._alarm is not None and not self._alarm.done():
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = asyncio.create_task(self._ring(timeout_s))

    async def _ring(self, after_s: float) -> None:
        await self._clock.sleep(after_s)
        self.nudge()

    async def _run(self, consumer: PartitionConsumer) -> None:
        try:
            while True:
                batch = await consumer.reader.next_batch(BATCH_MESSAGES)
                size = size_of(batch)
                consumer.queued += 1
                consumer.queued_bytes += size
                await self._arrived.put((consumer, batch, size))
        except Exception as error:  # a defect, too, must stop the server loudly instead of leaving it waiting
            await self._arrived.put(error)


async def _end(consumers: Collection[PartitionConsumer]) -> None:
    await end_tasks([consumer.task for consumer in consumers if consumer.task is not None])
    for consumer in consumers:
        await consumer.reader.close()
