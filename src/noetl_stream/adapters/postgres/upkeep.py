"""Diagnosis of Postgres, and its retention of executions."""

from __future__ import annotations

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.postgres.connections.database import DatabasePort, queried
from noetl_stream.ports.self_reports import DatabaseDiagnosis, DatabaseFacts
from noetl_stream.ports.stores.retention import RetentionStore


class PostgresDiagnosis(DatabasePort):
    """:class:`~noetl_stream.ports.self_reports.DatabaseDiagnosis` of Postgres."""

    tables = queried(DatabaseDiagnosis.tables, "table_sizes")
    live_servers = queried(DatabaseDiagnosis.live_servers)
    excess_rights = queried(DatabaseDiagnosis.excess_rights)

    async def facts(self) -> DatabaseFacts:
        row = (await self._database.fetch("diagnosis"))[0]
        connection = await self._database.connect()
        try:
            ends_ms = certificate_ends_ms(connection._transport)  # type: ignore[attr-defined]  # noqa: SLF001
        finally:
            await connection.close()
        return DatabaseFacts(**dict(row), certificate_ends_ms=ends_ms)

    async def newer_migrations(self) -> list[str]:
        from noetl_stream.adapters.postgres.schema.migrate import known_migrations  # servers start faster without it

        known = known_migrations()[-1].number
        return [row["name"] for row in await self._database.fetch("schema_version") if row["number"] > known]


class PostgresRetention(DatabasePort):
    """:class:`~noetl_stream.ports.stores.retention.RetentionStore`; the port documents each method."""

    living_since = queried(RetentionStore.living_since)
    lived_between = queried(RetentionStore.lived_between)
    started_between = queried(RetentionStore.started_between)
    journal_bytes = queried(RetentionStore.journal_bytes)
    months = queried(RetentionStore.months)
    make_months = queried(RetentionStore.make_months)
    drop_empty_months = queried(RetentionStore.drop_empty_months)
