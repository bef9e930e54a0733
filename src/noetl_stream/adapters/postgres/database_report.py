"""Diagnosis of Postgres."""

from __future__ import annotations

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.ports.self_reports import DatabaseFacts, TableFacts
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
