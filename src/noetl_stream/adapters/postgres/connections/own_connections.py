"""The two connections that a server keeps for itself: one commits ticks, the other meanwhile keeps its leases.

PROTOCOL §2 *Lease and fence*, §7 *Renewal apart from work*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import asyncpg
from msgspec.structs import asdict, astuple, replace

from noetl_stream.adapters.postgres.connections.database import CLOSE_TIMEOUT_S, Database, DatabasePort
from noetl_stream.adapters.postgres.connections.failures import (
    DRIVER_ERRORS,
    translate_error,
    translating,
    was_answered,
)
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.statements import commit_statement, fetch_on
from noetl_stream.errors import NotReady, OutcomeUnknown
from noetl_stream.ports.stores.store import LONGEST_LEASE_S, PartitionLease, Tick
from noetl_stream.protocol.rows import Row, columns

SMALL_TICK_ENTRIES: Final = 64
"""The most entries of a tick that one statement commits; above, events are copied (HOT_PATH §5 *Two commit shapes*).

Ticks with rare rows are committed the second way too, so that ordinary ones do not pay for them.
"""

COMMIT_TIMEOUT_S: Final = 30.0
END_BACKEND_TIMEOUT_MS: Final = 5_000
COMMITTING: Final = {"idle_in_transaction_session_timeout": "5000"}
RENEWING: Final = {"lock_timeout": "2000"}
"""The time for which a renewal waits for a tick of its own server: no longer than until the next renewal is due."""

_Answer = TypeVar("_Answer")


class OwnConnection:
    """A connection opened by the first call, and by the first after a failure.

    Attributes:
        discarded: Backends of connections that were given up: their statements may still run.
    """

    def __init__(self, database: Database, settings: dict[str, str]) -> None:
        self._database = database
        self._settings = settings
        self._connection: Connection | None = None
        self._alone = asyncio.Lock()
        self.discarded: set[int] = set()

    @property
    def open_backend(self) -> int | None:
        """The process id of the connection's backend; ``None`` if it is not open."""
        connection = self._connection
        return None if connection is None or connection.is_closed() else connection.get_server_pid()

    async def backend(self) -> int:
        """Returns :attr:`open_backend`; opens the connection if necessary. Raises as :meth:`Database.connect` does."""
        found = self.open_backend
        return await self.use(_backend_of) if found is None else found

    async def use(self, work: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
        """Returns the result of ``work`` on the connection.

        Raises:
            NoetlError: the driver's errors, translated by :func:`~.failures.translate_error`.
            NotReady: the connection goes through a pooler, such as PgBouncer.
        """
        with translating(self._database.address):
            return await self.use_untranslated(work)

    async def use_untranslated(self, work: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
        """Returns the result of ``work`` like :meth:`use`, but raises the errors of the driver."""
        async with self._alone:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._open()
            connection = self._connection
            backend = connection.get_server_pid()
            try:
                with self._database.overdue.watching(connection):
                    return await work(connection)
            except BaseException as error:  # a cancelled call leaves its statement running too
                if not was_answered(error):
                    self.discarded.add(backend)
                connection.terminate()
                raise

    async def _open(self) -> Connection:
        connection = await self._database.connect(self._settings)
        try:
            if await connection.fetchval("select pg_backend_pid()") == connection.get_server_pid():
                return connection
        except BaseException:
            connection.terminate()
            raise
        connection.terminate()
        raise NotReady(
            f"a pooler is between this server and Postgres at {self._database.address}",
            hint="connect servers to Postgres itself: they end transactions by the process ids of Postgres",
        )

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=CLOSE_TIMEOUT_S)
            except DRIVER_ERRORS:
                connection.terminate()


async def _backend_of(connection: Connection) -> int:
    return connection.get_server_pid()


class ServerConnections(DatabasePort):
    """The methods of :class:`~noetl_stream.ports.stores.store.Store` that commit ticks and keep leases.

    Ticks, one at a time, and takeovers must not delay renewals, which have a separate connection. Rows name the backend
    of the first, so that another server can end it. A connection is discarded after a failure, and the next call opens
    another.
    """

    def __init__(self, database: Database, *, commit_timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        super().__init__(database)
        self._commit_timeout_s = commit_timeout_s
        self.ticks = OwnConnection(database, COMMITTING)
        self._renewals = OwnConnection(database, RENEWING)

    async def commit(self, tick: Tick) -> None:
        """Commits a tick. See :meth:`noetl_stream.ports.stores.store.Store.commit`.

        Raises:
            ValueError: the tick has no partition to fence it.
            Fenced: nothing was written.
            JournalConflict: a position or request exists already; nothing was written.
            PayloadRefused: Postgres rejects a row; nothing was written.
            Unreachable: not connected, or refused (disk full); nothing was written.
            OutcomeUnknown: call :meth:`owned` before the next commit.
        """
        if not tick.partitions:
            raise ValueError("a tick must name at least one partition")
        small = len(tick.entries) <= SMALL_TICK_ENTRIES and not (
            tick.object_uses or tick.dead_letters or tick.stale_reports
        )
        shape = _commit_small if small else _commit_large
        try:
            await self.ticks.use_untranslated(lambda connection: shape(connection, tick, self._commit_timeout_s))
        except DRIVER_ERRORS as error:
            if was_answered(error):
                raise translate_error(error, self._database.address) from error
            raise OutcomeUnknown(
                f"Postgres at {self._database.address} did not answer a commit",
                hint="it may be committed: read the ticks before the next commit",
            ) from error

    async def owned(self, owner: str) -> list[PartitionLease]:
        """Returns an owner's leases, once earlier commits end. See :meth:`noetl_stream.ports.stores.store.Store.owned`.

        Ends discarded connections first: their transactions could still commit, or lock their rows for ever.
        """
        connection = await self._database.connect()
        try:
            with translating(self._database.address):
                await self._end_discarded(connection)
                rows = await fetch_on(connection, "owned", {"owner": owner}, self._commit_timeout_s)
        finally:
            connection.terminate()
        return [PartitionLease(*row) for row in rows]

    async def take_over(
        self, owner: str, lease_s: float, limit: int, alive: Collection[str] = (), left: Collection[int] = ()
    ) -> list[PartitionLease]:
        """Takes over free partitions, sorted by id. See :meth:`noetl_stream.ports.stores.store.Store.take_over`."""
        values = {
            "owner": owner,
            "backend": await self.ticks.backend(),
            "lease_s": lease_s,
            "longest_s": LONGEST_LEASE_S,
            "limit": limit,
            "alive": list(alive),
            "left": list(left),
        }
        rows = await self._fetch_on(self.ticks, "take_over", values)
        return sorted((PartitionLease(*row) for row in rows), key=attrgetter("id"))

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float, behind: int = 0) -> set[int]:
        """Renews leases. A tick of the owner delays only its own partitions, which nobody can take meanwhile."""
        values = {"owner": owner, "backend": self.ticks.open_backend, "lease_s": lease_s, "behind": behind}
        rows = await self._fetch_on(self._renewals, "renew", values | _arrays(epochs))
        renewed = {row["id"] for row in rows if row["is_renewed"]}
        locked = [(row["id"], row["epoch"]) for row in rows if not row["is_renewed"]]
        if locked:
            renewed |= await self._renewed_once_free(locked, values)
        return renewed

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        values = {"owner": owner, "published_ticks": published, **_arrays(epochs)}
        await self._fetch_on(self._renewals, "give_back", values)

    async def end_frozen(self, alive: Collection[str]) -> list[str]:
        return [row[0] for row in await self._fetch_on(self.ticks, "end_frozen", {"alive": list(alive)})]

    async def lease_clock_ms(self) -> int:
        return int((await self._fetch_on(self._renewals, "now_ms", {}))[0][0])

    async def close(self) -> None:
        await self._renewals.close()
        await self.ticks.close()

    async def _renewed_once_free(self, locked: Sequence[tuple[int, int]], values: dict[str, Any]) -> set[int]:
        """Returns which of these partitions are still owned; all of them if they are still locked after a while."""

        async def renew(connection: Connection) -> set[int]:
            try:
                rows = await fetch_on(connection, "renew_locked", values | _arrays(locked))
                return {row["id"] for row in rows}
            except asyncpg.LockNotAvailableError:
                return {id for id, _ in locked}

        return await self._renewals.use(renew)

    async def _fetch_on(self, own: OwnConnection, query: str, values: dict[str, Any]) -> list[asyncpg.Record]:
        return await own.use(lambda connection: fetch_on(connection, query, values))

    async def _end_discarded(self, connection: Connection) -> None:
        backends, name = list(self.ticks.discarded), self._database.application_name
        if not backends:
            return
        values = {"backends": backends, "application_name": name, "wait_ms": END_BACKEND_TIMEOUT_MS}
        async with asyncio.timeout(self._commit_timeout_s):
            while await fetch_on(connection, "end_backends", values):
                pass
        self.ticks.discarded.difference_update(backends)


async def _commit_small(connection: Connection, tick: Tick, timeout_s: float) -> None:
    commit = commit_statement(tick)
    await connection.execute(commit.text, *commit.arguments(asdict(tick)), timeout=timeout_s)


async def _commit_large(connection: Connection, tick: Tick, timeout_s: float) -> None:
    rest = replace(tick, entries=())
    commit = commit_statement(rest)
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
            await fetch_on(connection, "use_objects", asdict(tick))
        await connection.execute("commit")


async def _copy(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    if rows:
        await connection.copy_records_to_table(
            table, schema_name="noetl", columns=columns(type(rows[0])), records=map(astuple, rows)
        )


def _arrays(epochs: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"partition_ids": [id for id, _ in epochs], "epochs": [epoch for _, epoch in epochs]}
