"""Postgres: the folded truth (DESIGN §1, PROTOCOL §1, §2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.dead_letters import DeadLetterRow
from noetl_stream.ports.rows import Json, Row


class PartitionLease(NamedTuple):
    """A partition as its owner knows it. ``last_seq`` is the cursor in EVENTS, ``last_ms`` its stored time."""

    id: int
    epoch: int
    tick: int
    published_tick: int
    last_seq: int
    last_ms: int
    crashes: int
    generation: int


class PartitionAdvance(Row, frozen=True, kw_only=True):
    """The fence of a tick and what it moves: must hit exactly the row with this epoch, ``tick`` and owner."""

    id: int
    epoch: int
    tick: int
    last_seq: int
    last_ms: int
    published_tick: int


class EventRow(Row, frozen=True, kw_only=True):
    """A journal entry. ``number`` is the event's number in its run, ``report_id`` the report it came by.

    ``cause`` is the position of the input a decision follows from; ``None`` for an input.
    """

    execution_id: str
    position: int
    name: str
    source: str
    at_ms: int
    step_run_id: str | None = None
    report_id: str | None = None
    number: int | None = None
    source_seq: int | None = None
    data: Json
    cause: int | None = None


class ExecutionRow(Row, frozen=True, kw_only=True):
    """What people read of an execution. ``result`` and ``error`` are JSON bytes; times are ms since the epoch.

    ``commands`` are owed an end, ``children`` are waited for, ``looks_into`` is the reference it must load first.
    ``ctx_version`` is the position at which ``ctx`` last changed. ``labels`` are the playbook's, a JSON object;
    ``rerun_of`` is the execution it has run again.
    """

    written_once = frozenset({"execution_id", "trace_id", "labels", "rerun_of"})

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
    ctx: Json
    discarded: int
    trace_id: str = ""
    commands: int = 0
    children: int = 0
    looks_into: str | None = None
    ctx_version: int = 1
    labels: Json = b"{}"
    rerun_of: str | None = None


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
    """A timer that is set: what will end some waiting state (PROTOCOL §1). ``due_ms`` by the database's clock."""

    execution_id: str
    timer_id: str
    partition: int
    due_ms: int
    purpose: str


class TimerKey(NamedTuple):
    """Which timer."""

    execution_id: str
    timer_id: str


class InboxRow(Row, frozen=True, kw_only=True):
    """A message from one execution to another; ``partition`` is the receiver's. ``body`` is JSON."""

    id: str
    partition: int
    execution_id: str
    body: Json


class InboxItem(NamedTuple):
    """An inbox row as the receiver's owner reads it; ``seq`` names it and orders what one partition has sent."""

    seq: int
    partition: int
    execution_id: str
    body: bytes


class ObjectUseRow(Row, frozen=True, kw_only=True):
    """An execution's journal names a result of another, ``owner``: it must stay as long (PROTOCOL §3 *Object keys*).

    ``key`` and ``store`` are the reference's. What is used in the ``journal`` store is the owner's journal, with all
    that it uses in turn.
    """

    execution_id: str
    key: str
    store: str
    owner: str


class TermRow(Row, frozen=True, kw_only=True):
    """What an execution is found by beside its row's columns (:mod:`noetl_stream.model.search_terms`)."""

    term: str
    execution_id: str


class FeedRow(Row, frozen=True, kw_only=True):
    """What a tick adds to the journals of one partition: JSON ``[[execution_id, first, last position], …]``."""

    partition: int
    tick: int
    entries: Json


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one transaction writes (PROTOCOL §2 *Lease and fence*). Partitions in id order.

    ``timers`` are set or moved, ``timers_gone`` deleted; no timer stands in both. ``inbox`` is sent, ``inbox_folded``
    (by ``seq``) deleted. ``dead_letters`` are of messages that the tick passes over. ``object_uses`` are rare; one
    that stands already stays as it is, and so does a term.
    """

    owner: str
    partitions: Sequence[PartitionAdvance]
    events: Sequence[EventRow] = ()
    executions: Sequence[ExecutionRow] = ()
    requests: Sequence[RequestRow] = ()
    playbooks: Sequence[PlaybookRow] = ()
    timers: Sequence[TimerRow] = ()
    timers_gone: Sequence[TimerKey] = ()
    inbox: Sequence[InboxRow] = ()
    inbox_folded: Sequence[int] = ()
    object_uses: Sequence[ObjectUseRow] = ()
    terms: Sequence[TermRow] = ()
    dead_letters: Sequence[DeadLetterRow] = ()
    feed: Sequence[FeedRow] = ()


class ListingFilter(NamedTuple):
    """Which executions of a list: all of these hold.

    Attributes:
        statuses: One of them; empty: any.
        path: Of the playbook, or of a folder that it is below: ``team/a`` finds ``team/a/b``, not ``team/ab``.
        terms: All of them (:mod:`noetl_stream.model.search_terms`).
        started_from_ms: The first moment, ms since the epoch.
        started_before_ms: The first moment after it.
    """

    statuses: Sequence[str] = ()
    path: str | None = None
    terms: Sequence[str] = ()
    started_from_ms: int | None = None
    started_before_ms: int | None = None


class ListedExecution(NamedTuple):
    """An execution in a list: its :class:`ExecutionRow` without what may be large."""

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


class StoredEvent(NamedTuple):
    """An event row as people and replay read it."""

    position: int
    name: str
    source: str
    at_ms: int
    step_run_id: str | None
    report_id: str | None
    number: int | None
    data: bytes
    cause: int | None = None


class PartitionView(NamedTuple):
    id: int
    epoch: int
    owner: str | None
    last_seq: int
    tick: int
    published_tick: int
    live: bool


class Store(Protocol):
    """The fold's store. Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless the schema is the one this version writes."""
        ...

    async def commit(self, tick: Tick) -> None:
        """One fenced transaction.

        Raises:
            Fenced: a partition row is not what the tick says; nothing was written.
            OutcomeUnknown: the connection broke before the answer; read the ticks before going on.
        """
        ...

    async def take_over(self, owner: str, lease_s: float, limit: int) -> list[PartitionLease]:
        """Takes up to ``limit`` partitions whose lease has run out: epoch + 1, crashes + 1 unless given back."""
        ...

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float) -> set[int]:
        """Renews ``(partition, epoch)``; returns the partitions that are still this owner's."""
        ...

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        """Ends the leases now, ``published_tick`` set to what is named in the same order."""
        ...

    async def read_partitions(self, ids: Collection[int] | None = None) -> list[PartitionView]: ...

    async def owned(self, owner: str) -> list[PartitionLease]:
        """What still stands in this owner's name, read on a new connection (after an unknown outcome)."""
        ...

    async def owner_count(self) -> int:
        """How many owners hold living leases."""
        ...

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        """The execution's entries by position, from the first above ``after``."""
        ...

    async def journals(self, execution_ids: Collection[str]) -> dict[str, list[StoredEvent]]:
        """Whole journals of several executions."""
        ...

    async def live_executions(self, partitions: Collection[int]) -> dict[str, str]:
        """Execution id → digest of those in these partitions that have not ended."""
        ...

    async def execution(self, execution_id: str) -> ExecutionRow | None: ...

    async def executions(self, execution_ids: Collection[str]) -> dict[str, ExecutionRow]: ...

    async def list_executions(self, wanted: ListingFilter, limit: int, before: str | None) -> list[ListedExecution]:
        """Newest first: by their ids, which begin with the time; ``before`` is an execution id to page on from."""
        ...

    async def request(self, execution_id: str, request_id: str) -> RequestRow | None: ...

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of these requests (execution id, request id) that have their row."""
        ...

    async def playbook(self, digest: str) -> PlaybookRow | None: ...

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        """What waits for executions of these partitions, oldest first."""
        ...

    async def timers(self, execution_id: str) -> list[TimerRow]:
        """The timers of one execution, by when they are due."""
        ...

    async def stuck(self, limit: int) -> list[str]:
        """Executions that have not ended and wait for nothing: no command, timer, message, child or reference, and no
        pause (PROTOCOL §1). There are none, unless a rule was broken.
        """
        ...

    async def now_ms(self) -> int:
        """The database's time: what timers are due by."""
        ...

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[StoredEvent]:
        """The ``task.processed`` and loop iteration entries of one step run, by position (LANGUAGE §6)."""
        ...

    async def objects_used_elsewhere(self, execution_id: str) -> list[ObjectUseRow]:
        """What others use of this execution's results, by key and user: it must not be deleted with the execution."""
        ...

    async def objects_kept_for(self, execution_id: str) -> list[ObjectUseRow]:
        """What this execution alone uses of others that have been deleted, by key: it goes with this one."""
        ...

    async def looked_into_by(self, execution_id: str) -> list[str]:
        """Executions that are to run this one again, and do not know yet what they reuse of it."""
        ...

    async def begin_deleting(self, execution_id: str) -> None:
        """Takes away the first entry of the journal of an execution that has ended: nobody can reuse it any more."""
        ...

    async def delete_execution(self, execution_id: str) -> bool:
        """Forgets an execution that has ended: journal, row, requests, what is left of timers and messages, terms.

        Long journals go in several transactions, the row in the last.

        Returns:
            Whether it did; ``False`` if there is none, or it has not ended.
        """
        ...

    async def close(self) -> None: ...


class FedEvent(NamedTuple):
    """An event of a tick. ``number`` counts the events of that tick in its partition, from 0, deleted ones too.

    ``digest`` and ``path`` are the playbook's. ``event`` is ``None`` in the single row of a tick whose
    executions were all deleted.
    """

    partition: int
    tick: int
    number: int = 0
    execution_id: str = ""
    trace_id: str = ""
    digest: str = ""
    path: str = ""
    event: StoredEvent | None = None


class FeedStore(Protocol):
    """What each tick added to the journals: the source of the whole feed (PROTOCOL §4).

    Ticks of one partition are serial: a reader that has seen one has seen all before it.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def now(self) -> dict[int, int]:
        """The last committed tick of each partition."""
        ...

    async def floor(self) -> dict[int, int]:
        """The last trimmed tick of each partition; partitions without trimmed ticks are missing."""
        ...

    async def read(self, after: Mapping[int, int], limit: int) -> Sequence[FedEvent]:
        """The events of whole ticks above those named, at most ``limit`` ticks of each partition, in order."""
        ...

    async def trim(self, keep_ms: int, limit: int) -> int:
        """Trims at most ``limit`` ticks older than ``keep_ms`` milliseconds; returns how many. The journals stay."""
        ...
