"""Executions, directly on NATS and Postgres: for the gateway, and for the command line without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.concurrency import begun, beside
from noetl_stream.errors import (
    BlobMissing,
    Conflict,
    NoetlError,
    NotFound,
    PlaybookRefused,
    UsageError,
    VersionMismatch,
)
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.events import CancelRequested, ExecutionRequested, Fact, InterventionFact, RerunRefused
from noetl_stream.model.events import client as client_events
from noetl_stream.model.ids import digest_of, undoing_of, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.json.texts import digits_lost_text
from noetl_stream.model.labels import key_fault
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, Request
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.model.status import KEY_TAKEN
from noetl_stream.operations.executions import submit
from noetl_stream.operations.executions.follow import until_begun, until_ended
from noetl_stream.operations.executions.prepare import CheckedText, PlaybookChecker, find_playbook, refuse_workload
from noetl_stream.operations.executions.reading import documents as reading
from noetl_stream.operations.executions.reading.known import known_plan, known_row, listing_of
from noetl_stream.operations.executions.reading.logs import ExecutionLogs
from noetl_stream.operations.executions.reading.step_runs import (
    Statuses,
    StepSummaries,
    iterations_page,
    step_runs,
    summarize,
)
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.operations import executions as documents
from noetl_stream.ports.operations.reading.events import LogFilter, LogPage
from noetl_stream.ports.operations.reading.table_views import StoredTableDocument
from noetl_stream.ports.operations.waits import WaitDocument
from noetl_stream.ports.stores.catalog import Catalog
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.sealing.data_references import DataReference, data_key_of
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.storage.undoing import find_undoing

if TYPE_CHECKING:
    from noetl_stream.engine.state import Execution
    from noetl_stream.operations.executions.reading.table_views import TableViews
    from noetl_stream.operations.why.journal import JournalHistories
    from noetl_stream.playbook.plan import Plan
    from noetl_stream.ports.operations.cluster import Cluster

FIRST_EVENTS: Final = 10
"""The time in which a rejected rerun is expected to report it."""

DESCRIBED_EVENTS: Final = 2_000
"""The length up to which a journal is read as a whole for :meth:`DirectExecutions.get`, which callers poll."""

ORIGINALS_AT_ONCE: Final = 4
"""The most whole journals in memory at once for reruns: one command may retry a thousand executions."""

_ERRORS: Final[Mapping[str, type[NoetlError]]] = {
    "unknown_execution": NotFound,
    "exists": Conflict,
    "not_started": Conflict,
    "quarantined": Conflict,
    "ended": Conflict,
    "ending": Conflict,
    "not_ended": Conflict,
    "not_failed": Conflict,
    "undone": Conflict,
    "nothing_to_undo": Conflict,
    "too_many_signals": Conflict,
    "older_servers": Conflict,
    "version_mismatch": VersionMismatch,
}
"""Errors by :data:`~noetl_stream.model.status.RejectionCode`; any other code is a UsageError."""


class ExecutionPorts(msgspec.Struct, frozen=True):
    requests: submit.Requests
    bus: Bus
    blobs: Blobs
    store: Store
    catalog: Catalog
    clock: Clock
    logs: ExecutionLogs
    object_keys: DerivedKeys
    evaluator: Evaluator | None = None


class DirectExecutions:
    """:class:`~noetl_stream.ports.operations.executions.Executions`, where each method is described.

    Args:
        cluster: Returns the cluster, which :meth:`why` reads.
        unanswered: Called before a start, and whenever no server has answered a request, before it is published again.
            Without it, an unanswered request fails after :data:`PATIENCE_S`; it is stored then, and the next server
            takes it.
    """

    def __init__(
        self,
        ports: ExecutionPorts,
        checking: PlaybookChecker,
        cluster: Callable[[], Cluster],
        unanswered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._ports = ports
        self._cluster = cluster
        self._store = ports.store
        self._checking = checking
        self._client = submit.Client(ports.requests, ports.blobs, ports.bus)
        self._unanswered = unanswered
        self._workers = reading.RunWorkers(ports.store)
        self._summaries = StepSummaries(ports.store)
        self._histories: JournalHistories | None = None
        self._originals = asyncio.Semaphore(ORIGINALS_AT_ONCE)
        self._tables: TableViews | None = None

    async def start(
        self, wanted: documents.Start, by: str, ids: documents.RequestIds | None = None
    ) -> documents.ExecutionDocument:
        """Starts an execution. A playbook known only as checked is not compiled, and the answer has no ``waits``."""
        from noetl_stream.model.traces import read_traceparent  # verbs that read start faster without it

        found = await find_playbook(wanted, self._store, self._ports.catalog)
        digest, stored = digest_of(found.source), found.stored
        checked = self._checking.checked(digest)
        if checked is not None:
            stored = stored or await self._store.playbook(digest) is not None
        else:
            checked = await self._checking.plan(found.source, found.name)
        if wanted.playbook is not None and not isinstance(checked, CheckedText):
            await self._checking.require_locks(self._ports.blobs, checked, found.name)
        await refuse_workload(checked, wanted.workload, self._ports.evaluator)
        more: dict[str, Any] = {
            "workload": dict(wanted.workload),
            "digits_lost": list(wanted.digits_lost),
            "labels": dict(wanted.labels),
            "key": wanted.key,
            "unique": wanted.unique,
            "due": wanted.due,
        }
        if (caller := read_traceparent(wanted.traceparent)) is not None:
            more |= msgspec.structs.asdict(caller)
        with_waits = not isinstance(checked, CheckedText)
        request = self._request(ids, checked, wanted, by, **more)
        holder = None
        if wanted.unique:
            if fault := key_fault(wanted.key, unique=True):
                raise UsageError(f"the request is refused: {fault}")
            holder = await self._store.key_holder(checked.path, wanted.key)
        if holder is None:
            holder = await self._submit(request, source=None if stored else found.source)
        with submit.reading_accepted(f"execution {holder}"):
            document = await self._document(holder, with_waits=with_waits)
        return document if holder == request.execution_id else replace(document, already=True)

    async def page(self, chosen: documents.ExecutionFilter, limit: int, cursor: str | None) -> documents.ExecutionPage:
        size = page_size(limit)
        found = await self._store.list_executions(listing_of(chosen), size + 1, read_cursor(cursor, str))
        rows, following = page_of(found, size, lambda row: row.execution_id)
        return documents.ExecutionPage([reading.listed_document(row) for row in rows], following)

    async def get(self, execution_id: str) -> documents.ExecutionDocument:
        """Gets an execution. ``waits`` is ``None`` if the journal has more than :data:`DESCRIBED_EVENTS` entries, and
        the execution has ended or has more since its last snapshot.
        """
        return await self._document(execution_id)

    async def _document(self, execution_id: str, *, with_waits: bool = True) -> documents.ExecutionDocument:
        row = await self._row(execution_id)
        is_short = row.position <= DESCRIBED_EVENTS
        journal = await self._store.journal(execution_id, 0, None if is_short else reading.START_EVENTS)
        if not is_short and all(event.name != reading.STARTED for event in journal):  # a rerun of a long one
            journal += await self._store.events_named(execution_id, (reading.STARTED,), reading.START_EVENTS, 1)
        waits: Sequence[WaitDocument] | None = () if is_short else None
        statuses: Statuses | None = None
        if row.finished_ms is None:
            # For an execution that has just started nothing is replayed or compiled.
            state = await self._state(row, journal if is_short else None) if with_waits else None
            statuses = _statuses(row, state)
            waits = await self._waits(row, state) if with_waits else None
        notices = await self._notices(row, journal, is_whole=is_short)
        if is_short:
            steps = await beside(partial(summarize, journal, statuses), reading.size_of(journal))
        else:
            steps = await self._summaries.of(execution_id, statuses)
        now_ms = self._ports.clock.now_ms()
        return reading.execution_document(row, journal, now_ms, steps=steps, waits=waits, notices=notices)

    async def _state(self, row: ExecutionRow, journal: Sequence[StoredEvent] | None) -> Execution | None:
        """The state of an unfinished execution; ``None`` if too many events would have to be replayed.

        Args:
            journal: ``None`` for a long one.
        """
        from noetl_stream.engine.replay import replay  # ended executions need no replay
        from noetl_stream.operations.executions.reading.states import state_at

        if journal is not None:
            return await beside(partial(replay, row.execution_id, journal), reading.size_of(journal))
        return await state_at(self._store, row.execution_id, row.position, DESCRIBED_EVENTS)

    async def _waits(self, row: ExecutionRow, state: Execution | None) -> Sequence[WaitDocument] | None:
        from noetl_stream.operations.waiting_on import awaited  # ended executions wait for nothing

        if state is None:
            return None if row.position > DESCRIBED_EVENTS else ()
        return list(awaited(state, await self._plan(row)))

    async def _live_statuses(self, row: ExecutionRow) -> Statuses | None:
        """The statuses of its step runs and steps; ``None`` if it has ended."""
        return None if row.finished_ms is not None else _statuses(row, await self._state(row, None))

    async def wait(self, execution_id: str, timeout_s: float) -> documents.ExecutionDocument:
        await self._row(execution_id)
        await until_ended(self._store, self._ports.bus, execution_id, timeout_s)
        return await self.get(execution_id)

    async def result(self, execution_id: str) -> documents.ResultDocument:
        """A result of more than ``MAX_LOADED_BYTES`` is a reference."""
        row = await self._ended(execution_id)
        result = await reading.loaded_result(row, self._store, self._ports.blobs, self._ports.object_keys)
        return documents.ResultDocument(execution_id, row.status, result, reading.error_of(row))

    async def result_pieces(self, execution_id: str, redactor: Redactor | None = None) -> AsyncIterator[bytes]:
        row, ports = await self._ended(execution_id), self._ports
        return reading.result_pieces(row, self._store, ports.blobs, ports.object_keys, redactor)

    async def file(self, execution_id: str, reference: DataReference) -> AsyncIterator[bytes]:
        from noetl_stream.storage.data_parts import read_parts  # most verbs start faster without it

        data_key = await self._data_key(execution_id, reference)
        try:
            return await begun(read_parts(reference, data_key, self._ports.blobs.get))
        except BlobMissing as missing:
            raise NotFound(f"{reference.what} is lost: {missing.message}") from None

    async def table(self, execution_id: str, reference: DataReference, limit: int) -> StoredTableDocument:
        from noetl_stream.operations.executions.reading.table_views import TableViews  # most verbs do not need it
        from noetl_stream.storage.data_parts import read_part

        data_key = await self._data_key(execution_id, reference)
        self._tables = self._tables or TableViews()
        try:
            return await self._tables.view(
                execution_id,
                reference,
                lambda number: read_part(reference, data_key, number, self._ports.blobs.get),
                limit,
            )
        except BlobMissing as missing:
            raise NotFound(f"{reference.what} is lost: {missing.message}") from None

    async def _data_key(self, execution_id: str, reference: DataReference) -> bytes:
        await self._row(execution_id)
        data_key = data_key_of(reference, (self._ports.object_keys.ring(execution_id),))
        if data_key is None:
            hint = "take the reference as the execution shows it"
            raise NotFound(f"execution {execution_id} has no such file: its reference opens nothing", hint=hint)
        return data_key

    async def steps(self, execution_id: str) -> list[documents.StepRunDocument]:
        row = await self._row(execution_id)
        return await step_runs(self._store, execution_id, row.trace_id, await self._live_statuses(row))

    async def runs(self, execution_id: str, wanted: documents.StepRunRange) -> documents.StepRunsDocument:
        row = await self._row(execution_id)
        return await self._summaries.page(row, wanted, await self._live_statuses(row))

    async def run_result(self, execution_id: str, step_run_id: str) -> documents.StepRunResultDocument:
        """A result of more than ``MAX_LOADED_BYTES`` is a reference."""
        await self._row(execution_id)
        step, payload = await self._summaries.result(execution_id, step_run_id)
        ports, of = self._ports, f"step run {step_run_id}"
        result = await reading.loaded(
            payload, self._store, ports.blobs, reading.handing_to(ports.object_keys, execution_id), of=of
        )
        return documents.StepRunResultDocument(execution_id, step_run_id, step, result)

    async def iterations(
        self, execution_id: str, step_run_id: str, limit: int, cursor: str | None
    ) -> documents.IterationPage:
        await self._row(execution_id)
        after = read_cursor(cursor, list)
        return await iterations_page(self._store, execution_id, step_run_id, page_size(limit), after)

    async def events(self, execution_id: str, after: int, limit: int) -> list[EventDocument]:
        row = await self._row(execution_id)
        events = await self._store.journal(execution_id, after, limit)
        workers = await self._workers.names(execution_id, events)
        return await reading.event_documents(row, events, workers)

    async def logs(self, execution_id: str, chosen: LogFilter, after: str, limit: int) -> LogPage:
        return await self._ports.logs.page(await self._row(execution_id), chosen, after, limit)

    async def ctx(self, execution_id: str) -> documents.CtxDocument:
        from noetl_stream.operations.executions.reading.states import ctx_history  # other verbs replay nothing

        row = await self._row(execution_id)
        history = await ctx_history(self._store, execution_id)
        return documents.CtxDocument(codec.decode_shown(row.ctx), row.ctx_version, history)

    async def ask(self, execution_id: str, fact: InterventionFact) -> documents.AcceptedDocument:
        await self._row(execution_id)
        if isinstance(fact, CancelRequested) and fact.now and not fact.reason:
            raise UsageError("a cancel now leaves what was done as it is: say why", hint="give a reason")
        ports = self._ports
        try:
            return await submit.ask_of(
                ports.requests, ports.bus, ports.clock, execution_id, fact, self._patience(execution_id)
            )
        except submit.RequestRefused as refused:
            raise _error(refused) from None

    async def rerun(
        self, execution_id: str, wanted: documents.RerunOptions, by: str, ids: documents.RequestIds | None = None
    ) -> documents.ExecutionDocument:
        original = await self._ended(execution_id)
        if wanted.undoes:
            ids = await self._ids_of_undoing(execution_id, ids)
        args = None if wanted.args is None else dict(wanted.args)
        begin = client_events.Rerun(execution_id, wanted.step, wanted.step_run_id, args, wanted.undoes)
        request = self._request(
            ids, original, wanted, by, rerun=begin, key=original.key, labels=await self._own_labels(original)
        )
        await self._refuse_impossible(request, original)
        await self._submit(request, source=None)
        await until_begun(self._store, self._ports.bus, request.execution_id, submit.PATIENCE_S)
        for row in await self._store.journal(request.execution_id, 0, FIRST_EVENTS):
            if isinstance(fact := codec.decode_fact(row.data), RerunRefused):
                raise _ERRORS.get(fact.code, UsageError)(fact.reason)
        with submit.reading_accepted(f"execution {request.execution_id}"):
            return await self.get(request.execution_id)

    async def _ids_of_undoing(self, execution_id: str, ids: documents.RequestIds | None) -> documents.RequestIds:
        """The ids of the one execution that can undo another."""
        own_id = undoing_of(execution_id)
        request_id = self._new_id() if ids is None else ids.request_id
        row = await self._store.execution(own_id)
        if row is not None and await self._store.request(own_id, request_id) is None:
            hint = f"undo what that has left: noetl-stream execution compensate {own_id}"
            text = f"execution {execution_id} was undone by execution {own_id}, which is {row.status}"
            raise Conflict(text, hint=hint if row.status == "failed" else None)
        return documents.RequestIds(own_id, request_id)

    async def _own_labels(self, original: ExecutionRow) -> dict[str, Any]:
        """The labels for its rerun: none if they are the constant ones of its playbook."""
        labels: dict[str, Any] = codec.decode_json(original.labels)
        plan = await self._plan(original) if labels else None
        return {} if plan is not None and labels == plan.labels else labels

    async def _refuse_impossible(self, request: Request, original: ExecutionRow) -> None:
        """Tries a rerun before it is requested: one refused by a server would exist as a failed execution.

        Raises:
            NotFound, Conflict, UsageError: as a server would refuse it.
        """
        from noetl_stream.engine.rerun import JournalSummary, reuse  # most verbs start faster without it

        plan = await self._plan(original)
        fact = request.fact
        if plan is None or await self._store.request(request.execution_id, request.request_id) is not None:
            return
        assert isinstance(fact, ExecutionRequested)
        async with self._originals:
            journal = await self._store.journal(original.execution_id)
            if len(journal) != original.position:
                raise NotFound(f"execution {original.execution_id} is being deleted")

            undone_by = await find_undoing(self._store, original) if plan.undoes else ""

            def tried() -> Sequence[Fact]:
                summary = JournalSummary(original.execution_id, journal, undone_by)
                return reuse(plan, request.execution_id, fact, summary)

            first, *_ = await asyncio.to_thread(tried)
        if isinstance(first, RerunRefused):
            raise _ERRORS.get(first.code, UsageError)(first.reason)

    async def why(self, execution_id: str, paths: Sequence[str] = ()) -> documents.WhyDocument:
        from noetl_stream.operations.why.answer import explain, observe  # most verbs start faster without it
        from noetl_stream.operations.why.ended import causes_of
        from noetl_stream.operations.why.journal import JournalHistories
        from noetl_stream.operations.why.reason import Environment

        row = await self._row(execution_id)
        self._histories = self._histories or JournalHistories(self._store)
        # An end without a failure is explained by its journal alone.
        plan = None if row.status in ("completed", "cancelled") else await self._plan(row)
        around = Environment(await self._store.now_ms())
        async with self._histories.read(row) as history:
            if row.finished_ms is None:
                around = await observe(
                    self._cluster(), self._ports.bus, self._store, row, history, now_ms=around.now_ms, paths=paths
                )
            causes = await causes_of(self._store, row, history, self._plan, paths)
            if plan is None:  # there are no guards to evaluate
                answer = explain(execution_id, history, None, around)
            else:
                answer = await asyncio.to_thread(explain, execution_id, history, plan, around)
        return replace(answer, causes=causes)

    async def delete(self, execution_id: str, by: str) -> None:
        from noetl_stream.storage.deletion import delete_execution  # most verbs start faster without it

        await self._ended(execution_id)
        await delete_execution(self._store, partial(submit.delete_by_server, self._ports.bus), execution_id)

    def _request(
        self,
        ids: documents.RequestIds | None,
        playbook: Plan | CheckedText | ExecutionRow,
        wanted: documents.Start | documents.RerunOptions,
        by: str,
        **more: Any,
    ) -> Request:
        clock = self._ports.clock
        ids = ids or documents.RequestIds(self._new_id(), self._new_id())
        fact = ExecutionRequested(
            ids.request_id,
            playbook.digest,
            playbook.path,
            ctx=dict(wanted.ctx),
            principal=by,
            reason=wanted.reason,
            correlation_id=wanted.correlation_id,
            priority=wanted.priority,
            **{"trace_id": clock.random_bytes(16).hex(), **more},
        )
        # Servers of 0.3 would drop labels and keys unread, and run again what is to be undone.
        undoes = fact.rerun is not None and fact.rerun.undoes
        written = AGGREGATES_FORMAT if fact.labels or fact.key or undoes else FORMAT
        return Request(ids.execution_id, ids.request_id, fact, format=written)

    def _new_id(self) -> str:
        return uuid7(self._ports.clock.now_ms(), self._ports.clock.random_bytes(10))

    async def _submit(self, request: Request, source: str | None) -> str:
        """Publishes a request until it is answered; an answered one is not published again. Returns the id of the
        execution, which may be another one that holds the unique key.
        """
        if await self._store.request(request.execution_id, request.request_id) is not None:
            return request.execution_id
        if source is not None:
            await self._client.put(source)
        if self._unanswered is not None:
            await self._unanswered()
        follower = await self._client.follow(request.execution_id).open()
        try:
            await self._client.begin(request, follower, unanswered=self._patience(request.execution_id))
        except submit.RequestRefused as refused:
            for one in refused.diagnostics:
                if one.get("code") == KEY_TAKEN:
                    return str(one["execution_id"])
            raise _error(refused) from None
        finally:
            await follower.close()
        return request.execution_id

    async def _row(self, execution_id: str) -> ExecutionRow:
        return await known_row(self._store, execution_id)

    async def _ended(self, execution_id: str) -> ExecutionRow:
        row = await self._row(execution_id)
        if row.finished_ms is None:
            raise Conflict(f"execution {execution_id} has not ended: its status is {row.status}")
        return row

    async def _plan(self, row: ExecutionRow) -> Plan | None:
        """The plan of an execution's playbook; ``None`` if that does not compile here."""
        return await known_plan(self._store, self._checking, row)

    async def _notices(
        self, row: ExecutionRow, journal: Sequence[StoredEvent], *, is_whole: bool
    ) -> reading.Notices | None:
        """The notices of an execution; ``None`` for an unfinished one with a long journal, which callers poll."""
        if is_whole:
            notices = reading.notices_of(journal)
        elif row.finished_ms is not None:
            notices = await reading.read_notices(self._store, row)
        else:
            return None
        requested = codec.decode_fact(journal[0].data) if journal else None
        if isinstance(requested, ExecutionRequested) and requested.digits_lost:
            notices.warn([documents.WarningDocument("digits_lost", digits_lost_text(requested.digits_lost), None)])
        if isinstance(requested, ExecutionRequested) and requested.workload:
            playbook = self._checking.checked(row.digest) or await self._plan(row)
            notices.warn(
                reading.undeclared_workload(requested.workload, reading.declared_inputs(playbook))
                if playbook is not None
                else ()
            )
        return notices

    def _patience(self, execution_id: str) -> Callable[[], Awaitable[None]]:
        if self._unanswered is not None:
            return self._unanswered
        return submit.patience(self._ports.clock, f"execution {execution_id}")


def _statuses(row: ExecutionRow, state: Execution | None) -> Statuses:
    if state is None:
        return Statuses(row.status)
    from noetl_stream.operations.views.state import statuses_of  # executions without a state need no engine

    return statuses_of(state)


def _error(refused: submit.RequestRefused) -> NoetlError:
    if any("line" in one for one in refused.diagnostics):
        return PlaybookRefused(refused.message, refused.diagnostics)
    return _ERRORS.get(refused.code, UsageError)(refused.message)
