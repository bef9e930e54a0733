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
    return id.startswith(_BEGINNINGS)


def is_limit(id: str) -> bool:
    return id.startswith("limit-")


def is_key_of(id: str, key: str) -> bool:
    """Whether an aggregate with this id has this key."""
    return any(id == aggregate_id(family, key) for family in FAMILIES)


class AggregateFact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts that aggregates fold; the tag is the fact's name.

    ``of`` is the kind of aggregate that takes it; empty for any kind.
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
    """An execution started by an aggregate has ended. ``number`` is its history entry, ``error`` its error's kind."""

    execution_id: str
    number: int
    status: EndStatus
    error: str = ""


class StartedBefore(AggregateFact, frozen=True, tag="started.before"):
    """An execution that an aggregate started exists: EVENTS has it, and Postgres was restored to an earlier state."""

    execution_id: str


class TimerDue(AggregateFact, frozen=True, tag="timer.due"):
    """A timer of the aggregate is due by the database's clock. Not a message: the owner of the partition creates it."""

    timer_id: str
    due_ms: int


class StarterTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of a starter: a registered document. ``version`` is that of the playbook, ``None`` for the latest."""

    playbook: str
    version: str | None = None


class StarterRegistered(AggregateRequested, frozen=True):
    """From now on the terms of the starter at the path ``key`` are ``terms``.

    ``revision`` and ``digest`` are those of the document in the catalog; repeating a revision changes nothing.
    """

    terms: StarterTerms = StarterTerms(playbook="")
    revision: int = 0
    digest: str = ""


class StarterPaused(AggregateRequested, frozen=True):
    """The starter starts nothing until it is resumed."""


class StarterResumed(AggregateRequested, frozen=True):
    """The starter starts executions again from now on. Starts missed while it was paused are not made up for."""


class StarterDeleted(AggregateRequested, frozen=True):
    """The starter is forgotten with its history; the executions it has started continue."""
