"""What people and programs read of an execution, as plain JSON."""

from __future__ import annotations

from noetl_stream.client.executions.summary import result_of
from noetl_stream.model import codec
from noetl_stream.model.envelope import envelope, iso
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.store import ExecutionRow, ListedExecution, StoredEvent


def listed_document(row: ListedExecution | ExecutionRow) -> Document:
    """What a list shows of an execution. ``duration_s`` is ``None`` until it has ended."""
    return {
        "execution_id": row.execution_id,
        "path": row.path,
        "version": row.version,
        "digest": row.digest,
        "status": row.status,
        "started": iso(row.started_ms),
        "updated": iso(row.updated_ms),
        "finished": None if row.finished_ms is None else iso(row.finished_ms),
        "duration_s": None if row.finished_ms is None else round((row.finished_ms - row.started_ms) / 1000, 3),
        "labels": codec.decode_json(row.labels),
        "error": None if row.error is None else codec.decode_json(row.error),
    }


def execution_document(row: ExecutionRow, requested: ExecutionRequested | None, now_ms: int) -> Document:
    """All that is known without its journal; ``requested`` is where that begins.

    Args:
        now_ms: How long one that has not ended has taken so far.
    """
    parent = requested.parent if requested is not None else None
    shown = listed_document(row)
    if row.finished_ms is None:
        shown["duration_s"] = round(max(0, now_ms - row.started_ms) / 1000, 3)
    return shown | {
        "result": result_of(row),
        "ctx": codec.decode_json(row.ctx),
        "ctx_version": row.ctx_version,
        "position": row.position,
        "discarded_tokens": row.discarded,
        "trace_id": row.trace_id,
        "principal": requested.principal if requested is not None else "",
        "rerun_of": row.rerun_of,
        "parent": None if parent is None else {"execution_id": parent.execution_id, "step_run_id": parent.step_run_id},
    }


def event_document(execution_id: str, trace_id: str, row: StoredEvent) -> Document:
    """A journal entry as an envelope (LANGUAGE §13)."""
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
    )
