"""The store as the servers of a simulation have it, with the faults that are the store's own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.aggregates import is_aggregate
from noetl_stream.model.events import CancelRequested, ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.store import InboxItem, Tick
from noetl_testkit.simulation.poison import Poison

LATE_S: Final = 8.0


class PoisonedStore:
    """Refuses what is poisoned, or kills who commits it. ``kill`` ends the server with this name."""

    def __init__(self, real: Any, poison: Poison, kill: Callable[[str], None]) -> None:
        self._real = real
        self._poison = poison
        self._kill = kill

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def commit(self, tick: Tick) -> None:
        if not self._poison.is_in(tick):
            await self._real.commit(tick)
            return
        self._poison.strikes += 1
        if not self._poison.kills:
            raise PayloadRefused("a value that the simulated store cannot hold")
        self._kill(tick.owner)


class LateInbox:
    """Shows messages between executions up to :data:`LATE_S` seconds late, as when their partitions have no owner.

    Attributes:
        is_late: Whether it does so now.
        withheld: How often a message was there and not shown.
        overtaken: Children that found both their start and the order to end.
    """

    def __init__(self, real: MemoryStore, clock: Clock, *, late: bool) -> None:
        self._real = real
        self._clock = clock
        self._random = Random("inbox")
        self._shown_from_s: dict[str, float] = {}
        self.is_late = late
        self.withheld = 0
        self.overtaken: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        items = await self._real.inbox(partitions, limit)
        if not self.is_late:
            return items
        now_s, shown = self._clock.monotonic_s(), []
        for item in items:
            from_s = self._shown_from_s.setdefault(item.execution_id, now_s + self._random.uniform(0, LATE_S))
            if now_s < from_s:  # and no later message to this execution overtakes it
                self.withheld += 1
                continue
            shown.append(item)
        told = [item for item in shown if not is_aggregate(item.execution_id)]
        facts = [(item.execution_id, type(codec.decode_inbox(item.body).fact)) for item in told]
        started = {one for one, fact in facts if fact is ExecutionRequested}
        self.overtaken |= started & {one for one, fact in facts if fact is CancelRequested}
        return shown
