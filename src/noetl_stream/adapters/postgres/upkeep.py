"""Diagnosis of Postgres, and how long it keeps executions."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.ports.self_reports import DatabaseFacts, TableFacts
from noetl_stream.ports.stores.retention import LivingExecution, Month, StartedExecution
from noetl_stream.ports.stores.store import KnownServer


class PostgresDiagnosis:
    """:class:`~noetl_stream.ports.self_reports.DatabaseDiagnosis` of Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(self) -> DatabaseFacts:
        row = (await self._database.fetch("diagnosis"))[0]
        connection = await self._database.connect()
        try:
            ends_ms = certificate_ends_ms(connection._transport)  # type: ignore[attr-defined]  # noqa: SLF001
        finally:
            await connection.close()
        return DatabaseFacts(**dict(row), certificate_ends_ms=ends_ms)

    async def tables(self) -> list[TableFacts]:
        return [TableFacts(*row) for row in await self._database.fetch("table_sizes")]

    async def live_servers(self) -> list[KnownServer]:
        return [KnownServer(*row) for row in await self._database.fetch("live_servers")]

    async def excess_rights(self, role: str) -> list[str]:
        return [row[0] for row in await self._database.fetch("excess_rights", role=role)]


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
