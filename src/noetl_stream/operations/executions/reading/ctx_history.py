"""The history of ``ctx``, from a journal."""

from __future__ import annotations

from collections import deque
from typing import Final

from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CtxPatched, ExecutionRequested, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.executions import CtxChangeDocument
from noetl_stream.ports.stores.store import Store, StoredEvent
from noetl_stream.storage.journal import pieces

MAX_CHANGES: Final = 10_000
"""Older changes are left out: a loop may change ``ctx`` in each iteration."""


async def ctx_history(store: Store, execution_id: str) -> list[CtxChangeDocument]:
    """Every change of ``ctx`` by position: who made it, why, and which keys it wrote (LANGUAGE §9).

    ``step``, ``step_run_id`` and ``task`` belong to changes from within, ``principal``, ``reason`` and
    ``correlation_id`` to those from outside.
    """
    changes: deque[CtxChangeDocument] = deque(maxlen=MAX_CHANGES)
    state: Execution | None = None
    async for piece in pieces(store, execution_id):
        for row in piece:
            before, state = state, replay(execution_id, [row], state)
            if state is not None and (before is None or state.ctx_version != before.ctx_version):
                keys = _written_keys(before, state)
                if keys:
                    changes.append(_change(row, before, keys))
    return list(changes)


def _written_keys(before: Execution | None, after: Execution) -> list[str]:
    """The keys that an entry wrote; for the first entry, all of the initial ``ctx``."""
    if before is None:
        return sorted(after.ctx)
    return sorted(key for key, (_, at) in after.writers.items() if at == after.ctx_version)


def _change(row: StoredEvent, before: Execution | None, keys: list[str]) -> CtxChangeDocument:
    fact = codec.decode_fact(row.data)
    patch = fact if isinstance(fact, CtxPatched) else None
    step_run_id = row.step_run_id or getattr(fact, "step_run_id", None)
    run = before.runs.get(step_run_id) if before is not None and step_run_id else None
    return CtxChangeDocument(
        position=row.position,
        at=iso(row.at_ms),
        event=row.name,
        keys=keys,
        principal=fact.principal if isinstance(fact, CtxPatched | ExecutionRequested) else "",
        reason=patch.reason if patch else "",
        correlation_id=patch.correlation_id if patch else "",
        step=run.step if run else None,
        step_run_id=step_run_id,
        task=fact.task if isinstance(fact, TaskProcessed) else None,
    )
