"""The connection on which a server commits ticks (PROTOCOL §2 *Lease and fence*)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import asyncpg
from msgspec.structs import asdict, astuple, replace

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, translate_error, was_answered
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.connections.own_connection import OwnConnection
from noetl_stream.adapters.postgres.statements import commit_statement, statement
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.ports.stores.store import PartitionLease, Tick
from noetl_stream.protocol.rows import Row, columns

SMALL_TICK_ENTRIES: Final = 64
"""Up to how many entries one statement commits a tick; above, events are copied (HOT_PATH §5 *Two commit shapes*).

Ticks with rare rows are committed the second way too, so that ordinary ones do not pay for them.
"""

COMMIT_TIMEOUT_S: Final = 30.0
END_BACKEND_TIMEOUT_MS: Final = 5_000
SESSION: Final = {"idle_in_transaction_session_timeout": "5000"}


class Writer:
    """Commits ticks, one at a time. After a failure it discards its connection, and the next call opens another."""

    def __init__(self, database: Database, *, commit_timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        self._database = database
        self._commit_timeout_s = commit_timeout_s
        self.connection = OwnConnection(database, SESSION)

    async def commit(self, tick: Tick) -> None:
        """Commits a tick. See :meth:`noetl_stream.ports.stores.store.Store.commit`.

        Raises:
            ValueError: the tick has no partition to fence it.
        """
        if not tick.partitions:
            raise ValueError("a tick must name at least one partition")
        small = len(tick.entries) <= SMALL_TICK_ENTRIES and not (
            tick.object_uses or tick.dead_letters or tick.stale_reports
        )
        shape = _commit_small if small else _commit_large
        try:
            await self.connection.use(lambda connection: shape(connection, tick, self._commit_timeout_s))
        except DRIVER_ERRORS as error:
            if was_answered(error):
                raise translate_error(error, self._database.address) from error
            raise OutcomeUnknown(
                f"Postgres at {self._database.address} did not answer a commit",
                hint="it may be committed: read the ticks before the next commit",
            ) from error

    async def owned(self, owner: str) -> list[PartitionLease]:
        """Returns an owner's leases. See :meth:`noetl_stream.ports.stores.store.Store.owned`.

        Ends discarded connections first: their transactions could still commit, or lock their rows for ever.
        """
        connection = await self._database.connect()
        try:
            await self._end_discarded(connection)
            mine = statement("owned")
            rows = await connection.fetch(mine.text, *mine.arguments({"owner": owner}), timeout=self._commit_timeout_s)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.address) from error
        finally:
            connection.terminate()
        return [PartitionLease(*row) for row in rows]

    async def close(self) -> None:
        await self.connection.close()

    async def _end_discarded(self, connection: Connection) -> None:
        backends, name = list(self.connection.discarded), self._database.application_name
        if not backends:
            return
        end = statement("end_backends")
        values = {"backends": backends, "application_name": name, "wait_ms": END_BACKEND_TIMEOUT_MS}
        async with asyncio.timeout(self._commit_timeout_s):
            while await connection.fetch(end.text, *end.arguments(values)):
                pass
        self.connection.discarded.difference_update(backends)


async def _commit_small(connection: Connection, tick: Tick, timeout_s: float) -> None:
    commit = commit_statement(tick)
    await connection.execute(commit.text, *commit.arguments(asdict(tick)), timeout=timeout_s)


async def _commit_large(connection: Connection, tick: Tick, timeout_s: float) -> None:
    rest = replace(tick, entries=())
    commit, use = commit_statement(rest), statement("use_objects")
    async with asyncio.timeout(timeout_s):
        await connection.execute("begin")
        await connection.execute(commit.text, *commit.arguments(asdict(rest)))
        try:
            await _copy(connection, "event", tick.entries)
            await _copy(connection, "dead_letter", tick.dead_letters)
            await _copy(connection, "stale_report", tick.stale_reports)
        except (ValueError, TypeError, OverflowError) as error:  # asyncpg wraps these for statements, but not for COPY
            raise asyncpg.DataError(str(error)) from error
        if tick.object_uses:
            await connection.execute(use.text, *use.arguments(asdict(tick)))
        await connection.execute("commit")


async def _copy(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    if rows:
        await connection.copy_records_to_table(
            table, schema_name="noetl", columns=columns(type(rows[0])), records=map(astuple, rows)
        )
