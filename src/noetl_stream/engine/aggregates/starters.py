"""The common part of schedules and triggers: both start executions of a playbook with the rights of the principal that
registered them, and keep a numbered history of every start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Found, Given, HistoryEntry, Lookup
from noetl_stream.model.aggregates import (
    AggregateFact,
    Family,
    StarterDeleted,
    StarterPaused,
    StarterRegistered,
    StarterResumed,
    StarterTerms,
)
from noetl_stream.model.events import ExecutionRequested, Origin
from noetl_stream.model.ids import derive, uuid7
from noetl_stream.model.messages import AGGREGATES_FORMAT, InboxMessage
from noetl_stream.model.status import Rejection

MAX_KNOWN: Final = 1_000
"""The most remembered executions that were started before Postgres was restored."""

REMEMBERED_MS: Final = 600_000
"""The time for which starts before a restore of Postgres are remembered, until all partitions have caught up."""


class StarterState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    Attributes:
        path: The path at which it is registered.
        by: The principal that registered it, with whose rights it acts.
        created_ms: The time of the first registration, from which the ids of its executions derive.
        number: The number of the newest entry of its history.
        paused: The reason why it is paused; empty if it is not.
    """

    path: str
    terms: StarterTerms
    by: str
    revision: int
    digest: str
    created_ms: int
    registered_ms: int
    number: int = 0
    if TYPE_CHECKING:  # each kind stores these two in its own place
        paused: str
        paused_ms: int

    @property
    def lookup(self) -> Lookup:
        """The playbook to start."""
        return Lookup(self.terms.playbook, self.terms.version, self.by)

    def execution_of(self, given: Given, at_ms: int, *cause: str | int) -> str:
        """The id of the execution that a cause starts, the same however often or late the cause is folded.

        Args:
            at_ms: The time in the id.
            cause: The identity of the cause.
        """
        return uuid7(at_ms, bytes.fromhex(derive(given.aggregate_id, self.created_ms, *cause)))


State = TypeVar("State", bound=StarterState)


class StarterKind(ABC, Generic[State]):
    """Base of kinds that start executions (:class:`~noetl_stream.engine.aggregates.contract.AggregateKind`).

    Attributes:
        free: Facts that start nothing and need no lookup.
    """

    name: ClassVar[str]
    family: Final[Family] = "starter"
    state_type: type[State]
    free: ClassVar[tuple[type[AggregateFact], ...]]

    @abstractmethod
    def timers(self, state: State) -> Mapping[str, int]: ...

    def lookups(self, state: State | None, fact: AggregateFact) -> Collection[Lookup]:
        if isinstance(fact, StarterRegistered):
            return [_wanted(fact), *self.watched(state, fact)]
        return [] if state is None or isinstance(fact, self.free) else [state.lookup, *self.watched(state, fact)]

    def watched(self, state: State | None, fact: AggregateFact) -> Collection[Lookup]:
        """The lookups for a fact in addition to the playbook."""
        return ()

    def fold(self, state: State | None, given: Given) -> Folded[State]:
        fact = given.fact
        if isinstance(fact, StarterRegistered):
            return self._registered(state, given, fact)
        if state is None:
            text = f"there is no {self.name.lower()} at {given.key}"
            return Folded(None, answer=Rejection("unknown_aggregate", text))
        answer = {"path": state.path}
        match fact:
            case StarterDeleted():
                return Folded(None, answer=answer)
            case StarterPaused() | StarterResumed() if isinstance(fact, StarterPaused) == bool(state.paused):
                return Folded(state, answer={**answer, "already": True})
            case StarterPaused():
                return Folded(paused(state, fact.reason or "on request", given.at_ms), answer=answer)
            case StarterResumed():
                if forbidden := given.found[state.lookup].forbidden:
                    return Folded(state, answer=Rejection("forbidden", forbidden))
                return replace(self.resumed(replace(state, paused="", paused_ms=0), given), answer=answer)
        return self.react(state, given)

    def _registered(self, state: State | None, given: Given, fact: StarterRegistered) -> Folded[State]:
        found = given.found[_wanted(fact)]
        if found.missing:
            return Folded(state, answer=Rejection("unknown_playbook", found.missing))
        if forbidden := found.forbidden or self.forbidden(given, fact):
            return Folded(state, answer=Rejection("forbidden", forbidden))
        answer = {"path": given.key, "revision": fact.revision}
        if state is not None and (state.revision, state.terms, state.by) == (fact.revision, fact.terms, fact.principal):
            return Folded(state, answer={**answer, "already": True})
        now: dict[str, Any] = {"terms": fact.terms, "by": fact.principal, "revision": fact.revision}
        now |= {"digest": fact.digest, "registered_ms": given.at_ms}
        after = (
            self.state_type(path=given.key, created_ms=given.at_ms, **now) if state is None else replace(state, **now)
        )
        return Folded(self.registered(state, after, given), answer=answer)

    def forbidden(self, given: Given, fact: StarterRegistered) -> str:
        """The reason for refusing a registration whose playbook may be started; empty if it is accepted."""
        return ""

    @abstractmethod
    def registered(self, before: State | None, state: State, given: Given) -> State:
        """The state after a registration, apart from its terms."""

    @abstractmethod
    def resumed(self, state: State, given: Given) -> Folded[State]:
        """The result of resuming it."""

    @abstractmethod
    def react(self, state: State, given: Given) -> Folded[State]:
        """The result of any other fact."""


def _wanted(fact: StarterRegistered) -> Lookup:
    return Lookup(fact.terms.playbook, fact.terms.version, fact.principal)


def paused(state: State, reason: str, at_ms: int) -> State:
    """The paused state; if it was paused before, the first reason stays."""
    return state if state.paused else replace(state, paused=reason, paused_ms=at_ms)


def told(state: StarterState, entry: HistoryEntry) -> dict[str, Any]:
    """An entry of the history as clients read it. ``execution_id`` is its execution's, if it has one."""
    reason = {"reason": entry.body["reason"]} if "reason" in entry.body else {}
    started = {"execution_id": entry.execution_id} if entry.execution_id else {}
    return {"path": state.path, "number": entry.number, "status": entry.status, **started, **reason}


def start(
    state: StarterState,
    execution_id: str,
    origin: Origin,
    *,
    cause: str,
    found: Found,
    workload: dict[str, Any],
    labels: dict[str, Any],
    key: str = "",
    digits_lost: Sequence[str] = (),
    due: str = "",
) -> InboxMessage:
    """The message that starts an execution. ``cause`` is the entry of the history."""
    request = ExecutionRequested(
        derive(execution_id, "request"),
        found.digest,
        state.terms.playbook,
        workload,
        principal=state.by,
        trace_id=execution_id.replace("-", ""),
        reason=f"{origin.kind.lower()} {state.path}, {cause} {origin.number}",
        origin=origin,
        digits_lost=list(digits_lost),
        labels=labels,
        key=key,
        due=due,
    )
    return InboxMessage(execution_id, request, AGGREGATES_FORMAT)
