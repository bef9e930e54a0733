"""The command queue in memory."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from noetl_stream.adapters.memory.bus import Line, MemoryBus, MessageIds
from noetl_stream.model.ids import partition_of
from noetl_stream.model.priorities import PriorityTurns
from noetl_stream.ports.streams.command_queue import QueuedCommand, QueuedPool
from noetl_stream.protocol.subjects import command_subject

ACK_WAIT_S = 30.0


@dataclass(slots=True, eq=False)
class _Stored:
    """A command in the queue, which can be delivered from ``free_at_s`` on."""

    command: QueuedCommand
    subject: str
    stored_ms: int
    num_delivered: int = 0
    free_at_s: float = float("-inf")


class Fence(NamedTuple):
    epoch: int
    owner: str
    sequence: int


NO_FENCE = Fence(0, "", 0)


class MemoryDelivery:
    """:class:`~noetl_stream.ports.streams.command_queue.Delivery` in memory."""

    def __init__(self, queue: MemoryCommandQueue, stored: _Stored) -> None:
        self.subject = stored.subject
        self.body = stored.command.body
        self.num_delivered = stored.num_delivered
        self.stored_ms = stored.stored_ms
        self._queue = queue
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_answered = False

    def ack(self) -> None:
        self._is_answered = True
        self._queue.acknowledge(self._stored)

    def nak(self, delay_s: float = 0.0) -> None:
        self._is_answered = True
        self._queue.give_back(self._stored, delay_s)

    def in_progress(self) -> None:
        if threading.get_ident() == self._thread:
            self._renew()
        else:
            self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        if not self._is_answered:
            self._queue.renew(self._stored)


class MemoryCommandSource:
    """:class:`~noetl_stream.ports.streams.command_queue.CommandSource` in memory."""

    def __init__(self, queue: MemoryCommandQueue, pool: str, connected_ms: int) -> None:
        self.connected_ms = connected_ms
        self.max_held_bytes = sys.maxsize
        self.pool = pool
        self.credit = 0
        self.turns = PriorityTurns()
        self._queue = queue
        self._ready: asyncio.Queue[MemoryDelivery] = asyncio.Queue()
        self._put: deque[MemoryDelivery] = deque(maxlen=1_000)

    def request(self, count: int) -> None:
        self.credit += count
        self._queue.dispatch()

    async def next(self) -> MemoryDelivery:
        return await self._ready.get()

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self.waiting))

    async def pause(self) -> None:
        self.credit = 0

    async def finish(self) -> None:
        self._queue.forget_source(self)

    async def close(self) -> None:
        self._queue.forget_source(self)
        while not self._ready.empty():
            self._ready.get_nowait().nak()

    def put(self, delivery: MemoryDelivery) -> None:
        self.credit -= 1
        self._ready.put_nowait(delivery)
        self._put.append(delivery)

    @property
    def waiting(self) -> list[bytes]:
        """Returns the commands that were delivered but not yet taken, for tests."""
        count = self._ready.qsize()
        return [delivery.body for delivery in list(self._put)[-count:]] if count else []


class MemoryCommandQueue:
    """:class:`~noetl_stream.ports.streams.command_queue.CommandQueue` in memory; one object serves all roles of a test.

    Leases run by the clock; with a clock that does not notify, call :meth:`dispatch` after advancing it.
    """

    def __init__(self, line: Line, bus: MemoryBus, ack_wait_s: float = ACK_WAIT_S) -> None:
        self._line = line
        self._bus = bus
        self._ack_wait_s = ack_wait_s
        self._commands: dict[str, _Stored] = {}
        self._message_ids = MessageIds(line.clock)
        self._last_sequence = 0
        self._sources: list[MemoryCommandSource] = []
        self._pools: set[str] = set()
        self._fences: dict[int, Fence] = {}
        line.on_restored(self._reconnect_sources)

    def issue(self, commands: Sequence[QueuedCommand], fences: Mapping[int, int]) -> Awaitable[Collection[int]]:
        def store() -> Collection[int]:
            fenced_off: set[int] = set()
            for command in commands:
                partition = partition_of(command.execution_id)
                if fences.get(partition, 0) == self._fences.get(partition, NO_FENCE).sequence:
                    self._store(command)
                else:
                    fenced_off.add(partition)
            self.dispatch()
            return fenced_off

        return self._line.hold(store)

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> dict[int, int]:
        self._line.check()
        found = {}
        for partition, epoch in epochs.items():
            fence = self._fences.get(partition, NO_FENCE)
            if fence.epoch < epoch:
                self._last_sequence += 1
                fence = self._fences[partition] = Fence(epoch, owner, self._last_sequence)
            if (fence.epoch, fence.owner) == (epoch, owner):
                found[partition] = fence.sequence
        return found

    async def add_pool(self, pool: str) -> None:
        self._line.check()
        self._pools.add(pool)

    async def reach(self, pool: str) -> None:
        self._line.check()

    async def open_source(self, pool: str) -> MemoryCommandSource:
        self._line.check()
        source = MemoryCommandSource(self, pool, self._line.stamp_ms())
        self._sources.append(source)
        self._pools.add(pool)
        return source

    async def present(self, *, mends: bool = False) -> dict[str, str]:
        self._line.check()
        return {stored.command.command_id: stored.command.execution_id for stored in self._commands.values()}

    async def pools(self) -> list[QueuedPool]:
        self._line.check()
        found = {pool: Counter[str]() for pool in sorted(self._pools)}
        waiting = {pool: Counter[int]() for pool in found}
        for stored in self._commands.values():
            counts = found[stored.command.pool]
            counts["given" if stored.num_delivered else "queued"] += 1
            counts["again"] += stored.num_delivered > 1
            if not stored.num_delivered:
                waiting[stored.command.pool][stored.command.priority] += 1
        return [
            QueuedPool(
                pool, counts["queued"], counts["given"], counts["again"], dict(sorted(waiting[pool].items())[::-1])
            )
            for pool, counts in found.items()
        ]

    async def oldest_queued_ms(self, pools: Collection[str]) -> dict[str, int]:
        self._line.check()
        found: dict[str, int] = {}
        for stored in self._commands.values():
            pool = stored.command.pool
            if pool in pools and stored.num_delivered == 0:
                found[pool] = min(stored.stored_ms, found.get(pool, stored.stored_ms))
        return found

    async def withdraw(self, commands: Collection[tuple[str, str]]) -> None:
        self._line.check()
        for stored in list(self._commands.values()):
            if (stored.command.execution_id, stored.command.command_id) in commands:
                del self._commands[stored.subject]

    async def verify(self) -> None:
        self._line.check()

    def dispatch(self) -> None:
        """Delivers free commands to sources with credit, by the turns of priorities, the oldest of a priority first."""
        if not self._line.is_up:
            return
        now_s = self._line.clock.monotonic_s()
        free: dict[str, dict[int, deque[_Stored]]] = {}
        for stored in self._commands.values():
            if stored.free_at_s <= now_s:
                command = stored.command
                free.setdefault(command.pool, {}).setdefault(command.priority, deque()).append(stored)
        for pool, waiting in free.items():
            while waiting:
                source = next((one for one in self._sources if one.pool == pool and one.credit > 0), None)
                if source is None:
                    break
                priority = source.turns.next(waiting)
                source.turns.count_turn(priority, waiting)
                stored = waiting[priority].popleft()
                if not waiting[priority]:
                    del waiting[priority]
                stored.num_delivered += 1
                stored.free_at_s = now_s + self._ack_wait_s
                # Round robin: a served source goes behind the others of its pool.
                self._sources.remove(source)
                self._sources.append(source)
                source.put(MemoryDelivery(self, stored))

    def forget_source(self, source: MemoryCommandSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    def acknowledge(self, stored: _Stored) -> None:
        if self._accepts(stored):
            del self._commands[stored.subject]

    def give_back(self, stored: _Stored, delay_s: float) -> None:
        if self._accepts(stored):
            stored.free_at_s = self._line.clock.monotonic_s() + delay_s
            self.dispatch()

    def renew(self, stored: _Stored) -> None:
        if self._accepts(stored):
            stored.free_at_s = self._line.clock.monotonic_s() + self._ack_wait_s

    def _store(self, command: QueuedCommand) -> None:
        subject = command_subject(command.pool, command.execution_id, command.command_id, command.priority)
        message_id = f"{command.command_id}.{command.issue}"
        self._bus.deliver(subject, command.body, "")
        if subject in self._commands:
            return
        if self._message_ids.find(message_id) is not None and command.issue == 1:
            return
        self._last_sequence += 1
        self._message_ids.add(message_id, self._last_sequence)
        self._pools.add(command.pool)
        self._commands[subject] = _Stored(command, subject, self._line.stamp_ms())

    def _accepts(self, stored: _Stored) -> bool:
        return self._line.is_up and self._commands.get(stored.subject) is stored

    def _reconnect_sources(self) -> None:
        for source in self._sources:
            source.connected_ms = self._line.stamp_ms()
        self.dispatch()
