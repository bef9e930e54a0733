"""Retention in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.ports.stores.retention import LivingExecution, Month, StartedExecution


class PostgresRetention:
    """:class:`~noetl_stream.ports.stores.retention.RetentionStore`; the port documents each method."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def living_since(self, started_ms: int) -> list[LivingExecution]:
        return [LivingExecution(*row) for row in await self._database.fetch("living_since", started_ms=started_ms)]

    async def started_between(self, after: str, before: str, limit: int) -> list[StartedExecution]:
        rows = await self._database.fetch("started_between", after=after, before=before, limit=limit)
        return [StartedExecution(*row) for row in rows]

    async def journal_bytes(self, execution_ids: Sequence[str]) -> int:
        return int((await self._database.fetch("journal_bytes", execution_ids=execution_ids))[0][0])

    async def months(self) -> list[Month]:
        return [Month(*row) for row in await self._database.fetch("months")]

    async def make_months(self, ahead: int) -> list[str]:
        return [row[0] for row in await self._database.fetch("make_months", ahead=ahead)]

    async def drop_empty_months(self) -> list[str]:
        return [row[0] for row in await self._database.fetch("drop_empty_months")]
