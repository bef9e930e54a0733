"""Cursors of partitions in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.memory.stores.tables import MemoryTables
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.cursors import Cursor, Repair


class MemoryCursors:
    """:class:`~noetl_stream.ports.stores.cursors.Cursors` of a memory store; the port documents each method."""

    def __init__(self, tables: MemoryTables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    async def all(self) -> list[Cursor]:
        return [Cursor(row.id, row.last_seq, row.last_ms, row.published_tick) for row in self._tables.partitions]

    async def floor(self) -> int:
        return self._tables.events_floor

    async def move_floor(self, before: int, after: int) -> bool:
        if self._tables.events_floor != before:
            return False
        self._tables.events_floor = after
        return True

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        now_s, repaired = self._clock.monotonic_s(), set()
        for one in repairs:
            row = self._tables.partitions[one.partition]
            is_anothers = row.is_live(now_s) and row.owner != owner
            if not is_anothers and row.last_seq == one.folded:
                row.owner, row.given_back = None, True
                row.last_seq, row.last_ms, row.published_tick = one.last_seq, one.last_ms, one.published_tick
                row.tick, row.epoch = max(row.tick, one.tick), max(row.epoch, one.epoch) + 1
                row.generation += 1
                repaired.add(row.id)
        return repaired
