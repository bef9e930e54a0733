"""Cursors of partitions in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.ports.cursors import Cursor


class MemoryCursors:
    """:class:`~noetl_stream.ports.cursors.Cursors` of a memory store; the port documents each method."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def all(self) -> list[Cursor]:
        return [Cursor(row.id, row.last_seq, row.last_ms) for row in self._store.tables.partitions]

    async def floor(self) -> int:
        return self._store.tables.events_floor

    async def move_floor(self, before: int, after: int) -> bool:
        if self._store.tables.events_floor != before:
            return False
        self._store.tables.events_floor = after
        return True

    async def move(self, before: Sequence[Cursor], after: Sequence[Cursor]) -> set[int]:
        live = {view.id for view in await self._store.read_partitions() if view.live}
        moved = set()
        for old, new in zip(before, after, strict=True):
            row = self._store.tables.partitions[old.partition]
            if row.id not in live and row.last_seq == old.last_seq:
                row.owner, row.given_back = None, True
                row.last_seq, row.last_ms = new.last_seq, new.last_ms
                row.epoch += 1
                row.generation += 1
                moved.add(row.id)
        return moved
