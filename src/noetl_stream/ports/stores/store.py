"""Postgres: the folded truth (DESIGN §1, PROTOCOL §1, §2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.model.search_terms import DueRange
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.stores.aggregates import AggregateParts, AggregateStore, LimitSlotKey, LimitSlotRow, LimitStore
from noetl_stream.ports.stores.cursors import Cursors
from noetl_stream.ports.stores.dead_letters import DeadLetterRow
from noetl_stream.ports.stores.tallies import ExecutionTally, RecentExecution, TallyKey
from noetl_stream.protocol.rows import Json, Row

LONGEST_LEASE_S: Final = 60.0
"""The longest lease of a server. One that ends later than twice this was written by a broken clock."""


class PartitionLease(msgspec.Struct, frozen=True, gc=False):
    """A partition for its owner. ``last_seq`` is the cursor in EVENTS, ``last_ms`` its stored time.

    ``suspect`` is the execution that was folded alone at the last crash with one, ``suspicions`` the number of
    consecutive crashes with it, since an input of it was folded.
    """

    id: int
    epoch: int
    tick: int
    published_tick: int
    last_seq: int
    last_ms: int
    crashes: int
    generation: int
    suspect: str | None = None
    suspicions: int = 0


class PartitionAdvance(Row, frozen=True, kw_only=True):
    """The fence of a tick with its changes: it must hit exactly the row with this epoch, ``tick`` and owner.

    The tick sets ``crashes``. After it no execution is folded alone, and the one that was has no suspicions left. If
    ``crashes`` becomes 0, none has.
    """

    id: int
    epoch: int
    tick: int
    last_seq: int
    last_ms: int
    published_tick: int
    crashes: int = 0


class EntryRow(Row, frozen=True, kw_only=True):
    """An entry of the journal: the facts of one input, and the decisions that follow from the last of them.

    ``position`` is that of the first fact; the others follow, the decisions last. ``data`` and ``decisions`` are JSON
    arrays of encoded facts. ``report_id`` is the report that brought it, ``number`` the first fact's number in its run.
    """

    execution_id: str
    position: int
    source: str
    at_ms: int
    step_run_id: str | None = None
    report_id: str | None = None
    number: int | None = None
    source_seq: int | None = None
    data: Json
    decisions: Json | None = None


class ExecutionRow(Row, frozen=True, kw_only=True):
    """An execution as people read it. ``result`` and ``error`` are JSON bytes; times are ms since the epoch.

    It waits for ``commands`` to end and for ``children``; ``looks_into`` is the reference it must load first, or
    ``evaluation`` while templates are evaluated by another process. ``ctx`` last changed at ``ctx_version``. ``labels``
    are a JSON object, unknown to a start that waits for its playbook; ``rerun_of`` is the original of a rerun. ``key``
    is its business key, empty until it has started. It can be found by its ``inputs`` by path, its ``failed_step``, its
    ``workers``, a JSON list, and its ``due`` time. ``stored_bytes`` are those of its objects.
    """

    written_once = frozenset({"execution_id", "trace_id", "rerun_of"})
    filled_later = frozenset({"labels", "inputs"})

    execution_id: str
    partition: int
    status: ExecutionStatus
    path: str
    version: str | None
    digest: str
    position: int
    started_ms: int
    updated_ms: int
    finished_ms: int | None
    result: Json | None
    error: Json | None
    ctx: Json = b"{}"
    discarded: int
    trace_id: str = ""
    commands: int = 0
    children: int = 0
    looks_into: str | None = None
    ctx_version: int = 1
    labels: Json = b"{}"
    rerun_of: str | None = None
    stored_bytes: int = 0
    key: str = ""
    inputs: Json = b"{}"
    failed_step: str = ""
    workers: Json = b"[]"
    due: str = ""


class RequestRow(Row, frozen=True, kw_only=True):
    """The answer to a client's request. ``answer`` is JSON bytes ``{"ok": bool, …}``."""

    request_id: str
    execution_id: str
    answer: Json
    position: int


class PlaybookRow(Row, frozen=True, kw_only=True):
    digest: str
    path: str
    version: str | None
    source: str


class TimerRow(Row, frozen=True, kw_only=True):
    """A timer, which will end a waiting state (PROTOCOL §1). ``due_ms`` is by the database's clock."""

    execution_id: str
    timer_id: str
    partition: int
    due_ms: int
    purpose: str


class TimerKey(Row, frozen=True, gc=False):
    execution_id: str
    timer_id: str


class InboxRow(Row, frozen=True, kw_only=True):
    """A message from one execution to another; ``partition`` is the receiver's. ``body`` is JSON."""

    id: str
    partition: int
    execution_id: str
    body: Json


class InboxItem(msgspec.Struct, frozen=True, gc=False):
    """An inbox row as read; ``seq`` identifies it and orders the messages of one sending partition."""

    seq: int
    partition: int
    execution_id: str
    body: bytes


class ObjectUseRow(Row, frozen=True, kw_only=True):
    """A result of ``owner`` named by the journal of another execution, and kept for it (PROTOCOL §3 *Object keys*).

    ``key`` and ``store`` are the reference's. The store ``journal`` means the owner's journal and all it uses in turn.
    """

    execution_id: str
    key: str
    store: str
    owner: str


class TermRow(Row, frozen=True, kw_only=True):
    """A search term of an execution (:mod:`noetl_stream.model.search_terms`)."""

    term: str
    execution_id: str


class FeedRow(Row, frozen=True, kw_only=True):
    """The additions of a tick to the journals of one partition: JSON ``[[execution_id, first, last position], …]``."""

    partition: int
    tick: int
    entries: Json


class StaleReportRow(Row, frozen=True, kw_only=True):
    """A report of a run that had lost its command. Its facts are in EVENTS, at ``source_seq``."""

    execution_id: str
    report_id: str
    source_seq: int
    at_ms: int
    reason: str


class SnapshotRow(Row, frozen=True, kw_only=True):
    """A state after ``position``, as :mod:`noetl_stream.engine.snapshot` encodes it. It may be deleted at any time."""

    execution_id: str
    position: int
    format: int
    digest: str
    body: bytes


class Tick(AggregateParts, frozen=True, kw_only=True):
    """The rows that one transaction writes (PROTOCOL §2 *Lease and fence*). Partitions are in the order of their ids.

    ``timers`` are set or moved, ``timers_gone`` deleted; no timer is in both. ``inbox`` is sent, ``inbox_folded`` (by
    ``seq``) deleted. ``dead_letters`` are messages that the tick skips, ``stale_reports`` reports that changed nothing;
    both, ``object_uses`` and ``snapshots`` are rare. Existing object uses and terms are kept.
    """

    owner: str
    partitions: Sequence[PartitionAdvance]
    entries: Sequence[EntryRow] = ()
    executions: Sequence[ExecutionRow] = ()
    requests: Sequence[RequestRow] = ()
    playbooks: Sequence[PlaybookRow] = ()
    timers: Sequence[TimerRow] = ()
    timers_gone: Sequence[TimerKey] = ()
    inbox: Sequence[InboxRow] = ()
    inbox_folded: Sequence[int] = ()
    object_uses: Sequence[ObjectUseRow] = ()
    terms: Sequence[TermRow] = ()
    terms_gone: Sequence[TermRow] = ()
    dead_letters: Sequence[DeadLetterRow] = ()
    stale_reports: Sequence[StaleReportRow] = ()
    snapshots: Sequence[SnapshotRow] = ()
    feed: Sequence[FeedRow] = ()
    limit_slots: Sequence[LimitSlotRow] = ()
    limit_slots_gone: Sequence[LimitSlotKey] = ()


class ListingFilter(msgspec.Struct, frozen=True, gc=False):
    """The filter of a list of executions, which match all of its fields.

    Attributes:
        statuses: Any of these; empty for any status.
        path: The playbook's path, or that of a folder above it: ``team/a`` finds ``team/a/b``, but not ``team/ab``.
        terms: All of these (:mod:`noetl_stream.model.search_terms`).
        started_from_ms: Started at this time or later, ms since the epoch.
        started_before_ms: Started before this time.
        scope: Paths of which none is below another; executions must be below one of them. Nothing else is searched, and
            ``path`` is not used then. Empty for all.
        longer_than_ms: Ended, after at least this duration.
        due: Due in this range.
    """

    statuses: Sequence[str] = ()
    path: str | None = None
    terms: Sequence[str] = ()
    started_from_ms: int | None = None
    started_before_ms: int | None = None
    scope: Sequence[str] = ()
    longer_than_ms: int | None = None
    due: DueRange | None = None


class ListedExecution(msgspec.Struct, frozen=True, gc=False):
    """An execution in a list: its :class:`ExecutionRow` without columns that may be large."""

    execution_id: str
    status: ExecutionStatus
    path: str
    version: str | None
    started_ms: int
    finished_ms: int | None
    digest: str
    updated_ms: int
    error: bytes | None
    labels: bytes
    key: str
    inputs: bytes
    failed_step: str
    workers: bytes
    due: str


class StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """A stored entry. Entries of format 1 have one fact each, with its ``name`` and ``cause``."""

    position: int
    source: str
    at_ms: int
    step_run_id: str | None
    report_id: str | None
    number: int | None
    data: bytes
    decisions: bytes | None = None
    name: str | None = None
    cause: int | None = None


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the journal as people and replay read it: a fact, or a part of a composite fact.

    ``cause`` is the position of the input a decision follows from; ``None`` for an input.
    """

    position: int
    name: str
    source: str
    at_ms: int
    step_run_id: str | None
    report_id: str | None
    number: int | None
    data: bytes
    cause: int | None = None


class PartitionView(msgspec.Struct, frozen=True, gc=False):
    id: int
    epoch: int
    owner: str | None
    last_seq: int
    tick: int
    published_tick: int
    live: bool
    behind: int
    """Its backlog in messages at the last renewal of its lease, the average of its owner's partitions."""


class KnownServer(msgspec.Struct, frozen=True, gc=False):
    """A present or past server. ``reads`` is the newest format it reads; it is ``live`` until its lease ends."""

    name: str
    version: str
    reads: int
    live: bool


class Store(AggregateStore, LimitStore, Protocol):
    """The fold's store. Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    @property
    def cursors(self) -> Cursors:
        """The cursors of its partitions, for repairs."""

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless the schema is the one this version writes."""

    async def durability_warnings(self) -> list[str]:
        """One line for each setting under which committed work may be lost; normally empty (PROTOCOL §5)."""

    async def commit(self, tick: Tick) -> None:
        """One fenced transaction.

        Raises:
            Fenced: a partition row differs from the tick's; nothing was written.
            RequestAnswered, JournalConflict: a row already exists; nothing was written.
            PayloadRefused: the tick cannot be stored; nothing was written.
            OutcomeUnknown: the connection broke before the answer; read the ticks before the next commit.
        """

    async def appear(self, name: str, version: str, reads: int, live_s: float) -> list[KnownServer]:
        """Announces that a server lives for ``live_s``, and reads formats up to ``reads``. Returns all servers."""

    async def take_over(
        self, owner: str, lease_s: float, limit: int, alive: Collection[str] = (), left: Collection[int] = ()
    ) -> list[PartitionLease]:
        """Takes up to ``limit`` free partitions: epoch + 1, and crashes + 1 unless the last owner released its lease.

        Args:
            alive: Owners that have lost leases but are known to be alive, so that they have not crashed.
            left: Partitions that are left to others.
        """

    async def set_folding(
        self, owner: str, partition: int, epoch: int, execution_id: str | None, cleared: bool = False
    ) -> None:
        """Records the execution whose input is folded next, alone, for the next owner in case this one crashes.

        Args:
            cleared: Whether the fold of the recorded execution ended well: it is no longer suspect.

        Raises:
            Fenced: the lease is lost.
        """

    async def end_frozen(self, alive: Collection[str]) -> list[str]:
        """Ends transactions of owners that lost their leases at least a second ago and still lock the rows.

        Args:
            alive: Owners that are known to be alive, whose transactions stay.

        Returns:
            The owners whose transactions were ended.
        """

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float, behind: int = 0) -> set[int]:
        """Renews leases, given as ``(partition, epoch)``; returns the partitions still owned.

        Args:
            behind: The average backlog of these partitions, in messages.
        """

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        """Releases leases, given as ``(partition, epoch)``, and sets their ``published_tick``, in the same order."""

    async def read_partitions(self, ids: Collection[int] | None = None) -> list[PartitionView]: ...

    async def owned(self, owner: str) -> list[PartitionLease]:
        """The leases of this owner, read on a new connection (after an unknown outcome)."""

    async def owner_count(self) -> int:
        """The number of owners with unexpired leases."""

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        """The execution's entries by position, from the first above ``after``."""

    async def events_named(
        self, execution_id: str, names: Collection[str], after: int = 0, limit: int | None = None
    ) -> list[StoredEvent]:
        """The entries of :meth:`journal` with one of these names."""

    async def journals(self, after: Mapping[str, int], limit: int | None = None) -> dict[str, list[StoredEntry]]:
        """The journals of several executions, by position.

        Args:
            after: The position, by execution, after which its entries are read. An entry begins with the next one.
            limit: The most entries of each.
        """

    async def snapshots(self, execution_ids: Collection[str], through: int | None = None) -> dict[str, SnapshotRow]:
        """The last snapshot of each execution that has one, at most at the position ``through``."""

    async def drop_snapshots(self, execution_id: str) -> None:
        """Deletes all snapshots of an execution."""

    async def grown(self, ticks: Mapping[int, int]) -> dict[str, int]:
        """Executions whose journals grew in ticks above these, by partition, and the first position added.

        Where the feed is trimmed above such a tick, whole journals: those of executions that it still names, and of all
        unfinished ones in the partition.
        """

    async def ticks_before(self, partitions: Collection[int], before_ms: int) -> dict[int, int]:
        """The last tick of each partition that added to a journal and was committed before this time, or is trimmed
        from the feed; 0 if there is none.
        """

    async def live_executions(self, partitions: Collection[int]) -> dict[str, str]:
        """The unfinished executions in these partitions: id → digest."""

    async def resting_executions(self, partitions: Collection[int]) -> set[str]:
        """The ones of :meth:`live_executions` that are owed no command and await no value."""

    async def newest_execution(self) -> str:
        """The highest id of all executions that have a row, in the order of bytes; ``""`` if none has."""

    async def execution(self, execution_id: str) -> ExecutionRow | None: ...

    async def executions(self, execution_ids: Collection[str]) -> dict[str, ExecutionRow]: ...

    async def listed_executions(self, execution_ids: Collection[str]) -> dict[str, ListedExecution]:
        """The rows of these executions in lists."""

    async def hold_key(self, path: str, key: str, execution_id: str) -> str:
        """Claims a unique key of the playbook at ``path``; returns the execution that holds it, maybe another."""

    async def key_holder(self, path: str, key: str) -> str | None:
        """The started execution that holds a unique key of the playbook at ``path``."""

    async def list_executions(self, wanted: ListingFilter, limit: int, before: str | None) -> list[ListedExecution]:
        """Executions, newest first, by id, which begins with the time. ``before`` is the id to continue before."""

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]:
        """The number of matching executions, by status and key. With edges, those between the first and the last,
        whatever the times of ``wanted``. At most the newest ``limit`` of each status are counted; with edges, of each
        status between two of them; with terms, in all.
        """

    async def recent_executions(self, path: str, from_ms: int, limit: int) -> list[RecentExecution]:
        """Executions of exactly this path that started at ``from_ms`` or later, newest first, at most ``limit``."""

    async def last_executions(self, paths: Collection[str]) -> dict[str, RecentExecution]:
        """The newest execution of exactly each of these paths, by path; paths without one are omitted."""

    async def request(self, execution_id: str, request_id: str) -> RequestRow | None: ...

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """The ones of these requests (execution id, request id) that have a row."""

    async def playbook(self, digest: str) -> PlaybookRow | None: ...

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        """The messages for executions of these partitions, oldest first."""

    async def inbox_end(self) -> int:
        """The ``seq`` of the newest waiting message of any partition; 0 if none waits."""

    async def timers_in(self, partitions: Collection[int]) -> list[TimerRow]:
        """The timers of all executions of these partitions, ordered by due time."""

    async def timers(self, execution_id: str) -> list[TimerRow]:
        """The timers of an execution, ordered by due time."""

    async def living_by_status(self) -> dict[ExecutionStatus, int]:
        """The number of unfinished executions, by status; without statuses that none has."""

    async def stored_by_path(self) -> dict[str, int]:
        """The bytes of objects stored by workers of executions, by the path of the playbook, without zeros."""

    async def stuck(self, limit: int) -> list[str]:
        """Unfinished executions that wait for nothing: no command, timer, message, child, reference or pause (PROTOCOL
        §1). Empty unless there is a defect.
        """

    async def now_ms(self) -> int:
        """The database's time, by which timers are due."""

    async def lease_clock_ms(self) -> int:
        """The time like :meth:`now_ms`, on the connection that keeps the leases: the answer takes one round trip."""

    async def iteration_results(self, execution_id: str, step_run_id: str, after: int, limit: int) -> list[StoredEntry]:
        """The entries after a position that may contain results of a step run's iterations, in order (LANGUAGE §6)."""

    async def entries_at(self, execution_id: str, positions: Collection[int]) -> list[StoredEntry]:
        """The entries whose first events are at these positions, in order; missing ones are omitted."""

    async def objects_used_elsewhere(self, execution_id: str) -> list[ObjectUseRow]:
        """This execution's results that others use, by key and user; they must not be deleted with it. An execution
        that is being deleted uses none.
        """

    async def objects_kept_for(self, execution_id: str) -> list[ObjectUseRow]:
        """Results that only this execution uses and whose own is deleted, or being deleted, by key; they are deleted
        with it.
        """

    async def looked_into_by(self, execution_id: str) -> list[str]:
        """Reruns of this execution that have not yet loaded what they reuse."""

    async def begin_deleting(self, execution_id: str) -> None:
        """Deletes the first journal entry of an ended execution, so that no rerun can reuse it any more, and what is
        deleted at the same time does not leave to it what both hold.
        """

    async def delete_execution(self, execution_id: str, *, keep_journal: bool = False) -> bool:
        """Deletes an ended execution: journal, row, requests, remaining timers and messages, terms, dead letters.
        ``False`` if it does not exist or has not ended.

        Long journals are deleted in several transactions, the row in the last. With ``keep_journal`` the journal stays:
        without the row nothing shows it, and it is dropped with its month.
        """

    async def close(self) -> None: ...
