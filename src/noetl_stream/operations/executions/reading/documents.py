"""The documents of an execution, from its row and its journal, and the workers that reported it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import astuple, replace

from noetl_stream.concurrency import beside
from noetl_stream.errors import BlobMissing, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model.envelope import EventDocument, envelope
from noetl_stream.model.events import (
    ExecutionRequested,
    ExecutionStarted,
    LoopIterationStarted,
    StepStarted,
    TaskProcessed,
)
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import ErrorInfo, Payload, Reference
from noetl_stream.operations.executions.reading.notices import Notices
from noetl_stream.operations.executions.reading.step_runs import within_size
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ListedExecutionDocument,
    OriginDocument,
    ParentExecutionDocument,
    StepSummaryDocument,
)
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.operations.waits import WaitDocument
from noetl_stream.ports.stores.store import ExecutionRow, ListedExecution, Store, StoredEvent
from noetl_stream.ports.streams.blobs import Blobs, decoded, read_object
from noetl_stream.sealing.data_references import hand_on
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.storage.journal import EVENTS_AT_ONCE
from noetl_stream.storage.loop_results import gather_iterations

START_EVENTS: Final = 3
"""The first events of an execution that is not a rerun: requested, evaluated, started."""

STARTED: Final = ExecutionStarted.event_name()

MAX_LOADED_BYTES: Final = 16 * 1024 * 1024
"""The size above which a result is shown as its reference, so that many results do not fill this process's memory."""


def listed_document(row: ListedExecution | ExecutionRow) -> ListedExecutionDocument:
    """An execution in a list. ``duration_s`` is ``None`` until it has ended."""
    return document_from(
        ListedExecutionDocument,
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
    steps: list[StepSummaryDocument],
    waits: Sequence[WaitDocument] | None,
    notices: Notices | None,
) -> ExecutionDocument:
    """An execution in full.

    Args:
        journal: At least its first entries, and the one of its start.
        waits: Its waits from ``waits.awaited``; ``None`` if unknown.
        now_ms: The time up to which the duration of an unfinished execution counts.
        notices: ``None`` if they are not known.
    """
    first = codec.decode_fact(journal[0].data) if journal else None
    requested = first if isinstance(first, ExecutionRequested) else None
    started = _started(journal)
    asked = requested.priority if requested is not None else None
    parent = requested.parent if requested is not None else None
    listed = listed_document(row)
    if row.finished_ms is None:
        listed = replace(listed, duration_s=round(max(0, now_ms - row.started_ms) / 1000, 3))
    return document_from(
        ExecutionDocument,
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
        parent=None if parent is None else ParentExecutionDocument(parent.execution_id, parent.step_run_id),
        origin=None if requested is None else OriginDocument(*astuple(requested.started_by)),
        steps=steps,
        waits=None if waits is None else list(waits),
    )


def _started(journal: Sequence[StoredEvent]) -> ExecutionStarted | None:
    for event in journal:
        if event.name == STARTED:
            fact = codec.decode_fact(event.data)
            return fact if isinstance(fact, ExecutionStarted) else None
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
        if isinstance(fact, StepStarted | LoopIterationStarted) and fact.worker:
            known[run] = fact.worker
        elif isinstance(fact, TaskProcessed) and fact.outcome.meta.worker:
            known[run] = fact.outcome.meta.worker
