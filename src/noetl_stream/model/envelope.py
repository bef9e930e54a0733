"""The event envelope people read (LANGUAGE §13, formal specification §10.1), built from a fact and its journal row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, cast

import msgspec

from noetl_stream.model import codec
from noetl_stream.model.events import KINDS
from noetl_stream.model.events.parts import Entity, EventStatus, Source

Time = Annotated[
    str, msgspec.Meta(description="UTC, ISO 8601, in milliseconds.", extra_json_schema={"format": "date-time"})
]


class EventDocument(msgspec.Struct, frozen=True):
    """An entry of a journal (`docs/reference/events.md`)."""

    event_id: str
    execution_id: str
    position: int
    ts: Time
    source: Source
    name: str
    entity: Entity
    entity_id: str
    status: EventStatus
    step_run_id: str | None
    report_id: str | None
    cause_id: str | None
    trace_id: str
    actor: str
    data: dict[str, Any]


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
) -> EventDocument:
    """One event. ``data`` are the fact's own fields."""
    fields: dict[str, Any] = codec.decode_json(data)
    fields.pop("name", None)
    kind = KINDS[name].kind
    return EventDocument(
        event_id=f"{execution_id}.{position}",
        execution_id=execution_id,
        position=position,
        ts=iso(at_ms),
        source=cast(Source, source),
        name=name,
        entity=kind.entity,
        entity_id=_entity_id(execution_id, fields, step_run_id),
        status=kind.status if isinstance(kind.status, str) else kind.status(fields),
        step_run_id=step_run_id or fields.get("step_run_id"),
        report_id=report_id,
        cause_id=None if cause is None else f"{execution_id}.{cause}",
        trace_id=trace_id,
        actor=fields.get("principal") or fields.get("worker") or source,
        data=fields,
    )


def iso(at_ms: int) -> str:
    """Milliseconds since the epoch as a UTC timestamp in ISO 8601."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def iso_or_none(at_ms: int | None) -> str | None:
    """:func:`iso` of a time that may be missing."""
    return None if at_ms is None else iso(at_ms)


def _entity_id(execution_id: str, fields: dict[str, Any], step_run_id: str | None) -> str:
    token = fields.get("token")
    if isinstance(token, dict):
        return str(token["token_id"])
    found = fields.get("token_id") or fields.get("step_run_id") or step_run_id
    task = fields.get("task")
    return f"{found}.{task}" if task and found else str(found or execution_id)
