"""A message broker in memory, with one state, for fast and repeatable tests of roles.

Its adapters do what their ports document. While it is stopped, requests raise
:class:`~noetl_stream.errors.Unreachable`. No data survives the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.bus import Line, MemoryBus
from noetl_stream.adapters.memory.command_queue import MemoryCommandQueue
from noetl_stream.adapters.memory.event_log import MemoryEventLog
from noetl_stream.errors import BlobMissing, Unreachable
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.task_logs import MAX_LOG_MESSAGE_BYTES, BatchSize, LogsExtent, StoredBatch
from noetl_stream.protocol.subjects import LogOwner, log_owner

READ_BATCHES: Final = 64


class MemoryBroker:
    """A broker in memory. Any number of roles in one event loop can share its adapters."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Makes an empty broker, by default with a :class:`ManualClock` of its own."""
        self.clock: Clock = clock if clock is not None else ManualClock()
        self._line = Line(self.clock)
        self.bus = MemoryBus(self._line)
        self.event_log = MemoryEventLog(self._line, self.bus)
        self.command_queue = MemoryCommandQueue(self._line, self.bus)
        self.blobs = MemoryBlobs(self._line)
        self.task_logs = MemoryTaskLogs(self._line)
        if isinstance(self.clock, ManualClock):
            self.clock.on_advance(self._time_passed)

    def stop(self) -> None:
        """Stops the broker as if killed: readers break, sends and acks are lost, messages to be stored are held."""
        self._line.stop()

    def start(self) -> None:
        """Starts the broker again with all stored messages; sources get a new connection."""
        self._line.start()

    def _time_passed(self) -> None:
        self.command_queue.dispatch()
        self.event_log.heartbeat()


class MemoryBlobs:
    """:class:`~noetl_stream.ports.streams.blobs.Blobs` in memory."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._values: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes | memoryview) -> None:
        self._line.check()
        self._values.setdefault(key, bytes(data))

    async def get(self, key: str) -> bytes:
        self._line.check()
        try:
            return self._values[key]
        except KeyError:
            raise BlobMissing(f"the object store has nothing under {key}") from None

    async def delete(self, key: str) -> bool:
        self._line.check()
        return self._values.pop(key, None) is not None


class MemoryTaskLogs:
    """:class:`~noetl_stream.ports.streams.task_logs.TaskLogs` in memory. A stopped broker loses published lines."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stored: list[tuple[str, StoredBatch]] = []
        self.max_bytes: int | None = None
        self._last = 0

    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        try:
            self._line.check()
        except Unreachable as error:
            done(error.message)
            return
        if len(body) > MAX_LOG_MESSAGE_BYTES:
            done("message size exceeds maximum allowed")
            return
        self._last += 1
        self._stored.append((subject, StoredBatch(self._last, log_owner(subject).pool, body)))
        done("")

    async def read(self, execution_id: str, first: int) -> list[StoredBatch]:
        self._line.check()
        found = [batch for subject, batch in self._stored if _execution(subject) == execution_id]
        found = [batch for batch in found if batch.sequence >= first]
        return found[:READ_BATCHES]

    async def delete(self, execution_id: str) -> None:
        self._line.check()
        self._stored = [one for one in self._stored if _execution(one[0]) != execution_id]

    async def extent(self) -> LogsExtent:
        self._line.check()
        first = self._stored[0][1].sequence if self._stored else self._last + 1
        return LogsExtent(first, self._last, sum(len(batch.body) for _, batch in self._stored), self.max_bytes)

    async def sizes(self, first: int) -> list[BatchSize]:
        self._line.check()
        found = [one for one in self._stored if one[1].sequence >= first][:READ_BATCHES]
        return [BatchSize(batch.sequence, log_owner(subject), len(batch.body)) for subject, batch in found]

    async def trim(self, owner: LogOwner, through: int) -> None:
        self._line.check()
        self._stored = [
            (subject, batch)
            for subject, batch in self._stored
            if batch.sequence > through or owner not in (log_owner(subject), LogOwner(batch.pool, ""))
        ]


def _execution(subject: str) -> str:
    return subject.split(".")[3]
