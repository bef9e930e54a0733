"""The event envelope people read (LANGUAGE §13, formal specification §10.1), built from a fact and its journal row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, cast

import msgspec

from noetl_stream.model.events import KINDS
from noetl_stream.model.events.fact_parts import Entity, EvaluatedGuard, EventStatus, Source
from noetl_stream.model.json import codec

Time = Annotated[
    str, msgspec.Meta(description="UTC, ISO 8601, in milliseconds.", extra_json_schema={"format": "date-time"})
]

CONSUMING: Final = frozenset({"token.claimed", "token.absorbed", "token.discarded"})
"""The events that end the token they name; a held or joined token still exists."""


class EventDocument(msgspec.Struct, frozen=True):
    """An entry of a journal (`docs/reference/events.md`). Every event has every field, null where it does not apply:
    ``task`` in an event that is not about a task, or ``iteration`` outside loops.
    """

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
    task: str | None
    attempt: int | None
    iteration: list[int] | None
    tokens_consumed: list[str] | None
    tokens_produced: list[str] | None
    guards: list[EvaluatedGuard] | None
    digest: str
    data: dict[str, Any]


def envelope(
    *,
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
    digest: str = "",
    worker: str = "",
) -> EventDocument:
    """Builds the envelope of an event from its journal row.

    Args:
        data: The fact, whose fields become the envelope's ``data``; its tokens as :func:`shown_token` has them.
        digest: The digest of the playbook that the execution is pinned to.
        worker: The name of the worker that reported the event, where it is known.
    """
    fields: dict[str, Any] = codec.decode_shown(data)
    fields.pop("name", None)
    kind = KINDS[name].kind
    is_task = kind.entity == "task"
    consumed, produced = _tokens(name, fields)
    for one in (fields, *fields.get("entries", ())):
        if isinstance(token := one.get("token"), dict):
            one["token"] = shown_token(token, trace_id)
    return EventDocument(
        event_id=f"{execution_id}.{position}",
        execution_id=execution_id,
        position=position,
        ts=iso(at_ms),
        source=cast(Source, source),
        name=name,
        entity=kind.entity,
        entity_id=_entity_id(name, execution_id, fields, step_run_id),
        status=kind.status if isinstance(kind.status, str) else kind.status(fields),
        step_run_id=step_run_id or fields.get("step_run_id"),
        report_id=report_id,
        cause_id=None if cause is None else f"{execution_id}.{cause}",
        trace_id=trace_id,
        actor=fields.get("principal") or fields.get("worker") or worker or source,
        task=fields.get("task") if is_task else None,
        attempt=fields.get("attempt", 1) if is_task else None,
        iteration=_iteration(fields),
        tokens_consumed=consumed or None,
        tokens_produced=produced or None,
        guards=[EvaluatedGuard(**guard) for guard in fields.get("guards", ())] or None,
        digest=digest,
        data=fields,
    )


def shown_token(token: Mapping[str, Any], trace_id: str) -> dict[str, Any]:
    """A token's fields as people read them: with its trace, and its ``waves`` as ``lineage`` (LANGUAGE §13 *Token*)."""
    shown = {**token, "trace_id": trace_id, "lineage": token.get("waves", {})}
    shown.pop("waves", None)
    return shown


def iso(at_ms: int) -> str:
    """Milliseconds since the epoch as a UTC timestamp in ISO 8601."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def iso_or_none(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _iteration(fields: dict[str, Any]) -> list[int] | None:
    path = fields.get("path")
    return path or None if isinstance(path, list) else None  # a request's path is that of its playbook


def _tokens(name: str, fields: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The ids of the tokens that an event consumes, and of those that it produces."""
    if name in CONSUMING and "token_id" in fields:
        return [fields["token_id"]], []
    if name == "token.enqueued" and "token" in fields:
        return fields.get("joined", []), [fields["token"]["token_id"]]
    consumed: list[str] = []
    produced: list[str] = []
    if name == "execution.reused":
        for entry in fields.get("entries", ()):
            more_consumed, more_produced = _tokens(entry["name"], entry)
            consumed += more_consumed
            produced += more_produced
    return consumed, produced


def _entity_id(name: str, execution_id: str, fields: dict[str, Any], step_run_id: str | None) -> str:
    token = fields.get("token")
    if isinstance(token, dict):
        return str(token["token_id"])
    found = fields.get("token_id") or fields.get("step_run_id") or step_run_id
    part = fields["event"] if name == "step.emitted" else fields.get("task")
    return f"{found}.{part}" if part and found else str(found or execution_id)
