"""The whole feed in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import islice

from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.model import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.feed import FedEvent


class MemoryFeed:
    """A :class:`~noetl_stream.ports.feed.FeedStore` over the ticks of a :class:`MemoryStore`."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._floor: dict[int, int] = {}

    async def now(self) -> dict[int, int]:
        return {view.id: view.tick for view in await self._store.read_partitions()}

    async def floor(self) -> dict[int, int]:
        return dict(self._floor)

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        """See :meth:`noetl_stream.ports.feed.FeedStore.read`."""
        found = []
        for partition, seen in sorted(after.items()):
            ticks = sorted(tick for one, tick in self._store.fed if one == partition and tick > seen)
            for tick in islice(ticks, limit):
                events = [one async for one in self._events(partition, tick)]
                found += events or [
                    FedEvent(
                        partition=partition,
                        tick=tick,
                        number=0,
                        execution_id="",
                        trace_id="",
                        digest="",
                        path="",
                        event=None,
                    )
                ]
        return found

    async def trim(self, keep_ms: int, limit: int) -> int:
        """See :meth:`noetl_stream.ports.feed.FeedStore.trim`."""
        oldest_ms = self._clock.now_ms() - keep_ms
        old = [key for key, (at_ms, _) in self._store.fed.items() if at_ms < oldest_ms][:limit]
        for partition, tick in old:
            del self._store.fed[partition, tick]
            self._floor[partition] = max(tick, self._floor.get(partition, 0))
        return len(old)

    async def _events(self, partition: int, tick: int) -> AsyncIterator[FedEvent]:
        number = 0
        for execution_id, first, last in codec.decode_json(self._store.fed[partition, tick][1]):
            row = await self._store.execution(execution_id)
            for event in await self._store.journal(execution_id, first - 1, last - first + 1) if row else ():
                assert row is not None
                at = number + event.position - first
                yield FedEvent(
                    partition=partition,
                    tick=tick,
                    number=at,
                    execution_id=execution_id,
                    trace_id=row.trace_id,
                    digest=row.digest,
                    path=row.path,
                    event=event,
                )
            number += last - first + 1
