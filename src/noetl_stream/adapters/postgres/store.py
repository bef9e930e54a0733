"""The fold's store on Postgres: the rows of ticks, with its dead letters, its feed and the cursors of partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from noetl_stream.adapters.postgres.aggregates import PostgresAggregates, PostgresLimits
from noetl_stream.adapters.postgres.catalog import PostgresCatalog
from noetl_stream.adapters.postgres.connections.database import Database, DatabasePort
from noetl_stream.adapters.postgres.connections.own_connections import COMMIT_TIMEOUT_S, ServerConnections
from noetl_stream.adapters.postgres.identities import (
    PostgresAudit,
    PostgresCredentials,
    PostgresGrants,
    PostgresIdempotency,
    PostgresRights,
    PostgresSessions,
    PostgresTokens,
)
from noetl_stream.adapters.postgres.listing import Listing
from noetl_stream.adapters.postgres.schema.migrate import AppliedMigration, require_schema, require_texts
from noetl_stream.adapters.postgres.statements import row_of
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
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.stores.cursors import Cursor, Repair
from noetl_stream.ports.stores.dead_letters import DeadLetter, DeadLetterRow, HeldLetters, LetterBounds
from noetl_stream.ports.stores.fed_events import FedEvent, FeedFloor
from noetl_stream.ports.stores.store import (
    ExecutionRow,
    InboxItem,
    KnownServer,
    ObjectUseRow,
    PartitionView,
    PlaybookRow,
    RequestRow,
    SnapshotRow,
    StoredEntry,
    StoredEvent,
    TimerRow,
)
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

    async def appear(self, name: str, version: str, reads: int, live_s: float) -> list[KnownServer]:
        return await self._rows(KnownServer, "appear", name=name, version=version, reads=reads, live_s=live_s)

    async def set_folding(
        self, owner: str, partition: int, epoch: int, execution_id: str | None, cleared: bool = False
    ) -> None:
        rows = await self._database.fetch(
            "set_folding", owner=owner, partition=partition, epoch=epoch, execution_id=execution_id, cleared=cleared
        )
        if not rows:
            raise Fenced("another server has the partition")

    async def read_partitions(self, ids: Collection[int] | None = None) -> list[PartitionView]:
        return await self._rows(PartitionView, "read_partitions", ids=None if ids is None else list(ids))

    async def owner_count(self) -> int:
        return int(await self._value("owner_count"))

    async def now_ms(self) -> int:
        return int(await self._value("now_ms"))

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
        return await self._pairs("grown", partition_ids=list(ticks), ticks=list(ticks.values()))

    async def ticks_before(self, partitions: Collection[int], before_ms: int) -> dict[int, int]:
        return await self._pairs("ticks_before", partition_ids=list(partitions), before_ms=before_ms)

    async def snapshots(self, execution_ids: Collection[str], through: int | None = None) -> dict[str, SnapshotRow]:
        rows = await self._database.fetch("snapshots", execution_ids=list(execution_ids), through=through)
        return {row[0]: row_of(SnapshotRow, row) for row in rows}

    async def drop_snapshots(self, execution_id: str) -> None:
        await self._database.fetch("drop_snapshots", execution_id=execution_id)

    async def iteration_results(self, execution_id: str, step_run_id: str, after: int, limit: int) -> list[StoredEntry]:
        values = {"execution_id": execution_id, "step_run_id": step_run_id, "after": after, "limit": limit}
        return [StoredEntry(*row) for row in await self._database.fetch("iteration_results", **values)]

    async def entries_at(self, execution_id: str, positions: Collection[int]) -> list[StoredEntry]:
        values = {"execution_id": execution_id, "positions": list(positions)}
        return [StoredEntry(*row) for row in await self._database.fetch("entries_at", **values)]

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        return await self._rows(InboxItem, "inbox", partition_ids=list(partitions), limit=limit)

    async def inbox_end(self) -> int:
        ((end,),) = await self._database.fetch("inbox_end")
        return int(end)

    async def timers(self, execution_id: str) -> list[TimerRow]:
        return await self._rows_by_name(TimerRow, "timers", execution_id=execution_id)

    async def objects_used_elsewhere(self, execution_id: str) -> list[ObjectUseRow]:
        return await self._rows_by_name(ObjectUseRow, "objects_used_elsewhere", execution_id=execution_id)

    async def objects_kept_for(self, execution_id: str) -> list[ObjectUseRow]:
        return await self._rows_by_name(ObjectUseRow, "objects_kept_for", execution_id=execution_id)

    async def timers_in(self, partitions: Collection[int]) -> list[TimerRow]:
        return await self._rows_by_name(TimerRow, "timers_in", partition_ids=list(partitions))

    async def living_by_status(self) -> dict[ExecutionStatus, int]:
        return await self._pairs("living_by_status")

    async def stored_by_path(self) -> dict[str, int]:
        return await self._pairs("stored_by_path")

    async def stuck(self, limit: int) -> list[str]:
        return await self._column("stuck", limit=limit)

    async def live_executions(self, partitions: Collection[int]) -> dict[str, str]:
        return await self._pairs("live_executions", partition_ids=list(partitions))

    async def resting_executions(self, partitions: Collection[int]) -> set[str]:
        return set(await self._column("resting_executions", partition_ids=list(partitions)))

    async def newest_execution(self) -> str:
        return await self._value("newest_execution") or ""

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        return (await self.executions([execution_id])).get(execution_id)

    async def executions(self, execution_ids: Collection[str]) -> dict[str, ExecutionRow]:
        rows = await self._database.fetch("executions", execution_ids=list(execution_ids))
        return {row[0]: row_of(ExecutionRow, row) for row in rows}

    async def request(self, execution_id: str, request_id: str) -> RequestRow | None:
        rows = await self._database.fetch("request", execution_id=execution_id, request_id=request_id)
        return row_of(RequestRow, rows[0]) if rows else None

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        execution_ids, request_ids = zip(*requests, strict=True) if requests else ((), ())
        rows = await self._database.fetch("answered", execution_ids=execution_ids, request_ids=request_ids)
        return set(map(tuple, rows))

    async def playbook(self, digest: str) -> PlaybookRow | None:
        rows = await self._database.fetch("playbook", digest=digest)
        return row_of(PlaybookRow, rows[0]) if rows else None

    async def hold_key(self, path: str, key: str, execution_id: str) -> str:
        values = {"path": path, "key": key, "execution_id": execution_id}
        return str(await self._value("hold_key", **values, lost_after_s=LOST_AFTER_S))

    async def key_holder(self, path: str, key: str) -> str | None:
        return next(iter(await self._column("key_holder", path=path, key=key)), None)

    # --- deleting -----------------------------------------------------------------------------------------------------

    async def looked_into_by(self, execution_id: str) -> list[str]:
        return await self._column("looked_into_by", execution_id=execution_id)

    async def begin_deleting(self, execution_id: str) -> None:
        await self._database.fetch("begin_deleting", execution_id=execution_id)

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

    async def now(self) -> dict[int, int]:
        return await self._pairs("feed_now")

    async def floor(self) -> FeedFloor:
        (first, *rows) = sorted(await self._database.fetch("feed_floor"), key=lambda row: row[0] is not None)
        return FeedFloor(first[1], {row[0]: row[1] for row in rows})

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        rows = await self._database.fetch("feed", partition_ids=list(after), ticks=list(after.values()), limit=limit)
        return [event for row in rows for event in _fed_events(row)]

    async def told(self, reader: str) -> dict[int, int]:
        return await self._pairs("feed_told", reader=reader)

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        await self._database.fetch(
            "feed_set_told", reader=reader, partition_ids=list(ticks), ticks=list(ticks.values())
        )

    async def trim(self, keep_ms: int, limit: int) -> int:
        return int(await self._value("feed_trim", keep_ms=keep_ms, limit=limit))


class PostgresDeadLetters(DatabasePort):
    """:class:`~noetl_stream.ports.stores.dead_letters.DeadLetters`; the port documents each method."""

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        return [_letter(row) for row in await self._database.fetch("dead_letters", limit=limit, before=before)]

    async def get(self, letter_id: str) -> DeadLetter | None:
        rows = await self._database.fetch("dead_letter", id=letter_id)
        return _letter(rows[0]) if rows else None

    async def known(self, letter_ids: Sequence[str]) -> set[str]:
        return set(await self._column("known_dead_letters", ids=letter_ids))

    async def add(self, row: DeadLetterRow) -> None:
        await self._database.fetch("add_dead_letter", **asdict(row))

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        return bool(await self._database.fetch("requeue_dead_letter", id=letter_id, by=by, at_ms=at_ms))

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        return bool(await self._database.fetch("discard_dead_letter", id=letter_id, by=by, at_ms=at_ms))

    async def held(self) -> HeldLetters:
        return HeldLetters(*(await self._database.fetch("held_dead_letters"))[0])

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

    async def all(self) -> list[Cursor]:
        return await self._rows(Cursor, "cursors")

    async def partition_count(self) -> int:
        """Returns P of the database."""
        return int(await self._value("partition_count"))

    async def floor(self) -> int:
        return int(await self._value("events_floor"))

    async def move_floor(self, before: int, after: int) -> bool:
        return bool(await self._database.fetch("move_events_floor", before=before, after=after))

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        return set(
            await self._column(
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
        )


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


def _letter(row: Any) -> DeadLetter:
    return DeadLetter(row["number"], row_of(DeadLetterRow, row), row["state"], row["settled_ms"], row["settled_by"])
