"""The documents of an execution, from its row and its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import asdict, replace

from noetl_stream.concurrency import beside
from noetl_stream.errors import BlobMissing, NotFound
from noetl_stream.model.envelope import EventDocument, envelope, iso, iso_or_none
from noetl_stream.model.events import ExecutionRequested, ExecutionStarted
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import ErrorInfo, Payload
from noetl_stream.operations.executions.reading.notices import Notices
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ListedExecutionDocument,
    OriginDocument,
    ParentExecutionDocument,
    StepSummaryDocument,
    WaitDocument,
)
from noetl_stream.ports.stores.store import ExecutionRow, ListedExecution, Store, StoredEvent
from noetl_stream.ports.streams.blobs import Blobs, decoded, gather_iterations, read_object

START_EVENTS: Final = 3
"""Of an execution that is not a rerun: requested, evaluated, started."""

MAX_LOADED_BYTES: Final = 16 * 1024 * 1024
"""A larger result is shown as its reference, so that many of them do not fill the memory of this process."""


def listed_document(row: ListedExecution | ExecutionRow) -> ListedExecutionDocument:
    """An execution in a list. ``duration_s`` is ``None`` until it has ended."""
    return ListedExecutionDocument(
        execution_id=row.execution_id,
        path=row.path,
        version=row.version,
        digest=row.digest,
        status=row.status,
        started=iso(row.started_ms),
        updated=iso(row.updated_ms),
        finished=iso_or_none(row.finished_ms),
        duration_s=None if row.finished_ms is None else round((row.finished_ms - row.started_ms) / 1000, 3),
        labels=codec.decode_json(row.labels),
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
        journal: At least its first entries. If it starts further on, the priority is the one asked for.
        waits: What it waits for, as ``waits.awaited`` finds it; ``None`` if that is not known.
        now_ms: The duration of an execution that has not ended counts up to here.
        notices: ``None`` if they are not known.
    """
    first = codec.decode_fact(journal[0].data) if journal else None
    requested = first if isinstance(first, ExecutionRequested) else None
    parent = requested.parent if requested is not None else None
    listed = listed_document(row)
    if row.finished_ms is None:
        listed = replace(listed, duration_s=round(max(0, now_ms - row.started_ms) / 1000, 3))
    return ExecutionDocument(
        **asdict(listed),
        result=result_of(row),
        ctx=codec.decode_shown(row.ctx),
        ctx_version=row.ctx_version,
        position=row.position,
        discarded_tokens=row.discarded,
        discarded=None if notices is None else notices.discarded,
        warnings=None if notices is None else notices.warnings,
        trace_id=row.trace_id,
        principal=requested.principal if requested is not None else "",
        priority=_priority_of(journal, requested),
        rerun_of=row.rerun_of,
        parent=None if parent is None else ParentExecutionDocument(parent.execution_id, parent.step_run_id),
        origin=_origin_of(requested),
        steps=steps,
        waits=None if waits is None else list(waits),
    )


def _priority_of(journal: Sequence[StoredEvent], requested: ExecutionRequested | None) -> int | None:
    for event in journal:
        if event.name == "execution.started":
            started = codec.decode_fact(event.data)
            return started.priority if isinstance(started, ExecutionStarted) else None
    return None if requested is None else requested.priority


def _origin_of(requested: ExecutionRequested | None) -> OriginDocument | None:
    origin = requested.origin if requested is not None else None
    return None if origin is None else OriginDocument(origin.kind, origin.path, origin.number)


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
        workers: Who reported them, by position, where that is known.
    """

    def documents() -> list[EventDocument]:
        return [
            event_document(row.execution_id, row.trace_id, row.digest, event, workers.get(event.position, ""))
            for event in events
        ]

    return await beside(documents, size_of(events))


def size_of(events: Iterable[StoredEvent]) -> int:
    """Bytes of these entries."""
    return sum(len(event.data) for event in events)


def event_document(execution_id: str, trace_id: str, digest: str, row: StoredEvent, worker: str = "") -> EventDocument:
    """A journal entry as an envelope (LANGUAGE §13); ``worker`` is who reported it, if known."""
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


async def loaded_result(row: ExecutionRow, store: Store, blobs: Blobs) -> Any:
    """The result of an execution from wherever it is stored (LANGUAGE §10); ``{"$reference": {…}}`` if it is larger
    than :data:`MAX_LOADED_BYTES`, ``None`` if there is none.

    Raises:
        NotFound: its object is lost.
    """
    if row.result is None:
        return None
    return await loaded(codec.decode_payload(row.result), f"execution {row.execution_id}", store, blobs)


async def loaded(payload: Payload, of: str, store: Store, blobs: Blobs) -> Any:
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
    return await decoded(data, partial(codec.decode_shown, decode=pieces.decode))
