"""The feed and the retention of a store in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.fed_events import FedEvent, FeedFloor
from noetl_stream.ports.stores.retention import LivingExecution, Month, StartedExecution
from noetl_stream.protocol.rows import columns_of


class MemoryFeed:
    """A :class:`~noetl_stream.ports.stores.fed_events.FeedStore` over a :class:`MemoryStore`; the port documents each
    method.
    """

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: dict[str, dict[int, int]] = {}

    async def now(self) -> dict[int, int]:
        return {view.id: view.tick for view in await self._store.read_partitions()}

    async def floor(self) -> FeedFloor:
        generation = max(row.generation for row in self._store.tables.partitions)
        return FeedFloor(generation, dict(self._store.fed_floor))

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        found = []
        for partition, seen in sorted(after.items()):
            ticks = sorted(tick for one, tick in self._store.fed if one == partition and tick > seen)
            for tick in ticks[:limit]:
                found += await self._events(partition, tick) or [FedEvent(partition, tick)]
        return found

    async def told(self, reader: str) -> dict[int, int]:
        return dict(self._told.get(reader, {}))

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        stored = self._told.setdefault(reader, {})
        stored.update({one: max(tick, stored.get(one, tick)) for one, tick in ticks.items()})

    async def trim(self, keep_ms: int, limit: int) -> int:
        oldest_ms = self._clock.now_ms() - keep_ms
        old = [key for key, (at_ms, _) in self._store.fed.items() if at_ms < oldest_ms][:limit]
        for partition, tick in old:
            del self._store.fed[partition, tick]
            self._store.fed_floor[partition] = max(tick, self._store.fed_floor.get(partition, 0))
        return len(old)

    async def _events(self, partition: int, tick: int) -> list[FedEvent]:
        found = []
        offset = 0
        for execution_id, first, last in codec.decode_json(self._store.fed[partition, tick][1]):
            row = await self._store.execution(execution_id)
            for event in await self._store.journal(execution_id, first - 1, last - first + 1) if row else ():
                place = {"partition": partition, "tick": tick, "number": offset + event.position - first}
                found.append(columns_of(FedEvent, row, **place, event=event))
            offset += last - first + 1
        return found


class MemoryRetention:
    """:class:`~noetl_stream.ports.stores.retention.RetentionStore` of a memory store; the port documents each method.

    Journals in memory have no partitions by month.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def living_since(self, started_ms: int) -> list[LivingExecution]:
        rows = [row for _, row in sorted(self._store.tables.executions.items())]
        living = [row for row in rows if row.finished_ms is None and row.started_ms <= started_ms]
        return [
            LivingExecution(row.execution_id, row.partition, await self.journal_bytes([row.execution_id]))
            for row in living
        ]

    async def lived_between(self, from_ms: int, to_ms: int) -> dict[str, int]:
        rows = [row for _, row in sorted(self._store.tables.executions.items()) if row.started_ms <= to_ms]
        return {
            row.execution_id: row.partition for row in rows if row.finished_ms is None or row.finished_ms >= from_ms
        }

    async def started_between(self, after: str, before: str, limit: int) -> list[StartedExecution]:
        found = [
            StartedExecution(row.execution_id, row.path, row.status, row.finished_ms)
            for execution_id, row in sorted(self._store.tables.executions.items())
            if after < execution_id < before
        ]
        return found[:limit]

    async def months(self) -> list[Month]:
        return []

    async def make_months(self, ahead: int) -> list[str]:
        return []

    async def drop_empty_months(self) -> list[str]:
        return []

    async def journal_bytes(self, execution_ids: Sequence[str]) -> int:
        journals = await self._store.journals(dict.fromkeys(execution_ids, 0))
        return sum(len(one.data) + len(one.decisions or b"") for entries in journals.values() for one in entries)
