"""The command queue in memory."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Collection, Sequence

from noetl_stream.adapters.memory.bus import MemoryBus
from noetl_stream.adapters.memory.line import Line, MessageIds
from noetl_stream.ports.command_queue import QueuedCommand, QueuedPool
from noetl_stream.ports.subjects import command_subject

ACK_WAIT_S = 30.0


class _Standing:
    """A command in the queue. It can be delivered from ``free_at_s`` on."""

    __slots__ = ("command", "free_at_s", "num_delivered", "sequence", "stored_ms")

    def __init__(self, command: QueuedCommand, sequence: int, stored_ms: int) -> None:
        self.command = command
        self.sequence = sequence
        self.stored_ms = stored_ms
        self.num_delivered = 0
        self.free_at_s = float("-inf")


class MemoryDelivery:
    """:class:`~noetl_stream.ports.command_queue.Delivery` in memory."""

    def __init__(self, queue: MemoryCommandQueue, standing: _Standing) -> None:
        self.body = standing.command.body
        self.num_delivered = standing.num_delivered
        self.stored_ms = standing.stored_ms
        self._queue = queue
        self._standing = standing
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def ack(self) -> None:
        self._queue.acknowledge(self._standing)

    def nak(self, delay_s: float = 0.0) -> None:
        self._queue.give_back(self._standing, delay_s)

    def in_progress(self) -> None:
        if threading.get_ident() == self._thread:
            self._queue.renew(self._standing)
        else:
            self._loop.call_soon_threadsafe(self._queue.renew, self._standing)


class MemoryCommandSource:
    """:class:`~noetl_stream.ports.command_queue.CommandSource` in memory."""

    def __init__(self, queue: MemoryCommandQueue, pool: str, connected_ms: int) -> None:
        self.connected_ms = connected_ms
        self.pool = pool
        self.credit = 0
        self._queue = queue
        self._ready: asyncio.Queue[MemoryDelivery] = asyncio.Queue()
        self._put: deque[MemoryDelivery] = deque(maxlen=1_000)

    def request(self, count: int) -> None:
        self.credit += count
        self._queue.dispatch()

    async def next(self) -> MemoryDelivery:
        return await self._ready.get()

    async def close(self) -> None:
        self._queue.forget_source(self)

    def put(self, delivery: MemoryDelivery) -> None:
        self.credit -= 1
        self._ready.put_nowait(delivery)
        self._put.append(delivery)

    @property
    def waiting(self) -> list[bytes]:
        """Commands that were delivered but not yet taken, for tests."""
        count = self._ready.qsize()
        return [delivery.body for delivery in list(self._put)[-count:]] if count else []


class MemoryCommandQueue:
    """:class:`~noetl_stream.ports.command_queue.CommandQueue` in memory; one object serves all roles of a test.

    Leases run by the clock; with a clock that does not notify, call :meth:`dispatch` after advancing it.
    """

    def __init__(self, line: Line, bus: MemoryBus, ack_wait_s: float = ACK_WAIT_S) -> None:
        self._line = line
        self._bus = bus
        self._ack_wait_s = ack_wait_s
        self._standing: dict[str, _Standing] = {}
        self._message_ids = MessageIds(line.clock)
        self._last_sequence = 0
        self._sources: list[MemoryCommandSource] = []
        self._pools: set[str] = set()
        line.on_restored(self._reconnect_sources)

    def issue(self, commands: Sequence[QueuedCommand]) -> Awaitable[None]:
        def store() -> None:
            for command in commands:
                self._store(command)
            self.dispatch()

        return self._line.hold(store)

    async def open_source(self, pool: str) -> MemoryCommandSource:
        self._line.check()
        source = MemoryCommandSource(self, pool, self._line.stamp_ms())
        self._sources.append(source)
        self._pools.add(pool)
        return source

    async def present(self) -> set[str]:
        self._line.check()
        return set(self.standing)

    @property
    def standing(self) -> dict[str, bytes]:
        """The commands named by :meth:`present`, for tests, even while the broker is stopped."""
        return {standing.command.command_id: standing.command.body for standing in self._standing.values()}

    def free_at_s(self, command_id: str) -> float:
        """When the lease of a command ends, by the clock, for a test to look at."""
        return next(one.free_at_s for one in self._standing.values() if one.command.command_id == command_id)

    async def pools(self) -> list[QueuedPool]:
        self._line.check()
        found = dict.fromkeys(sorted(self._pools), (0, 0, 0))
        for standing in self._standing.values():
            queued, given, again = found[standing.command.pool]
            if standing.num_delivered == 0:
                queued += 1
            else:
                given += 1
                again += standing.num_delivered > 1
            found[standing.command.pool] = (queued, given, again)
        return [QueuedPool(pool, *counts) for pool, counts in found.items()]

    async def withdraw(self, commands: Collection[tuple[str, str]]) -> None:
        self._line.check()
        for subject, standing in list(self._standing.items()):
            if (standing.command.execution_id, standing.command.command_id) in commands:
                del self._standing[subject]

    async def verify(self) -> None:
        self._line.check()

    def dispatch(self) -> None:
        """Delivers unleased commands to sources with credit, oldest first."""
        if not self._line.is_up:
            return
        now_s = self._line.clock.monotonic_s()
        for standing in list(self._standing.values()):
            if standing.free_at_s > now_s:
                continue
            source = next((one for one in self._sources if one.pool == standing.command.pool and one.credit > 0), None)
            if source is None:
                continue
            standing.num_delivered += 1
            standing.free_at_s = now_s + self._ack_wait_s
            # Round robin: a source that was served goes behind the others of its pool.
            self._sources.remove(source)
            self._sources.append(source)
            source.put(MemoryDelivery(self, standing))

    def forget_unacked(self) -> None:
        """Ends all leases now, as if every worker had died."""
        for standing in self._standing.values():
            standing.free_at_s = float("-inf")
        self.dispatch()

    def forget_deliveries(self) -> None:
        """Marks all commands as never delivered: a queue restored from a copy."""
        for standing in self._standing.values():
            standing.num_delivered = 0
        self.forget_unacked()

    def forget_message_ids(self) -> None:
        """Accepts an id that was stored before, as JetStream may after a restart."""
        self._message_ids.clear()

    def lose(self, command_id: str) -> None:
        """Loses a command without a trace; its message id is remembered."""
        for subject, standing in list(self._standing.items()):
            if standing.command.command_id == command_id:
                del self._standing[subject]

    def forget_source(self, source: MemoryCommandSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    def acknowledge(self, standing: _Standing) -> None:
        if self._line.is_up and self._stands(standing):
            command = standing.command
            del self._standing[command_subject(command.pool, command.execution_id, command.command_id)]

    def give_back(self, standing: _Standing, delay_s: float) -> None:
        if self._line.is_up and self._stands(standing):
            standing.free_at_s = self._line.clock.monotonic_s() + delay_s
            self.dispatch()

    def renew(self, standing: _Standing) -> None:
        if self._line.is_up and self._stands(standing):
            standing.free_at_s = self._line.clock.monotonic_s() + self._ack_wait_s

    def _store(self, command: QueuedCommand) -> None:
        subject = command_subject(command.pool, command.execution_id, command.command_id)
        message_id = f"{command.command_id}.{command.issue}"
        self._bus.deliver(subject, command.body, "")
        if subject in self._standing:
            return
        if self._message_ids.find(message_id) is not None and command.issue == 1:
            return
        self._last_sequence += 1
        self._message_ids.add(message_id, self._last_sequence)
        self._pools.add(command.pool)
        self._standing[subject] = _Standing(command, self._last_sequence, self._line.stamp_ms())

    def _stands(self, standing: _Standing) -> bool:
        command = standing.command
        subject = command_subject(command.pool, command.execution_id, command.command_id)
        return self._standing.get(subject) is standing

    def _reconnect_sources(self) -> None:
        for source in self._sources:
            source.connected_ms = self._line.stamp_ms()
        self.dispatch()
