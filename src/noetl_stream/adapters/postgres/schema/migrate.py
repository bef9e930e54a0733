"""Creates, upgrades and repartitions the schema ``noetl``: numbered files, each applied once, in a transaction."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from noetl_stream.adapters.postgres.connections.database import separate_connection, shown_address
from noetl_stream.adapters.postgres.connections.failures import MIGRATE
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.schema.roles import GRANTS, create_roles, give_grants
from noetl_stream.adapters.postgres.statements import fetch_on, statement
from noetl_stream.errors import Conflict, NotReady
from noetl_stream.model.ids import partition_of

_ADVISORY_LOCK: Final = 0x6E6F65746C
"""The lock held while migrating, so that programs migrate one after the other. The number spells "noetl"."""


MIGRATIONS: Final = Path(__file__).with_name("migrations")

LAST_STOP: Final = 24
"""The last migration before which servers of 0.2 have to be stopped."""

_DROPS: Final = "_drop_"

MOVED_AT_ONCE: Final = 10_000
"""The number of executions that a repartition moves with one statement."""


class Migration(msgspec.Struct, frozen=True, gc=False):
    """A file of ``migrations/``: ``0001_partition.sql`` is migration 1, named ``0001_partition``."""

    number: int
    name: str

    @property
    def text(self) -> str:
        return _text(self.name)

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def expands(self) -> bool:
        """Whether programs that do not know the migration keep working. Not if its name has ``_drop_``."""
        return self.number > LAST_STOP and _DROPS not in self.name


class AppliedMigration(msgspec.Struct, frozen=True, gc=False):
    """A row of ``noetl.migration``."""

    number: int
    name: str
    checksum: str


@cache
def known_migrations() -> tuple[Migration, ...]:
    """Returns all migrations of this version, in order."""
    names = [file.stem for file in MIGRATIONS.iterdir() if file.suffix == ".sql"]
    return tuple(Migration(int(name.split("_")[0]), name) for name in sorted(names))


@cache
def _text(name: str) -> str:
    return (MIGRATIONS / f"{name}.sql").read_text(encoding="utf-8")


def schema_mark() -> str:
    """Returns a digest that changes with the result of :func:`migrate`. Does not read the files."""
    files = [entry for folder in (MIGRATIONS, GRANTS) for entry in os.scandir(folder)]
    marks = sorted(f"{one.name} {one.stat().st_size} {one.stat().st_ctime_ns}" for one in files)
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()


async def migrate(dsn: str, *, roles: bool = False, through: int | None = None) -> list[str]:
    """Migrates the schema to this version and returns the names of the migrations applied. Gives roles their grants.

    Args:
        roles: Whether to create the roles first.
        through: The last migration to apply, by default all. If given, no grants are made.

    Raises:
        Unreachable: no answer, or refused.
        NotReady: the schema is newer than this version, a file was changed after it was applied, or the user may not
            create roles.
        UsageError: ``dsn`` is not a Postgres URL.
    """
    async with separate_connection(dsn, "noetl-stream database migrate") as connection:
        return await _migrate(connection, shown_address(dsn), roles, through)


def pending_migrations(applied: list[AppliedMigration], address: str) -> list[Migration]:
    """Returns the migrations still to apply.

    Raises:
        NotReady: the schema is newer than this version.
    """
    known = {migration.number for migration in known_migrations()}
    for one in applied:
        if one.number not in known:
            raise NotReady(
                f"the database at {address} has a newer schema than this version knows: {one.name}",
                hint="use the newer noetl-stream that created it",
            )
    done = {migration.number for migration in applied}
    return [migration for migration in known_migrations() if migration.number not in done]


def require_texts(applied: Iterable[AppliedMigration], address: str) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` if a file was changed after it was applied."""
    known = {migration.number: migration for migration in known_migrations()}
    for one in applied:
        if one.number in known and known[one.number].checksum != one.checksum:
            raise NotReady(
                f"the database at {address} was created by a different {known[one.number].name}",
                hint="an applied migration must not be changed: use the noetl-stream that created the database",
            )


def require_schema(applied: list[AppliedMigration], address: str) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` unless this version's migrations were applied. Later ones may have
    been applied too, unless they drop something.
    """
    known = known_migrations()[-1].number
    pending = pending_migrations([one for one in applied if one.number <= known or _DROPS in one.name], address)
    if pending and not applied:
        raise NotReady(f"the database at {address} has no schema yet", hint=MIGRATE)
    if pending:
        raise NotReady(f"the database at {address} has an older schema: {pending[0].name} is missing", hint=MIGRATE)


async def _migrate(connection: Connection, address: str, roles: bool, through: int | None) -> list[str]:
    await connection.execute("select pg_advisory_lock($1)", _ADVISORY_LOCK)
    if roles:
        await create_roles(connection)
    if not await connection.fetchval(statement("migration_table_exists").text):
        await connection.execute(statement("create_migration_table").text)
    rows = await fetch_on(connection, "applied_migrations")
    applied = [AppliedMigration(*row) for row in rows]
    pending = pending_migrations(applied, address)
    require_texts(applied, address)
    if through is not None:
        pending = [migration for migration in pending if migration.number <= through]
    if rows and not all(migration.expands for migration in pending):
        await _require_no_server(connection, address)
    for migration in pending:
        # The last statement syncs them all to disk.
        unsynced = "" if migration is pending[-1] else "set local synchronous_commit = off;\n"
        # Statements that are sent together are one transaction.
        await connection.execute(f"{unsynced}{migration.text};\n{record_migration(migration)}")
    if through is None:  # grants are for all tables of this version
        await give_grants(connection)
    return [migration.name for migration in pending]


def record_migration(migration: Migration) -> str:
    """Returns the statement that marks a migration as applied."""
    values = f"{migration.number}, '{migration.name}', '{migration.checksum}'"
    return f"insert into noetl.migration (number, name, checksum) values ({values})"  # noqa: S608  of our own files


async def _require_no_server(connection: Connection, address: str) -> None:
    living = [row[0] for row in await fetch_on(connection, "living_owners")]
    if living:
        raise NotReady(
            f"servers of an older version run on the database at {address}: {', '.join(living)}",
            hint="stop all servers, workers and gateways first; a server that was killed counts until its lease ends",
        )


async def repartition(dsn: str, count: int, last_seq: int) -> int:
    """Moves every execution to its partition of ``count``, in one transaction.

    Args:
        last_seq: The last message of EVENTS. All messages up to it are folded, and will be removed.

    Returns:
        The number of executions in the database.

    Raises:
        Conflict: a server owns a partition.
        Unreachable: no answer, or refused.
    """
    async with (
        separate_connection(dsn, "noetl-stream database repartition") as connection,
        connection.transaction(),
    ):
        await connection.execute("lock table noetl.partition, noetl.meta in access exclusive mode")
        living = [row[0] for row in await fetch_on(connection, "living_owners")]
        if living:
            raise Conflict(f"servers own partitions: {', '.join(living)}", hint="stop the servers and repeat")
        moved = await _move_executions(connection, count)
        former = (await fetch_on(connection, "drop_partitions"))[0]
        await fetch_on(connection, "make_partitions", {"count": count, "last_seq": last_seq, **former})
        return moved


async def _move_executions(connection: Connection, count: int) -> int:
    moved, page = 0, {"after": "", "limit": MOVED_AT_ONCE}
    while ids := [row[0] for row in await fetch_on(connection, "executions_after", page)]:
        partitions = [partition_of(one, count) for one in ids]
        await fetch_on(connection, "move_executions", {"execution_ids": ids, "partitions": partitions})
        moved, page["after"] = moved + len(ids), ids[-1]
    return moved
