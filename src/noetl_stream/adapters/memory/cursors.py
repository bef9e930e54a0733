"""Cursors of partitions in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from noetl_stream.ports.cursors import Cursor, Repair

if TYPE_CHECKING:
    from noetl_stream.adapters.memory.store import MemoryStore


class MemoryCursors:
    """:class:`~noetl_stream.ports.cursors.Cursors` of a memory store; the port documents each method."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def all(self) -> list[Cursor]:
        return [Cursor(row.id, row.last_seq, row.last_ms, row.published_tick) for row in self._store.tables.partitions]

    async def floor(self) -> int:
        return self._store.tables.events_floor

    async def move_floor(self, before: int, after: int) -> bool:
        if self._store.tables.events_floor != before:
            return False
        self._store.tables.events_floor = after
        return True

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        live = {view.id for view in await self._store.read_partitions() if view.live and view.owner != owner}
        repaired = set()
        for one in repairs:
            row = self._store.tables.partitions[one.partition]
            if row.id not in live and row.last_seq == one.folded:
                row.owner, row.given_back = None, True
                row.last_seq, row.last_ms, row.published_tick = one.last_seq, one.last_ms, one.published_tick
                row.tick, row.epoch = max(row.tick, one.tick), max(row.epoch, one.epoch) + 1
                row.generation += 1
                repaired.add(row.id)
        return repaired
