"""How ``ctx`` came to be what it is: every change, by whom, why, and of which keys (LANGUAGE §9)."""

from __future__ import annotations

from collections import deque
from typing import Final

from noetl_stream.client.executions.journals import Folded, folded
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CtxPatched, ExecutionRequested, TaskProcessed
from noetl_stream.ports.operations.executions import CtxChangeDocument
from noetl_stream.ports.store import Store

MAX_CHANGES: Final = 10_000
"""Older changes are left out: a loop may change ``ctx`` with each of its iterations."""


async def ctx_history(store: Store, execution_id: str) -> list[CtxChangeDocument]:
    """One document a change, by position. ``step``, ``step_run_id`` and ``task`` are those of a change from within,
    ``principal``, ``reason`` and ``correlation_id`` of one from outside.
    """
    changes: deque[CtxChangeDocument] = deque(maxlen=MAX_CHANGES)
    async for entry in folded(store, execution_id):
        before = entry.before
        if entry.after.ctx_version != (before.ctx_version if before is not None else None) and _keys(entry):
            changes.append(_change(entry))
    return list(changes)


def _keys(entry: Folded) -> list[str]:
    """Those written at this entry: of the first, all that it begins with."""
    if entry.before is None:
        return sorted(entry.after.ctx)
    writers = entry.after.writers
    return sorted(key for key, (_, at) in writers.items() if at == entry.after.ctx_version)


def _change(entry: Folded) -> CtxChangeDocument:
    row, fact = entry.row, codec.decode_fact(entry.row.data)
    asked = fact if isinstance(fact, CtxPatched) else None
    step_run_id = row.step_run_id or getattr(fact, "step_run_id", None)
    run = entry.before.runs.get(step_run_id) if entry.before is not None and step_run_id else None
    principal = fact.principal if isinstance(fact, CtxPatched | ExecutionRequested) else ""
    return CtxChangeDocument(
        position=row.position,
        at=iso(row.at_ms),
        event=row.name,
        keys=_keys(entry),
        principal=principal,
        reason=asked.reason if asked else "",
        correlation_id=asked.correlation_id if asked else "",
        step=run.step if run else None,
        step_run_id=step_run_id,
        task=fact.task if isinstance(fact, TaskProcessed) else None,
    )
