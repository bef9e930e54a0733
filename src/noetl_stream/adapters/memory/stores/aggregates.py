"""Aggregates in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field

from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.store import Tick


@dataclass
class AggregateTables:
    """Tables of aggregates by id, and of histories by aggregate and number."""

    rows: dict[str, AggregateRow] = field(default_factory=dict)
    histories: dict[str, dict[int, HistoryRow]] = field(default_factory=dict)

    def write(self, tick: Tick) -> None:
        """Writes the aggregates of a tick."""
        for row in tick.aggregates:
            before = self.rows.get(row.id)
            self.rows[row.id] = row if before is None else row.over(before)
        for gone in tick.aggregates_gone:
            self.rows.pop(gone.id, None)
            self.histories.pop(gone.id, None)
        for entry in tick.history:
            self.histories.setdefault(entry.aggregate_id, {})[entry.number] = entry
        for trimmed in tick.history_gone:
            kept = self.histories.get(trimmed.aggregate_id, {})
            for number in [number for number in kept if number <= trimmed.through]:
                del kept[number]


class MemoryAggregates(ABC):
    """:class:`~noetl_stream.ports.stores.aggregates.AggregateStore`, over :attr:`aggregate_tables`."""

    @property
    @abstractmethod
    def aggregate_tables(self) -> AggregateTables:
        """The tables of aggregates and their histories."""

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        rows = self.aggregate_tables.rows
        return {id: rows[id] for id in ids if id in rows}

    async def list_aggregates(self, kind: str, prefix: str, limit: int, after: str | None) -> list[AggregateRow]:
        found = [row for row in self.aggregate_tables.rows.values() if row.kind == kind and row.key.startswith(prefix)]
        return sorted((row for row in found if after is None or row.key > after), key=lambda row: row.key)[:limit]

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        rows = self.aggregate_tables.histories.get(id, {})
        found = [rows[number] for number in sorted(rows, reverse=True) if before is None or number < before]
        return [row for row in found if not statuses or row.status in statuses][:limit]
