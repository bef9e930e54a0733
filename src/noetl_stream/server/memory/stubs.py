"""The stub of an execution whose journal is not read: servers may have crashed reading it (PROTOCOL §5)."""

from __future__ import annotations

from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import ExecutionQuarantined
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import ExecutionRow, Store


async def stub_of(row: ExecutionRow, store: Store) -> Execution:
    """Returns a state made of the execution's row alone. It owes and awaits nothing."""
    is_set_aside = row.status == "quarantined"
    return Execution(
        row.execution_id,
        "",
        row.digest,
        status="running",
        position=row.position,
        path=row.path,
        version=row.version,
        trace_id=row.trace_id,
        ctx=_ctx_of(row),
        ctx_version=row.ctx_version,
        discarded=row.discarded,
        at_ms=row.updated_ms,
        paused_at_ms=row.updated_ms if is_set_aside else 0,
        quarantined=await _reason(row.execution_id, store) if is_set_aside else "",
        rerun_of=row.rerun_of or "",
    )


def _ctx_of(row: ExecutionRow) -> dict[str, Any]:
    try:
        ctx: dict[str, Any] = codec.decode_json(row.ctx)
    except PayloadRefused:  # what is in it may be why its journal is not read
        return {}
    return ctx


async def _reason(execution_id: str, store: Store) -> str:
    reason = "its journal was not read"
    for event in await store.events_named(execution_id, ["execution.quarantined"]):
        fact = codec.decode_fact(event.data)
        reason = fact.reason if isinstance(fact, ExecutionQuarantined) else reason
    return reason
