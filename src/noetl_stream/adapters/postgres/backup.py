"""The schema ``noetl`` as a whole, for backups: copied in one snapshot, loaded in one transaction.

Tables are copied in Postgres's text format, which does not depend on its version. Rows of ``migration`` come from the
migrations themselves; those of ``server`` describe running servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from noetl_stream.adapters.postgres.connections.database import separate_connection, shown_address
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.schema.migrate import (
    AppliedMigration,
    known_migrations,
    migrate,
    require_schema,
    require_texts,
)
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.errors import Conflict, NotReady
from noetl_stream.ports.backup import DatabaseShape, SequencePosition, Sink, TableShape
from noetl_stream.ports.stores.retention import Month

NOT_COPIED: Final = ("migration", "server")
FILLED_BY_MIGRATIONS: Final = ("audit_chain", "meta", "partition")

_SCHEMA: Final = "noetl"
_NO_TIMEOUTS: Final = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}


class PostgresBackup:
    """:class:`~noetl_stream.ports.backup.BackupDatabase` of the owner of the schema; the port documents each method."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._address = shown_address(dsn)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[_Snapshot]:
        async with separate_connection(self._dsn, "noetl-stream backup create", _NO_TIMEOUTS) as connection:
            applied = await _applied_migrations(connection)
            require_schema(applied, self._address)
            require_texts(applied, self._address)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                # Before the snapshot, which the first query takes: from now on no month of the journal is dropped.
                await connection.execute("lock table noetl.event in access share mode")
                yield _Snapshot(connection, await _shape(connection))

    @asynccontextmanager
    async def target(self, shape: DatabaseShape) -> AsyncIterator[_Target]:
        wanted = _known_migrations(shape.migrations)
        async with separate_connection(self._dsn, "noetl-stream backup restore", _NO_TIMEOUTS) as connection:
            applied = await _applied_migrations(connection)
            if not applied:
                await migrate(self._dsn, through=wanted)
            elif len(applied) != wanted:
                raise NotReady(
                    f"the database at {self._address} has another schema than the backup: {applied[-1].name}",
                    hint="restore into a new database, without `noetl-stream database migrate`",
                )
            async with connection.transaction():
                tables = await self._require_empty(connection)
                await _replace_months(connection, shape.months)
                yield _Target(connection, tables)
        await migrate(self._dsn)

    async def _require_empty(self, connection: Connection) -> Sequence[TableShape]:
        await connection.execute("lock table noetl.partition, noetl.meta, noetl.execution in access exclusive mode")
        if await connection.fetchval(statement("owner_count").text):
            raise Conflict(f"servers use the database at {self._address}", hint="stop them, and use a new database")
        tables = await _tables(connection)
        for name in (table.name for table in tables):
            if name in FILLED_BY_MIGRATIONS:
                await connection.execute(f"delete from {_SCHEMA}.{name}")
            elif await connection.fetchval(f"select exists (select from {_SCHEMA}.{name})"):
                raise Conflict(
                    f"the database at {self._address} is not empty: the table {name} has rows",
                    hint="restore into a new database",
                )
        return tables


class _Snapshot:
    def __init__(self, connection: Connection, shape: DatabaseShape) -> None:
        self._connection = connection
        self.shape = shape

    async def copy(self, table: TableShape, sink: Sink) -> int:
        columns = ", ".join(f'"{name}"' for name in table.columns)
        query = f"select {columns} from {_SCHEMA}.{table.name}"
        return _count(await self._connection.copy_from_query(query, output=sink, format="text"))


class _Target:
    def __init__(self, connection: Connection, tables: Sequence[TableShape]) -> None:
        self._connection = connection
        self._columns = {table.name: table.columns for table in tables}

    async def load(self, table: TableShape, lines: AsyncIterable[bytes]) -> int:
        if self._columns.get(table.name) != table.columns:
            raise NotReady(f"the backup has a table that its schema does not have: {table.name}")
        done = await self._connection.copy_to_table(
            table.name, schema_name=_SCHEMA, columns=table.columns, source=lines, format="text"
        )
        return _count(done)

    async def begin_generation(self, sequences: Mapping[str, SequencePosition]) -> int:
        for name in await _sequence_names(self._connection):
            if name in sequences:
                place = sequences[name]
                await self._connection.fetchval(
                    "select setval($1::regclass, $2, $3)", f"{_SCHEMA}.{name}", place.last_value, place.is_called
                )
        return int(await self._connection.fetchval(statement("begin_generation").text))


async def _applied_migrations(connection: Connection) -> list[AppliedMigration]:
    if not await connection.fetchval(statement("migration_table_exists").text):
        return []
    return [AppliedMigration(*row) for row in await connection.fetch(statement("applied_migrations").text)]


async def _shape(connection: Connection) -> DatabaseShape:
    positions = {}
    for name in await _sequence_names(connection):
        row = await connection.fetchrow(f"select last_value, is_called from {_SCHEMA}.{name}")
        assert row is not None
        positions[name] = SequencePosition(*row)
    return DatabaseShape(
        migrations=[(one.name, one.checksum) for one in await _applied_migrations(connection)],
        generation=await connection.fetchval(statement("generation").text),
        tables=await _tables(connection),
        sequences=positions,
        months=[Month(*row) for row in await connection.fetch(statement("months").text)],
    )


async def _tables(connection: Connection) -> list[TableShape]:
    rows = await connection.fetch(statement("tables").text)
    return [TableShape(name, tuple(columns)) for name, columns in rows if name not in NOT_COPIED]


async def _sequence_names(connection: Connection) -> list[str]:
    return [row[0] for row in await connection.fetch(statement("sequences").text)]


def _known_migrations(migrations: Sequence[tuple[str, str]]) -> int:
    """Returns the number of migrations in the backup; raises NotReady unless they are this version's first ones."""
    known = known_migrations()
    for place, (name, checksum) in enumerate(migrations):
        if place >= len(known) or (known[place].name, known[place].checksum) != (name, checksum):
            raise NotReady(
                f"the backup has a schema that this version does not know: {name}",
                hint="restore it with the release that made it, or a later one",
            )
    return len(migrations)


async def _replace_months(connection: Connection, months: Sequence[Month]) -> None:
    """Splits the empty journal into the partitions of the backup: the months of this year, and of past ones."""
    for row in await connection.fetch(statement("months").text):
        await connection.execute(f"drop table {_SCHEMA}.{row[0]}")
    for month in months:
        name, lowest, following = await connection.fetchrow(  # type: ignore[misc]
            "select quote_ident($1), coalesce(quote_literal(nullif($2, '')), 'minvalue'), quote_literal($3)",
            month.name,
            month.from_id,
            month.to_id,
        )
        await connection.execute(
            f"create table {_SCHEMA}.{name} partition of {_SCHEMA}.event for values from ({lowest}) to ({following})"
        )


def _count(done: str) -> int:
    """Returns the number in Postgres's answer ``COPY 12``."""
    return int(done.split()[-1])
