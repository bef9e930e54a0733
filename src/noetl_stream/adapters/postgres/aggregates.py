"""Aggregates in the tables ``noetl.aggregate`` and ``noetl.aggregate_history``."""

from __future__ import annotations

from collections.abc import Collection

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow


class PostgresAggregates:
    """:class:`~noetl_stream.ports.stores.aggregates.AggregateStore`; the port documents each method."""

    _database: Database

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        rows = await self._database.fetch("aggregates", ids=list(ids))
        return {row["id"]: row_of(AggregateRow, row) for row in rows}

    async def list_aggregates(self, kind: str, prefix: str, limit: int, after: str | None) -> list[AggregateRow]:
        rows = await self._database.fetch("list_aggregates", kind=kind, prefix=prefix, limit=limit, after=after)
        return [row_of(AggregateRow, row) for row in rows]

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        rows = await self._database.fetch(
            "aggregate_history", id=id, limit=limit, before=before, statuses=list(statuses)
        )
        return [row_of(HistoryRow, row) for row in rows]
