"""Chosen events of an execution: by position, name, step, task, iteration, text; whole or in part."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from noetl_stream.model.envelope import Time
from noetl_stream.model.events.fact_parts import Entity, EvaluatedGuard, EventStatus, Path, Source
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.verbs import MAX_POSITION, Name, Named, Position

EventField = Literal[
    "event_id", "execution_id", "position", "ts", "source", "name", "entity", "entity_id", "status", "step_run_id",
    "report_id", "cause_id", "trace_id", "actor", "task", "attempt", "iteration", "tokens_consumed", "tokens_produced",
    "guards", "digest", "data", "step",
]  # fmt: skip
"""Those of :class:`~noetl_stream.model.envelope.EventDocument`, and the step, if it is of one."""

EVENT_FIELDS: Final[tuple[EventField, ...]] = tuple(name for name in get_args(EventField) if name != "step")
"""What is shown by default: naming the step requires having read the journal up to there."""

MAX_TEXT: Final = 256
"""Characters of a text to search for."""


class EventFilter(msgspec.Struct, frozen=True, gc=False):
    """Which events: all of these hold.

    Attributes:
        after: Those above this position, the first ones; with ``before`` alone the last ones below it.
        names: Any of these; empty: any name.
        iteration: Of a loop, with those of the loops within it: ``(2,)`` is 2, 2.0 and 2.1.
        text: In the ``data`` of the event, as it is shown, in any case.
        fields: The fields that are shown; empty: :data:`EVENT_FIELDS`.
    """

    after: Annotated[Position, Meta(description="A position: those above it, the first ones.")] = 0
    before: Annotated[
        int | None,
        Meta(ge=1, le=MAX_POSITION, description="A position: those below it; without `after` the last ones."),
    ] = None
    names: Annotated[
        Collection[Name], Named("name"), Meta(max_length=100, description="Only events of these names.")
    ] = ()
    step: Annotated[Name | None, Meta(description="Only events of this step.")] = None
    task: Annotated[Name | None, Meta(description="Only events of this task.")] = None
    iteration: Path | None = None
    text: Annotated[
        str | None,
        Meta(min_length=1, max_length=MAX_TEXT, description="What `data` contains, in any case; no pattern."),
    ] = None
    fields: Annotated[
        Collection[EventField], Named("field"), Meta(max_length=100, description="Only these fields; all without it.")
    ] = ()

    @property
    def names_steps(self) -> bool:
        """Whether the step of each event must be known."""
        return self.step is not None or "step" in self.fields


class ListedEventDocument(Document, frozen=True):
    """An event, or the requested ones of its fields: those of :class:`~noetl_stream.model.envelope.EventDocument`, and
    ``step`` only if requested.
    """

    event_id: str | UnsetType = UNSET
    execution_id: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    ts: Time | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    name: str | UnsetType = UNSET
    entity: Entity | UnsetType = UNSET
    entity_id: str | UnsetType = UNSET
    status: EventStatus | UnsetType = UNSET
    step_run_id: str | UnsetType | None = UNSET
    report_id: str | UnsetType | None = UNSET
    cause_id: str | UnsetType | None = UNSET
    trace_id: str | UnsetType = UNSET
    actor: str | UnsetType = UNSET
    task: str | UnsetType | None = UNSET
    attempt: int | UnsetType | None = UNSET
    iteration: list[int] | UnsetType | None = UNSET
    tokens_consumed: list[str] | UnsetType | None = UNSET
    tokens_produced: list[str] | UnsetType | None = UNSET
    guards: list[EvaluatedGuard] | UnsetType | None = UNSET
    digest: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET
    step: str | UnsetType | None = UNSET


class EventPage(Document, frozen=True):
    """Entries by position. ``next`` is the ``after`` of the page after this one, ``previous`` the ``before`` of the one
    before it, where the page was asked for by ``before``. A page may be short, or empty, and not the last.
    """

    items: list[ListedEventDocument]
    next: int | None
    previous: int | None = None
