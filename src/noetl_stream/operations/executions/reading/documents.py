"""The documents of an execution, from its row and its journal, and the workers that reported it; and its notices: its
discarded tokens and its warnings (LANGUAGE §4, §14).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from noetl_stream.concurrency import beside
from noetl_stream.errors import BlobMissing, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model import events as facts
from noetl_stream.model.envelope import EventDocument, envelope
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.json.values import MESSAGE_DEPTH, deep_merge, nests_deeper
from noetl_stream.model.outcome import ErrorInfo, Payload, Reference
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.operations.executions.reading.step_runs import within_size
from noetl_stream.ports.operations import executions
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.operations.waits import WaitDocument
from noetl_stream.ports.stores.store import ExecutionRow, ListedExecution, Store, StoredEvent
from noetl_stream.ports.streams.blobs import Blobs, decoded, read_object
from noetl_stream.sealing.data_references import hand_on
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.storage.journal import EVENTS_AT_ONCE
from noetl_stream.storage.loop_results import PIECE_BYTES, LoopResult, gather_iterations
from noetl_stream.storage.used_secrets import hidden

if TYPE_CHECKING:
    from noetl_stream.operations.executions.prepare import CheckedText
    from noetl_stream.playbook.plan import Plan

NOTICES_SHOWN: Final = 100
"""The most discarded tokens, and the most warnings, that are shown."""

SUGGESTIONS: Final = 5
KEYS_COMPARED: Final = 100
"""The most undeclared keys with a suggestion, and the most keys searched for it: a comparison takes up to 0.2 ms."""

_END: Final = frozenset({"execution.finished", "slot.granted", "execution.quota_exceeded"})
_READ: Final = _END | {"token.enqueued", "token.discarded", "execution.reused"}


class Notices(msgspec.Struct):
    """The notices of a journal, by position."""

    discarded: list[executions.DiscardedTokenDocument] = msgspec.field(default_factory=list)
    warnings: list[executions.WarningDocument] = msgspec.field(default_factory=list)
    compensations: list[executions.CompensationDocument] = msgspec.field(default_factory=list)
    _steps: dict[str, str] = msgspec.field(default_factory=dict)

    def take(self, row: StoredEvent) -> None:
        """Reads the next entry."""
        if row.name in _READ:
            fact = codec.decode_fact(row.data)
            for one in fact.entries if isinstance(fact, facts.ExecutionReused) else (fact,):
                self._take(one)

    def warn(self, warnings: Iterable[executions.WarningDocument]) -> None:
        """Adds warnings, up to the bound."""
        self.warnings += islice(warnings, NOTICES_SHOWN - len(self.warnings))

    def _take(self, fact: facts.Fact) -> None:
        if isinstance(fact, facts.TokenEnqueued):
            self._steps[fact.token.token_id] = fact.token.step
        elif isinstance(fact, facts.TokenDiscarded) and len(self.discarded) < NOTICES_SHOWN:
            step = self._steps[fact.token_id]
            self.discarded.append(executions.DiscardedTokenDocument(fact.token_id, step, fact.reason))
        elif isinstance(fact, facts.SlotGranted) and fact.warning:
            self.warn([executions.WarningDocument("limit_replaced", fact.warning, None)])
        elif isinstance(fact, facts.QuotaExceeded):
            self.warn([executions.WarningDocument("quota_exceeded", fact.text, None)])
        elif isinstance(fact, facts.ExecutionFinished):
            self.warn(executions.WarningDocument("tolerated", tolerated_text(one), one.step) for one in fact.tolerated)
            self.compensations = [document_from(executions.CompensationDocument, one) for one in fact.compensations]
            left = (one for one in fact.compensations if not one.undone)
            self.warn(
                executions.WarningDocument("not_undone", f"{one.step} is not undone: {one.reason}", one.step)
                for one in left
            )
            self.warn(
                executions.WarningDocument(one.warning.kind, _warning_text(one), one.step or None)
                for one in fact.warnings
            )


def notices_of(journal: Iterable[StoredEvent]) -> Notices:
    """The notices of a whole journal."""
    notices = Notices()
    for row in journal:
        notices.take(row)
    return notices


async def read_notices(store: Store, row: ExecutionRow) -> Notices:
    """:func:`notices_of` the journal of an ended execution, of any length."""
    notices, after, names = Notices(), 0, _READ if row.discarded else _END
    while piece := await store.events_named(row.execution_id, names, after, EVENTS_AT_ONCE):
        for event in piece:
            notices.take(event)
        after = piece[-1].position
        await asyncio.sleep(0)  # a turn for other tasks
    return notices


def _warning_text(found: facts.TaskWarning) -> str:
    sent, where = ("runs", f"task {found.task} of {found.step}") if found.step else ("requests", found.task)
    more = f" (and in {found.runs - 1:,} more {sent} of it)" if found.runs > 1 else ""
    return f"{where}: {found.warning.message}{more}"


def declared_inputs(playbook: Plan | CheckedText) -> Mapping[str, Any]:
    """The workload of a playbook, with further keys from its schema."""
    schema = playbook.workload_schema
    declared: Mapping[str, Any] = deep_merge({} if schema is None else _keys_of(schema.content), playbook.workload)
    return declared


def _keys_of(schema: Any) -> dict[str, Any]:
    """The keys that a schema declares, nested ones included."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return {key: _keys_of(inner) for key, inner in properties.items()}


def undeclared_workload(given: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[executions.WarningDocument]:
    """A warning for each key of a request's workload that the playbook's does not have."""
    from noetl_stream.template.failures import closest, shorten  # most playbooks declare all their inputs

    for number, (path, known) in enumerate(_undeclared(given, declared, ("workload",))):
        close = closest(path[-1], islice(known, KEYS_COMPARED)) if number < SUGGESTIONS else None
        meant = f"; did you mean `{'.'.join((*path[:-1], close))}`?" if close else ""
        message = f"`{shorten('.'.join(path))}` is not declared by the playbook{meant}"
        yield executions.WarningDocument("undeclared_workload", message, None)


def _undeclared(
    given: Mapping[str, Any], declared: Mapping[str, Any], within: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The undeclared paths, each with the keys declared beside it. An empty mapping accepts any key."""
    for key, value in given.items():
        path = (*within, key)
        if key not in declared:
            yield path, declared
        elif isinstance(value, dict) and isinstance(inner := declared[key], dict) and inner:
            yield from _undeclared(value, inner, path)


def tolerated_text(failures: facts.ToleratedFailures) -> str:
    """Such as ``4 of 200 iterations of fetch failed`` or ``store failed``; of nested loops, the innermost too."""
    failed, leaves, runs, step = failures.failed, failures.failed_leaves, failures.runs, failures.step
    said = []
    if runs:
        said.append(f"{step} failed" if runs == 1 else f"{runs} runs of {step} failed")
    if failed:
        innermost = f", {_counted(leaves, 'innermost iteration')}" if leaves != failed else ""
        said.append(f"{failed} of {_counted(failures.count, 'iteration')} of {step} failed{innermost}")
    elif leaves:
        said.append(f"{_counted(leaves, 'innermost iteration')} of {step} failed")
    return ", ".join(said)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


START_EVENTS: Final = 3
"""The first events of an execution that is not a rerun: requested, evaluated, started."""

STARTED: Final = facts.ExecutionStarted.event_name()

MAX_LOADED_BYTES: Final = 16 * 1024 * 1024
"""The size above which a result is shown as its reference, so that many results do not fill this process's memory."""


def listed_document(row: ListedExecution | ExecutionRow) -> executions.ListedExecutionDocument:
    """An execution in a list. ``duration_s`` is ``None`` until it has ended."""
    return document_from(
        executions.ListedExecutionDocument,
        row,
        duration_s=None if row.finished_ms is None else round((row.finished_ms - row.started_ms) / 1000, 3),
        labels=codec.decode_json(row.labels),
        key=row.key or None,
        inputs=codec.decode_json(row.inputs),
        failed_step=row.failed_step or None,
        workers=codec.decode_json(row.workers),
        due=row.due or None,
        error=error_of(row),
    )


def execution_document(
    row: ExecutionRow,
    journal: Sequence[StoredEvent],
    now_ms: int,
    *,
    steps: list[executions.StepSummaryDocument],
    waits: Sequence[WaitDocument] | None,
    notices: Notices | None,
) -> executions.ExecutionDocument:
    """An execution in full.

    Args:
        journal: At least its first entries, and the one of its start.
        waits: Its waits from ``waits.awaited``; ``None`` if unknown.
        now_ms: The time up to which the duration of an unfinished execution counts.
        notices: ``None`` if they are not known.
    """
    first = codec.decode_fact(journal[0].data) if journal else None
    requested = first if isinstance(first, facts.ExecutionRequested) else None
    started = _started(journal)
    asked = requested.priority if requested is not None else None
    parent = requested.parent if requested is not None else None
    listed = listed_document(row)
    if row.finished_ms is None:
        listed = replace(listed, duration_s=round(max(0, now_ms - row.started_ms) / 1000, 3))
    return document_from(
        executions.ExecutionDocument,
        listed,
        row,
        result=result_of(row),
        ctx=codec.decode_shown(row.ctx),
        discarded_tokens=row.discarded,
        discarded=None if notices is None else notices.discarded,
        warnings=None if notices is None else notices.warnings,
        compensations=[] if notices is None else notices.compensations,
        undoes=[] if started is None else list(started.undoes),
        principal=requested.principal if requested is not None else "",
        priority=asked if started is None else started.priority,
        workload=None if started is None else within_size(started.workload),
        parent=None if parent is None else executions.ParentExecutionDocument(parent.execution_id, parent.step_run_id),
        origin=None if requested is None else executions.OriginDocument(*astuple(requested.started_by)),
        steps=steps,
        waits=None if waits is None else list(waits),
    )


def _started(journal: Sequence[StoredEvent]) -> facts.ExecutionStarted | None:
    for event in journal:
        if event.name == STARTED:
            fact = codec.decode_fact(event.data)
            return fact if isinstance(fact, facts.ExecutionStarted) else None
    return None


def error_of(row: ExecutionRow | ListedExecution) -> ErrorInfo | None:
    """The error of a failed execution."""
    return None if row.error is None else codec.decode_error(row.error)


def result_of(row: ExecutionRow) -> Any:
    """The result of an execution; a reference is shown as ``{"$reference": {…}}``."""
    return None if row.result is None else _shown(codec.decode_payload(row.result))


def _shown(payload: Payload) -> Any:
    if payload.reference is not None:
        return {"$reference": codec.decode_json(codec.encode(payload.reference))}
    return codec.decode_shown(payload.value)


async def event_documents(
    row: ExecutionRow, events: Sequence[StoredEvent], workers: Mapping[int, str]
) -> list[EventDocument]:
    """Entries of a journal as envelopes.

    Args:
        workers: The reporting workers by position, where known.
    """

    def documents() -> list[EventDocument]:
        return [
            event_document(row.execution_id, row.trace_id, row.digest, event, workers.get(event.position, ""))
            for event in events
        ]

    return await beside(documents, size_of(events))


def size_of(events: Iterable[StoredEvent]) -> int:
    """The bytes of these entries."""
    return sum(len(event.data) for event in events)


def event_document(execution_id: str, trace_id: str, digest: str, row: StoredEvent, worker: str = "") -> EventDocument:
    """A journal entry as an envelope (LANGUAGE §13); ``worker`` reported it, if known."""
    return envelope(
        execution_id=execution_id,
        position=row.position,
        name=row.name,
        source=row.source,
        at_ms=row.at_ms,
        step_run_id=row.step_run_id,
        report_id=row.report_id,
        data=row.data,
        cause=row.cause,
        trace_id=trace_id,
        digest=digest,
        worker=worker,
    )


Hand: TypeAlias = Callable[[Reference, bytes], bytes]
"""Converts the JSON behind a reference to the JSON that is shown."""


async def loaded_result(row: ExecutionRow, store: Store, blobs: Blobs, keys: DerivedKeys) -> Any:
    """The result of an execution from wherever it is stored (LANGUAGE §10); ``{"$reference": {…}}`` if it is larger
    than :data:`MAX_LOADED_BYTES`, ``None`` if there is none.

    Raises:
        NotFound: its object is lost.
    """
    if row.result is None:
        return None
    hand = handing_to(keys, row.execution_id)
    return await loaded(codec.decode_payload(row.result), store, blobs, hand, of=f"execution {row.execution_id}")


def handing_to(keys: DerivedKeys, execution_id: str) -> Hand:
    """Seals the files in the value of a reference for the showing execution: another one may have stored it."""
    return lambda reference, data: hand_on(data, keys.ring(reference.execution_id), keys.ring(execution_id))


async def loaded(payload: Payload, store: Store, blobs: Blobs, hand: Hand, *, of: str) -> Any:
    """A result from wherever it is stored, as :func:`loaded_result`.

    Raises:
        NotFound: its object is lost.
    """
    reference = payload.reference
    if reference is None or reference.size > MAX_LOADED_BYTES:
        return _shown(payload)
    try:
        if reference.store == "journal":
            owner, _, step_run_id = reference.key.partition(".")
            data = await gather_iterations(store, blobs, owner, step_run_id)
        else:
            data = await read_object(blobs, reference)
    except BlobMissing as error:
        raise NotFound(f"the result of {of} is lost: {error.message}") from None
    return await decoded(data, lambda text: codec.decode_shown(hand(reference, text), decode=pieces.decode))


LOOK_AHEAD: Final = 500
"""The entries after a page that are read for the name of a run that begins in it."""

RUNS_KEPT: Final = 10_000
"""The number of cached runs: the next page mostly has the same ones."""

_NAMING: Final = frozenset({"step.started", "loop.iteration.started", "task.processed"})
"""Events in which a run names its worker: one of its first is among them."""


class RunWorkers:
    """Reads the names of workers from journals. Only some events of a run name its worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: LruCache[str, str] = LruCache(RUNS_KEPT)

    async def names(self, execution_id: str, rows: Sequence[StoredEvent]) -> dict[int, str]:
        """The workers that reported these entries, by position. Runs that have not named their worker are missing: they
        have only claimed their command, or ended before they began.

        Args:
            rows: Entries of one journal, by position.
        """
        runs = {row.position: run for row in rows if (run := _run_of(row)) is not None}
        known = {run: name for run in runs.values() if (name := self._kept.get(run)) is not None}
        _learn(rows, set(runs.values()) - known.keys(), known)
        if unknown := set(runs.values()) - known.keys():
            await self._look_back(execution_id, rows, unknown, known)
        if unknown := set(runs.values()) - known.keys():
            _learn(await self._store.journal(execution_id, rows[-1].position, LOOK_AHEAD), unknown, known)
        for run, name in known.items():
            self._kept.put(run, name)
        return {position: known[run] for position, run in runs.items() if run in known}

    async def _look_back(
        self, execution_id: str, rows: Sequence[StoredEvent], unknown: set[str], known: dict[str, str]
    ) -> None:
        """Reads backwards to the beginning of each ``unknown`` run."""
        sought = unknown - _beginning(rows)
        end = rows[0].position - 1
        while sought and end > 0:
            size = min(end, EVENTS_AT_ONCE)
            piece = await self._store.journal(execution_id, end - size, size)
            _learn(reversed(piece), sought, known)
            sought -= known.keys() | _beginning(piece)
            end -= size


def _run_of(row: StoredEvent) -> str | None:
    """The run that reported an entry, from the id of the report."""
    return row.report_id.rpartition(".")[0] if row.report_id is not None and row.number is not None else None


def _beginning(rows: Iterable[StoredEvent]) -> set[str]:
    """The runs whose first event is in these entries."""
    return {run for row in rows if row.number == 0 and (run := _run_of(row)) is not None}


def _learn(rows: Iterable[StoredEvent], wanted: set[str], known: dict[str, str]) -> None:
    """Adds to ``known`` the workers of the ``wanted`` runs that these entries name."""
    for row in rows:
        run = _run_of(row)
        if run is None or run not in wanted or run in known or row.name not in _NAMING:
            continue
        fact = codec.decode_fact(row.data)
        if isinstance(fact, facts.StepStarted | facts.LoopIterationStarted) and fact.worker:
            known[run] = fact.worker
        elif isinstance(fact, facts.TaskProcessed) and fact.outcome.meta.worker:
            known[run] = fact.outcome.meta.worker


async def result_pieces(
    row: ExecutionRow, store: Store, blobs: Blobs, keys: DerivedKeys, redactor: Redactor | None
) -> AsyncIterator[bytes]:
    """The JSON of the :class:`~noetl_stream.ports.operations.executions.ResultDocument` of an ended execution.

    Args:
        redactor: The redactor of the secrets that it was given; ``None`` without any.

    Raises:
        NotFound: its result is lost.
    """
    error = error_of(row)
    if redactor is not None and error is not None:
        error = hidden(redactor, error)
    payload = Payload() if row.result is None else codec.decode_payload(row.result)
    held = bytearray(codec.encode({"execution_id": row.execution_id, "status": row.status})[:-1] + b',"result":')
    try:
        hand = handing_to(keys, row.execution_id)
        async for piece in _pieces_of(payload, store, blobs, hand, partial(_shown_data, redactor)):
            held += piece
            if len(held) >= PIECE_BYTES:
                yield bytes(held)
                held.clear()
    except BlobMissing as missing:
        raise NotFound(f"the result of execution {row.execution_id} is lost: {missing.message}") from None
    yield bytes(held) + b',"error":' + codec.encode(error) + b"}"


async def _pieces_of(
    payload: Payload, store: Store, blobs: Blobs, hand: Hand, shown: Callable[[bytes], bytes]
) -> AsyncIterator[bytes]:
    reference = payload.reference
    if reference is None:
        data = bytes(payload.value)
    elif reference.size > MAX_LOADED_BYTES:
        data = codec.encode({"$reference": reference})
    elif reference.store == "journal":
        owner, _, step_run_id = reference.key.partition(".")
        loop = await LoopResult.read(store, blobs, owner, step_run_id)
        async for piece in loop.pieces(lambda text: shown(hand(reference, text))):
            yield piece
        return
    else:
        data = hand(reference, await read_object(blobs, reference))
    data = await beside(partial(shown, data), len(data))
    for first in range(0, len(data), PIECE_BYTES):
        yield data[first : first + PIECE_BYTES]


def _shown_data(redactor: Redactor | None, data: bytes) -> bytes:
    """The JSON of a value in the form that is shown."""
    if redactor is None and not nests_deeper(data, MESSAGE_DEPTH):
        return bytes(codec.decode_as(msgspec.Raw, data))  # one value, which is not divided
    value = codec.decode_shown(data, decode=pieces.decode)
    return pieces.encode(value if redactor is None else redactor.value(value))
