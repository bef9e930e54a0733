"""What people and programs read of an execution, from its row and its journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from noetl_stream.client.executions.step_runs import summarize
from noetl_stream.client.executions.waits import awaited
from noetl_stream.engine.replay import replay
from noetl_stream.model import codec
from noetl_stream.model.envelope import EventDocument, envelope, iso, iso_or_none
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ListedExecutionDocument,
    ParentExecutionDocument,
)
from noetl_stream.ports.store import ExecutionRow, ListedExecution, StoredEvent


def listed_document(row: ListedExecution | ExecutionRow) -> ListedExecutionDocument:
    """What a list shows of an execution. ``duration_s`` is ``None`` until it has ended."""
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
    row: ExecutionRow, journal: Sequence[StoredEvent], now_ms: int, *, is_whole: bool = True
) -> ExecutionDocument:
    """All that is known of an execution.

    Args:
        journal: At least its first entry; ``steps`` and ``waits`` are ``None`` unless it ``is_whole``.
        now_ms: How long one that has not ended has taken so far.
    """
    first = codec.decode_fact(journal[0].data) if journal else None
    requested = first if isinstance(first, ExecutionRequested) else None
    parent = requested.parent if requested is not None else None
    listed = listed_document(row)
    if row.finished_ms is None:
        listed = replace(listed, duration_s=round(max(0, now_ms - row.started_ms) / 1000, 3))
    state = replay(row.execution_id, journal) if is_whole and row.finished_ms is None else None
    waits = [] if state is None else list(awaited(state))
    return ExecutionDocument(
        **asdict(listed),
        result=result_of(row),
        ctx=codec.decode_json(row.ctx),
        ctx_version=row.ctx_version,
        position=row.position,
        discarded_tokens=row.discarded,
        trace_id=row.trace_id,
        principal=requested.principal if requested is not None else "",
        rerun_of=row.rerun_of,
        parent=None if parent is None else ParentExecutionDocument(parent.execution_id, parent.step_run_id),
        steps=summarize(journal) if is_whole else None,
        waits=waits if is_whole else None,
    )


def error_of(row: ExecutionRow | ListedExecution) -> ErrorInfo | None:
    """Why it has failed, if it has."""
    return None if row.error is None else codec.decode_error(row.error)


def result_of(row: ExecutionRow) -> Any:
    """The execution's result; a reference is shown as ``{"$reference": {…}}``."""
    if row.result is None:
        return None
    payload = codec.decode_payload(row.result)
    if payload.reference is not None:
        return {"$reference": codec.decode_json(codec.encode(payload.reference))}
    return codec.decode_json(payload.value)


def event_document(execution_id: str, trace_id: str, digest: str, row: StoredEvent, worker: str = "") -> EventDocument:
    """A journal entry as an envelope (LANGUAGE §13); ``worker`` is who reported it, where that is known."""
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
