"""A message broker in memory: log, queue, bus and blobs sharing one state, for fast and repeatable role tests.

Its adapters do what their ports document. Tests trigger the failures described in PROTOCOL: :meth:`MemoryBroker.stop`
and :meth:`MemoryBroker.start` here; lost tails, forgotten message ids, ended leases and broken readers on ``event_log``
and ``command_queue``. While it is stopped, requests raise :class:`~noetl_stream.errors.Unreachable`. Nothing survives
the process.
"""

from __future__ import annotations

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.bus import MemoryBus
from noetl_stream.adapters.memory.command_queue import ACK_WAIT_S, MemoryCommandQueue
from noetl_stream.adapters.memory.event_log import MemoryEventLog
from noetl_stream.adapters.memory.line import Line
from noetl_stream.adapters.memory.task_logs import MemoryTaskLogs
from noetl_stream.adapters.memory.trigger_streams import MemoryTriggerStreams
from noetl_stream.errors import BlobMissing
from noetl_stream.ports.clock import Clock


class MemoryBroker:
    """One broker. Its adapters can be shared by any number of roles in one event loop."""

    def __init__(self, clock: Clock | None = None, *, ack_wait_s: float = ACK_WAIT_S) -> None:
        """
        Args:
            clock: Default: its own :class:`ManualClock`.
            ack_wait_s: The lease of a delivery.
        """
        self.clock: Clock = clock if clock is not None else ManualClock()
        self._line = Line(self.clock)
        self.bus = MemoryBus(self._line)
        self.event_log = MemoryEventLog(self._line, self.bus)
        self.command_queue = MemoryCommandQueue(self._line, self.bus, ack_wait_s)
        self.blobs = MemoryBlobs(self._line)
        self.trigger_streams = MemoryTriggerStreams(self._line)
        self.task_logs = MemoryTaskLogs(self._line)
        if isinstance(self.clock, ManualClock):
            self.clock.on_advance(self._time_passed)

    def stop(self) -> None:
        """Stops like a killed broker: readers break, sends and acks are lost, messages to be stored are held."""
        self._line.stop()

    def start(self) -> None:
        """Starts again with everything that was stored; sources get a new connection."""
        self._line.start()

    def restart(self) -> None:
        """Stops and starts, and forgets message ids."""
        self.stop()
        self.event_log.forget_message_ids()
        self.command_queue.forget_message_ids()
        self.start()

    def _time_passed(self) -> None:
        self.command_queue.dispatch()
        self.event_log.heartbeat()


class MemoryBlobs:
    """:class:`~noetl_stream.ports.streams.blobs.Blobs` in memory."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._values: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self._line.check()
        self._values.setdefault(key, bytes(data))

    async def get(self, key: str) -> bytes:
        self._line.check()
        try:
            return self._values[key]
        except KeyError:
            raise BlobMissing(f"the object store has nothing under {key}") from None

    async def delete(self, key: str) -> None:
        self._line.check()
        self._values.pop(key, None)

    @property
    def keys(self) -> list[str]:
        """The keys that have a value, for tests."""
        return list(self._values)

    def lose(self, key: str) -> None:
        """Loses a value, as a damaged disk would."""
        self._values.pop(key, None)
