"""The parts of facts about aggregates: their ids, and the fields that all kinds share."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, get_args

import msgspec

from noetl_stream.model.ids import derive
from noetl_stream.model.status import EndStatus

Family = Literal["starter", "limit"]
"""Aggregates of one family share their keys: a path has one starter, a schedule or a trigger."""

FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
_BEGINNINGS: Final = tuple(f"{family}-" for family in FAMILIES)


def aggregate_id(family: Family, key: str) -> str:
    """The id of the aggregate with this key, a path or the value of a key; no execution has such an id."""
    return f"{family}-{derive(family, key)}"


def is_aggregate(id: str) -> bool:
    """Whether ``id`` is the id of an aggregate."""
    return id.startswith(_BEGINNINGS)


def is_limit(id: str) -> bool:
    """Whether ``id`` is the id of a limit."""
    return id.startswith("limit-")


def is_key_of(id: str, key: str) -> bool:
    """Whether an aggregate with this id has this key."""
    return any(id == aggregate_id(family, key) for family in FAMILIES)


class AggregateFact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts that aggregates fold; the tag is the fact's name.

    ``of`` is the kind of aggregate that takes it; empty: of any kind.
    """

    of: ClassVar[str] = ""


class AggregateRequested(AggregateFact, frozen=True):
    """Base of requests to an aggregate. ``key`` is its path or key, from which its id derives."""

    request_id: str
    key: str
    principal: str = ""
    reason: str = ""
    correlation_id: str = ""


class StartedEnded(AggregateFact, frozen=True, tag="started.ended"):
    """An execution started by an aggregate has ended. ``number`` is that of its history entry, ``error`` the kind of
    its error.
    """

    execution_id: str
    number: int
    status: EndStatus
    error: str = ""


class StartedBefore(AggregateFact, frozen=True, tag="started.before"):
    """An execution started by an aggregate exists: EVENTS has it; Postgres was restored to an earlier state."""

    execution_id: str


class TimerDue(AggregateFact, frozen=True, tag="timer.due"):
    """A timer of the aggregate is due by the database's clock. No message: the owner of the partition creates it."""

    timer_id: str
    due_ms: int


class StarterTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a starter starts: a registered document, read. ``version`` is the version of the playbook, ``None`` for the
    one registered last.
    """

    playbook: str
    version: str | None = None


class StarterRegistered(AggregateRequested, frozen=True):
    """The starter at the path ``key`` is from now on as ``terms`` say.

    ``revision`` and ``digest`` are those of the document in the catalog; the same revision again changes nothing.
    """

    terms: StarterTerms = StarterTerms(playbook="")
    revision: int = 0
    digest: str = ""


class StarterPaused(AggregateRequested, frozen=True):
    """The starter starts nothing until it is resumed."""


class StarterResumed(AggregateRequested, frozen=True):
    """The starter starts executions again from now on. What it did not start while it was paused is not made up for."""


class StarterDeleted(AggregateRequested, frozen=True):
    """The starter is forgotten, with its history; what it has started goes on."""
