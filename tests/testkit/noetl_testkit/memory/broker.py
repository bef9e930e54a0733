"""A broker in memory that tests look into and damage, with the streams that triggers read.

Tests cause the failures described in PROTOCOL: :meth:`StagedBroker.restart` here; lost tails, forgotten message ids,
ended leases and lost fences on ``event_log`` and ``command_queue``.
"""

from __future__ import annotations

from noetl_stream.adapters.memory.broker import MemoryBlobs, MemoryBroker
from noetl_stream.adapters.memory.command_queue import ACK_WAIT_S, MemoryCommandQueue
from noetl_stream.adapters.memory.event_log import MemoryEventLog
from noetl_stream.ports.clock import Clock
from noetl_stream.protocol.subjects import FENCE_ID
from noetl_testkit.memory.trigger_streams import MemoryTriggerStreams


class StagedEventLog(MemoryEventLog):
    """An event log that tests damage."""

    def store_stray(self, partition: int, execution_id: str, body: bytes) -> int:
        """Stores a request under the subject of any partition, as a broken client may."""
        subject = f"noetl.events.{partition}.{execution_id}.requested"
        return self._store(subject, partition, execution_id, f"stray-{self.end}", body, is_input=True)

    def double_last(self, *, is_input: bool = True) -> None:
        """Stores the last input or record again, like a publisher that missed its acknowledgement."""
        sent = (one for one in reversed(self._stored) if one.message.execution_id != FENCE_ID)
        last = next((one for one in sent if one.is_input == is_input), None)
        if last is not None:
            self.double(last.message_id)

    def double(self, message_id: str) -> None:
        """Stores the message with this id again, if there is one."""
        found = next((one for one in self._stored if one.message_id == message_id), None)
        if found is not None:
            again, is_input = found.message, found.is_input
            message_id = f"again-{self.end}"
            self._store(again.subject, again.partition, again.execution_id, message_id, again.body, is_input=is_input)

    def lose_tail(self, count: int) -> None:
        """Loses the last messages, as after a power failure (PROTOCOL §5)."""
        del self._stored[len(self._stored) - count :]
        self.trimmed = min(self.trimmed, self.end)
        self.lost = {sequence for sequence in self.lost if sequence <= self.end}
        self.forget_message_ids()

    def lose(self, *sequences: int) -> None:
        """Loses messages from the middle, as a damaged file of NATS does. Their message ids stay known."""
        self.lost.update(sequences)

    def forget_message_ids(self) -> None:
        """Forgets message ids: one that was stored before is accepted, as JetStream may after a restart."""
        self._message_ids.clear()


class StagedCommandQueue(MemoryCommandQueue):
    """A command queue that tests look into and damage."""

    @property
    def queued(self) -> dict[str, bytes]:
        """Returns the commands named by :meth:`present`, for tests, even while the broker is stopped."""
        return {stored.command.command_id: stored.command.body for stored in self._commands.values()}

    @property
    def fences(self) -> dict[int, int]:
        """The fence of each partition, for tests."""
        return {partition: fence.sequence for partition, fence in self._fences.items()}

    def free_at_s(self, command_id: str) -> float:
        """Returns when the lease of a command ends, by the clock, for tests."""
        return next(one.free_at_s for one in self._commands.values() if one.command.command_id == command_id)

    def forget_unacked(self) -> None:
        """Ends the leases of all commands now, as if every worker had died."""
        for stored in self._commands.values():
            stored.free_at_s = float("-inf")
        self.dispatch()

    def forget_deliveries(self) -> None:
        """Marks all commands as never delivered, as in a queue restored from a copy."""
        for stored in self._commands.values():
            stored.num_delivered = 0
        self.forget_unacked()

    def forget_message_ids(self) -> None:
        """Forgets message ids: one that was stored before is accepted, as JetStream may after a restart."""
        self._message_ids.clear()

    def lose_fences(self) -> None:
        """Loses the fences of all partitions, like a stream that is made anew."""
        self._fences.clear()

    def lose(self, command_id: str) -> None:
        """Loses a command without a trace; its message id is remembered."""
        for stored in list(self._commands.values()):
            if stored.command.command_id == command_id:
                del self._commands[stored.subject]


class StagedBlobs(MemoryBlobs):
    """Objects that tests list and lose."""

    @property
    def keys(self) -> list[str]:
        """Returns the keys of all objects, for tests."""
        return list(self._values)

    def lose(self, key: str) -> None:
        """Loses an object, as a damaged disk would."""
        self._values.pop(key, None)


class StagedBroker(MemoryBroker):
    """A broker in memory as stages of tests need it."""

    event_log: StagedEventLog
    command_queue: StagedCommandQueue
    blobs: StagedBlobs

    def __init__(self, clock: Clock | None = None, *, ack_wait_s: float = ACK_WAIT_S) -> None:
        super().__init__(clock)
        self.event_log = StagedEventLog(self._line, self.bus)
        self.command_queue = StagedCommandQueue(self._line, self.bus, ack_wait_s)
        self.blobs = StagedBlobs(self._line)
        self.trigger_streams = MemoryTriggerStreams(self._line)

    def restart(self) -> None:
        """Stops and starts the broker, and forgets message ids."""
        self.stop()
        self.event_log.forget_message_ids()
        self.command_queue.forget_message_ids()
        self.start()
