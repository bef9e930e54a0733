"""Diagnosis of Postgres, and its retention of executions."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.postgres.connections.database import DatabasePort
from noetl_stream.ports.self_reports import DatabaseFacts, TableFacts
from noetl_stream.ports.stores.retention import LivingExecution, Month, StartedExecution
from noetl_stream.ports.stores.store import KnownServer


class PostgresDiagnosis(DatabasePort):
    """:class:`~noetl_stream.ports.self_reports.DatabaseDiagnosis` of Postgres."""

    async def facts(self) -> DatabaseFacts:
        row = (await self._database.fetch("diagnosis"))[0]
        connection = await self._database.connect()
        try:
            ends_ms = certificate_ends_ms(connection._transport)  # type: ignore[attr-defined]  # noqa: SLF001
        finally:
            await connection.close()
        return DatabaseFacts(**dict(row), certificate_ends_ms=ends_ms)

    async def tables(self) -> list[TableFacts]:
        return await self._rows(TableFacts, "table_sizes")

    async def live_servers(self) -> list[KnownServer]:
        return await self._rows(KnownServer, "live_servers")

    async def excess_rights(self, role: str) -> list[str]:
        return await self._column("excess_rights", role=role)

    async def newer_migrations(self) -> list[str]:
        from noetl_stream.adapters.postgres.schema.migrate import known_migrations  # servers start faster without it

        known = known_migrations()[-1].number
        return [row["name"] for row in await self._database.fetch("schema_version") if row["number"] > known]


class PostgresRetention(DatabasePort):
    """:class:`~noetl_stream.ports.stores.retention.RetentionStore`; the port documents each method."""

    async def living_since(self, started_ms: int) -> list[LivingExecution]:
        return await self._rows(LivingExecution, "living_since", started_ms=started_ms)

    async def lived_between(self, from_ms: int, to_ms: int) -> dict[str, int]:
        return await self._pairs("lived_between", from_ms=from_ms, to_ms=to_ms)

    async def started_between(self, after: str, before: str, limit: int) -> list[StartedExecution]:
        return await self._rows(StartedExecution, "started_between", after=after, before=before, limit=limit)

    async def journal_bytes(self, execution_ids: Sequence[str]) -> int:
        return int(await self._value("journal_bytes", execution_ids=execution_ids))

    async def months(self) -> list[Month]:
        return await self._rows(Month, "months")

    async def make_months(self, ahead: int) -> list[str]:
        return await self._column("make_months", ahead=ahead)

    async def drop_empty_months(self) -> list[str]:
        return await self._column("drop_empty_months")
