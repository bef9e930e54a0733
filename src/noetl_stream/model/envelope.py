"""The event envelope people read (LANGUAGE §13, formal specification §10.1), built from a fact and its journal row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from noetl_stream.model import codec
from noetl_stream.model.events import KINDS


def envelope(
    execution_id: str,
    position: int,
    name: str,
    source: str,
    at_ms: int,
    step_run_id: str | None,
    report_id: str | None,
    data: bytes,
    cause: int | None = None,
    trace_id: str = "",
) -> dict[str, Any]:
    """One event as plain JSON values: ``ts`` is UTC in ISO 8601 with milliseconds; ``data`` the fact's own fields."""
    fields: dict[str, Any] = codec.decode_json(data)
    fields.pop("name", None)
    kind = KINDS[name].kind
    return {
        "event_id": f"{execution_id}.{position}",
        "execution_id": execution_id,
        "position": position,
        "ts": iso(at_ms),
        "source": source,
        "name": name,
        "entity": kind.entity,
        "entity_id": _entity_id(execution_id, fields, step_run_id),
        "status": kind.status if isinstance(kind.status, str) else kind.status(fields),
        "step_run_id": step_run_id or fields.get("step_run_id"),
        "report_id": report_id,
        "cause_id": None if cause is None else f"{execution_id}.{cause}",
        "trace_id": trace_id,
        "actor": fields.get("principal") or fields.get("worker") or source,
        "data": fields,
    }


def iso(at_ms: int) -> str:
    """Milliseconds since the epoch as a UTC timestamp in ISO 8601."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _entity_id(execution_id: str, fields: dict[str, Any], step_run_id: str | None) -> str:
    token = fields.get("token")
    if isinstance(token, dict):
        return str(token["token_id"])
    found = fields.get("token_id") or fields.get("step_run_id") or step_run_id
    task = fields.get("task")
    return f"{found}.{task}" if task and found else str(found or execution_id)
