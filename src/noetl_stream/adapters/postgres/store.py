"""The fold's store on Postgres."""

from __future__ import annotations

from noetl_stream.adapters.postgres.access import PostgresAudit, PostgresTokens
from noetl_stream.adapters.postgres.catalog import PostgresCatalog
from noetl_stream.adapters.postgres.credentials import PostgresCredentials
from noetl_stream.adapters.postgres.database import Database
from noetl_stream.adapters.postgres.dead_letters import PostgresDeadLetters
from noetl_stream.adapters.postgres.deleting import Deleting
from noetl_stream.adapters.postgres.feed import PostgresFeed
from noetl_stream.adapters.postgres.idempotency import PostgresIdempotency
from noetl_stream.adapters.postgres.leases import Leases
from noetl_stream.adapters.postgres.listing import Listing
from noetl_stream.adapters.postgres.migrate import AppliedMigration, require_schema
from noetl_stream.adapters.postgres.reading import JournalReads
from noetl_stream.adapters.postgres.writer import COMMIT_TIMEOUT_S, Writer
from noetl_stream.errors import NotReady
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.store import PartitionLease, Tick


class PostgresStore(Leases, JournalReads, Listing, Deleting):
    """A :class:`~noetl_stream.ports.store.Store` in the schema ``noetl`` of one database.

    ``catalog``, ``credentials``, ``tokens``, ``audit`` and ``dead_letters`` are other ports over the same connections.
    """

    def __init__(self, database: Database, *, commit_timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        self._database = database
        self.catalog = PostgresCatalog(database)
        self.credentials = PostgresCredentials(database)
        self.tokens = PostgresTokens(database)
        self.audit = PostgresAudit(database)
        self.feed = PostgresFeed(database)
        self.idempotency = PostgresIdempotency(database)
        self.dead_letters = PostgresDeadLetters(database)
        self._writer = Writer(database, commit_timeout_s=commit_timeout_s)

    @classmethod
    async def open(cls, dsn: str, *, name: str, commit_timeout_s: float = COMMIT_TIMEOUT_S) -> PostgresStore:
        """Connects to ``dsn``, a ``postgresql://`` URL; the schema is not looked at: call :meth:`verify`.

        ``name`` tells this process from others in ``pg_stat_activity``.

        Raises:
            Unreachable: no answer within ten seconds, or refused: wrong password, no such database.
            NotReady: the server is older than version 14.
            UsageError: ``dsn`` is no Postgres URL.
        """
        return cls(await Database.open(dsn, name), commit_timeout_s=commit_timeout_s)

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless schema and number of partitions are this version's."""
        address = self._database.address
        exists = (await self._database.fetch("migration_table_exists"))[0][0]
        rows = await self._database.fetch("applied_migrations") if exists else []
        require_schema([AppliedMigration._make(row) for row in rows], address)
        partitions = (await self._database.fetch("partition_count"))[0][0]
        if partitions != PARTITIONS:
            raise NotReady(
                f"the database at {address} is cut into {partitions} partitions, this version into {PARTITIONS}",
                hint="the number is fixed when a database is made: use the noetl-stream that made it",
            )

    async def durability_warnings(self) -> list[str]:
        """One line for each setting under which Postgres may lose what it has called committed; normally none."""
        rows = await self._database.fetch("unsafe_settings")
        return [f"Postgres has {name} = {value}: a power failure may lose acknowledged work" for name, value in rows]

    async def commit(self, tick: Tick) -> None:
        """See :meth:`noetl_stream.ports.store.Store.commit`.

        Raises:
            Fenced: nothing was written.
            JournalConflict: a position or request exists already; nothing was written.
            PayloadRefused: Postgres does not take a row; nothing was written.
            Unreachable: not connected, or refused (disk full); nothing was written.
            OutcomeUnknown: call :meth:`owned` before going on.
        """
        await self._writer.commit(tick)

    async def take_over(self, owner: str, lease_s: float, limit: int) -> list[PartitionLease]:
        """See :meth:`noetl_stream.ports.store.Store.take_over`. Sorted by id."""
        return await self._writer.take_over(owner, lease_s, limit)

    async def owned(self, owner: str) -> list[PartitionLease]:
        """See :meth:`noetl_stream.ports.store.Store.owned`. By then no earlier commit is under way."""
        return await self._writer.owned(owner)

    async def close(self) -> None:
        await self._writer.close()
        await self._database.close()
