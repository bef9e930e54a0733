"""The fold's store on Postgres: the rows of ticks, with its dead letters, its feed and the cursors of partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.adapters.postgres.connections.database import Database, DatabasePort, queried
from noetl_stream.adapters.postgres.connections.own_connections import COMMIT_TIMEOUT_S, ServerConnections
from noetl_stream.adapters.postgres.listing import Listing
from noetl_stream.adapters.postgres.schema.migrate import AppliedMigration, require_schema, require_texts
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.adapters.postgres.tables import (
    PostgresAggregates,
    PostgresAudit,
    PostgresCatalog,
    PostgresCredentials,
    PostgresGrants,
    PostgresIdempotency,
    PostgresLimits,
    PostgresRights,
    PostgresSessions,
    PostgresTokens,
)
from noetl_stream.errors import Fenced, NotReady
from noetl_stream.model.events.composite import with_composites
from noetl_stream.model.ids import partition_count
from noetl_stream.model.json import codec
from noetl_stream.model.labels import LOST_AFTER_S
from noetl_stream.model.search_terms import (
    due_terms,
    duration_terms,
    error_terms,
    input_terms,
    key_terms,
    label_terms,
    step_terms,
    worker_terms,
)
from noetl_stream.ports.stores.cursors import Cursors, Repair
from noetl_stream.ports.stores.dead_letters import DeadLetter, DeadLetterRow, DeadLetters, LetterBounds
from noetl_stream.ports.stores.fed_events import FedEvent, FeedFloor, FeedStore
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEntry, StoredEvent
from noetl_stream.settings.sources.environment import EMBEDDED_CLUSTER
from noetl_stream.storage.journal import events_of, last_position, page_of

if TYPE_CHECKING:  # commands that read start faster without them
    from noetl_stream.adapters.postgres.upkeep import PostgresDiagnosis, PostgresRetention

ENTRIES_AT_ONCE: Final = 500
"""The number of journal entries that are searched at once for events of certain names."""

EVENTS_AT_ONCE: Final = 5_000
"""The most journal entries that one transaction deletes, to keep it short."""


class PostgresStore(PostgresAggregates, PostgresLimits, Listing, ServerConnections):
    """:class:`~noetl_stream.ports.stores.store.Store` in the schema ``noetl`` of one database; the port documents each
    method.

    Its attributes are the other ports over the same connections.
    """

    appear = queried(Store.appear)
    read_partitions = queried(Store.read_partitions)
    owner_count = queried(Store.owner_count)
    now_ms = queried(Store.now_ms)
    ticks_before = queried(Store.ticks_before)
    snapshots = queried(Store.snapshots)
    drop_snapshots = queried(Store.drop_snapshots)
    iteration_results = queried(Store.iteration_results)
    entries_at = queried(Store.entries_at)
    inbox = queried(Store.inbox)
    inbox_end = queried(Store.inbox_end)
    timers = queried(Store.timers)
    objects_used_elsewhere = queried(Store.objects_used_elsewhere)
    objects_kept_for = queried(Store.objects_kept_for)
    timers_in = queried(Store.timers_in)
    living_by_status = queried(Store.living_by_status)
    stored_by_path = queried(Store.stored_by_path)
    stuck = queried(Store.stuck)
    live_executions = queried(Store.live_executions)
    resting_executions = queried(Store.resting_executions)
    executions = queried(Store.executions)
    request = queried(Store.request)
    playbook = queried(Store.playbook)
    newest_execution = queried(Store.newest_execution)
    hold_key = queried(Store.hold_key, lost_after_s=LOST_AFTER_S)
    key_holder = queried(Store.key_holder)
    looked_into_by = queried(Store.looked_into_by)
    begin_deleting = queried(Store.begin_deleting)

    def __init__(self, database: Database, *, commit_timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        super().__init__(database, commit_timeout_s=commit_timeout_s)
        self.catalog = PostgresCatalog(database)
        self.credentials = PostgresCredentials(database)
        self.grants = PostgresGrants(database)
        self.tokens = PostgresTokens(database)
        self.rights = PostgresRights(database)
        self.sessions = PostgresSessions(database)
        self.audit = PostgresAudit(database)
        self.feed = PostgresFeed(database)
        self.cursors = PostgresCursors(database)
        self.idempotency = PostgresIdempotency(database)
        self.dead_letters = PostgresDeadLetters(database)

    @cached_property
    def diagnosis(self) -> PostgresDiagnosis:
        from noetl_stream.adapters.postgres.upkeep import PostgresDiagnosis

        return PostgresDiagnosis(self._database)

    @cached_property
    def retention(self) -> PostgresRetention:
        from noetl_stream.adapters.postgres.upkeep import PostgresRetention

        return PostgresRetention(self._database)

    @classmethod
    async def open(
        cls, dsn: str, *, name: str, commit_timeout_s: float = COMMIT_TIMEOUT_S, patience_s: float = 0.0
    ) -> PostgresStore:
        """Connects to ``dsn``, a ``postgresql://`` URL. The schema is not checked: call :meth:`verify`.

        ``name`` and ``patience_s``: as for :meth:`~noetl_stream.adapters.postgres.connections.database.Database.open`.

        Raises:
            Unreachable: no answer within ten seconds, or refused: wrong password, unknown database.
            NotReady: the server is older than version 14.
            UsageError: ``dsn`` is not a Postgres URL.
        """
        return cls(await Database.open(dsn, name, patience_s=patience_s), commit_timeout_s=commit_timeout_s)

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless schema and number of partitions are this version's."""
        require_texts(await self.verify_version(), self._database.address)

    async def verify_version(self) -> Sequence[AppliedMigration]:
        """Verifies the schema like :meth:`verify`, but reads no file, and so does not detect a changed one.

        Returns:
            The applied migrations.
        """
        address = self._database.address
        try:
            rows = await self._database.fetch("schema_version")
        except NotReady:
            if await self._value("migration_table_exists"):
                raise
            rows = []
        applied = [AppliedMigration(row["number"], row["name"], row["checksum"]) for row in rows]
        require_schema(applied, address)
        partitions = rows[0]["partitions"]
        if partitions != partition_count():
            raise NotReady(
                f"the database at {address} has {partitions} partitions, this process {partition_count()}",
                hint=f"set NOETL_PARTITIONS={partitions}; `noetl-stream database repartition` changes the stores",
            )
        return applied

    async def durability_warnings(self) -> list[str]:
        rows = await self._database.fetch("unsafe_settings", embedded_cluster=EMBEDDED_CLUSTER)
        return [_durability_warning(name, value) for name, value in rows]

    async def close(self) -> None:
        await super().close()
        await self._database.close()

    # --- ticks and leases ---------------------------------------------------------------------------------------------

    async def set_folding(
        self, owner: str, partition: int, epoch: int, execution_id: str | None, cleared: bool = False
    ) -> None:
        rows = await self._database.fetch(
            "set_folding", owner=owner, partition=partition, epoch=epoch, execution_id=execution_id, cleared=cleared
        )
        if not rows:
            raise Fenced("another server has the partition")

    # --- reading ------------------------------------------------------------------------------------------------------

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        rows_limit = None if limit is None else limit + 1  # the first row may contain none of the events
        rows = await self._database.fetch("journal", execution_id=execution_id, after=after, limit=rows_limit)
        return page_of(execution_id, starmap(StoredEntry, rows), after, limit)

    async def events_named(
        self, execution_id: str, names: Collection[str], after: int = 0, limit: int | None = None
    ) -> list[StoredEvent]:
        patterns = [f'%"name":"{name}"%' for name in with_composites(names)]
        found: list[StoredEvent] = []
        while limit is None or len(found) < limit:
            rows = await self._database.fetch(
                "events_named", execution_id=execution_id, patterns=patterns, after=after, limit=ENTRIES_AT_ONCE
            )
            entries = [StoredEntry(*row) for row in rows]
            left = None if limit is None else limit - len(found)
            found += page_of(execution_id, entries, after, left, names)
            if len(entries) < ENTRIES_AT_ONCE:
                break
            after = last_position(execution_id, entries[-1])
        return found

    async def journals(self, after: Mapping[str, int], limit: int | None = None) -> dict[str, list[StoredEntry]]:
        journals: dict[str, list[StoredEntry]] = {execution_id: [] for execution_id in after}
        rows = await self._database.fetch(
            "journals", execution_ids=list(after), positions=list(after.values()), limit=limit
        )
        for execution_id, *entry in rows:
            journals[execution_id].append(StoredEntry(*entry))
        return journals

    async def grown(self, ticks: Mapping[int, int]) -> dict[str, int]:
        rows = await self._database.fetch("grown", partition_ids=list(ticks), ticks=list(ticks.values()))
        return {row[0]: row[1] for row in rows}

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        return (await self.executions([execution_id])).get(execution_id)

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        execution_ids, request_ids = zip(*requests, strict=True) if requests else ((), ())
        rows = await self._database.fetch("answered", execution_ids=execution_ids, request_ids=request_ids)
        return set(map(tuple, rows))

    # --- deleting -----------------------------------------------------------------------------------------------------

    async def delete_execution(self, execution_id: str, *, keep_journal: bool = False) -> bool:
        row = await self.execution(execution_id)
        if row is None:
            return False
        while not keep_journal and await self._database.fetch(
            "delete_events", execution_id=execution_id, limit=EVENTS_AT_ONCE
        ):
            pass
        terms = label_terms(codec.decode_json(row.labels)) | key_terms(row.key) | step_terms(row.failed_step)
        terms |= input_terms(codec.decode_json(row.inputs)) | due_terms(row.due)
        terms |= worker_terms(codec.decode_json(row.workers))
        if row.finished_ms is not None:
            terms |= duration_terms(row.finished_ms - row.started_ms)
        if row.error is not None:
            terms |= error_terms(codec.decode_json(row.error))
        return bool(await self._database.fetch("delete_execution", execution_id=execution_id, terms=sorted(terms)))


class PostgresFeed(DatabasePort):
    """:class:`~noetl_stream.ports.stores.fed_events.FeedStore` over the table ``noetl.feed``; the port documents each
    method.
    """

    now = queried(FeedStore.now, "feed_now")
    told = queried(FeedStore.told, "feed_told")
    trim = queried(FeedStore.trim, "feed_trim")

    async def floor(self) -> FeedFloor:
        (first, *rows) = sorted(await self._database.fetch("feed_floor"), key=lambda row: row[0] is not None)
        return FeedFloor(first[1], {row[0]: row[1] for row in rows})

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        rows = await self._database.fetch("feed", partition_ids=list(after), ticks=list(after.values()), limit=limit)
        return [event for row in rows for event in _fed_events(row)]

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        await self._database.fetch(
            "feed_set_told", reader=reader, partition_ids=list(ticks), ticks=list(ticks.values())
        )


def _letter(row: Any) -> DeadLetter:
    return DeadLetter(row["number"], row_of(DeadLetterRow, row), row["state"], row["settled_ms"], row["settled_by"])


class PostgresDeadLetters(DatabasePort):
    """:class:`~noetl_stream.ports.stores.dead_letters.DeadLetters`; the port documents each method."""

    known = queried(DeadLetters.known, "known_dead_letters")
    requeue = queried(DeadLetters.requeue, "requeue_dead_letter")
    discard = queried(DeadLetters.discard, "discard_dead_letter")
    held = queried(DeadLetters.held, "held_dead_letters")
    add = queried(DeadLetters.add, "add_dead_letter")
    page = queried(DeadLetters.page, "dead_letters", _letter)
    get = queried(DeadLetters.get, "dead_letter", _letter)

    async def trim(self, bounds: LetterBounds, now_ms: int, limit: int) -> int:
        rows = await self._database.fetch(
            "trim_dead_letters",
            most=bounds.letters,
            most_bytes=bounds.bytes,
            before_ms=now_ms - int(bounds.age_s * 1000),
            at_once=limit,
        )
        return int(rows[0][0])


class PostgresCursors(DatabasePort):
    """:class:`~noetl_stream.ports.stores.cursors.Cursors` in ``noetl.partition``; the port documents each method."""

    all = queried(Cursors.all, "cursors")
    floor = queried(Cursors.floor, "events_floor")
    move_floor = queried(Cursors.move_floor, "move_events_floor")

    async def partition_count(self) -> int:
        """Returns P of the database."""
        return int(await self._value("partition_count"))

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        rows = await self._database.fetch(
            "repair_partitions",
            partition_ids=[one.partition for one in repairs],
            folded=[one.folded for one in repairs],
            last_seqs=[one.last_seq for one in repairs],
            last_times=[one.last_ms for one in repairs],
            ticks=[one.tick for one in repairs],
            published_ticks=[one.published_tick for one in repairs],
            epochs=[one.epoch for one in repairs],
            owner=owner,
        )
        return {row[0] for row in rows}


def _durability_warning(setting: str, value: str) -> str:
    if setting == "synchronous_standby_names":
        missing = "no synchronous standby (synchronous_standby_names is empty)"
        return f"Postgres has {missing}: a failover may lose acknowledged work"
    return f"Postgres has {setting} = {value}: a power failure or failover may lose acknowledged work"


def _fed_events(row: Any) -> Iterator[FedEvent]:
    split = len(FedEvent.__struct_fields__) - 1
    fed, entry = FedEvent(*row[:split]), row[split:]
    if entry[0] is None:
        yield fed
        return
    for number, event in enumerate(events_of(fed.execution_id, (StoredEntry(*entry),)), fed.number):
        yield replace(fed, number=number, event=event)
