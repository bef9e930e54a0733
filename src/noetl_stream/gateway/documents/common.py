"""Shapes of answers that several resources have. They are the schemas of the OpenAPI document; no answer is built of
them: tests hold every answer against its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="UTC, ISO 8601, in milliseconds.")]
Next = Annotated[str | None, Field(description="The `cursor` of the page after this one; null at the end.")]


class Document(BaseModel):
    """Base of answers: what is not described does not come."""

    model_config = ConfigDict(extra="forbid")


class OpenDocument(BaseModel):
    """Base of answers that may have more keys."""

    model_config = ConfigDict(extra="allow")


class Diagnostic(Document):
    """A finding in a playbook."""

    severity: Literal["error", "warning"]
    code: str
    message: str
    hint: str | None
    file: str
    line: int
    column: int
    pointer: str


class Fault(Document):
    """One thing that is wrong with a request: with a parameter, or at a JSON pointer into its body."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class Problem(Document):
    """An error (RFC 9457). `type` is stable: branch on it. The address `type` names has words about it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    hint: str | None = None
    diagnostics: list[Diagnostic] | None = None
    errors: list[Fault] | None = None


class ErrorInfo(Document):
    """Why a task, a step or an execution failed."""

    kind: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    task: str | None = None
    index: int | None = None
    code: str | None = None


class Event(Document):
    """An entry of a journal (`docs/reference/events.md`)."""

    event_id: str
    execution_id: str
    position: int
    ts: Time
    source: Literal["client", "server", "worker"]
    name: str
    entity: str
    entity_id: str
    status: Literal["in_progress", "success", "error", "paused"]
    step_run_id: str | None
    report_id: str | None
    cause_id: str | None
    trace_id: str
    actor: str
    data: dict[str, Any]
