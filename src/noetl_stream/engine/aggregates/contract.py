"""The contract of a kind of aggregate: a fold of its own over its requests and notices.

As in the engine, a fact that changes nothing has no consequence, and time is a part of the input. A fold declares the
playbooks and permissions that it needs (:meth:`AggregateKind.lookups`) and receives them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from noetl_stream.model.aggregates import AggregateFact, Family, LimitSlot
from noetl_stream.model.messages import AggregateMessage, InboxMessage
from noetl_stream.model.status import Rejection

State = TypeVar("State")


class Lookup(msgspec.Struct, frozen=True, gc=False):
    """A playbook that a fold may start on behalf of a principal; without ``version`` the latest one."""

    path: str
    version: str | None
    principal: str


class Found(msgspec.Struct, frozen=True, gc=False):
    """The answer to a :class:`Lookup`: a playbook to start.

    Attributes:
        missing: The reason why no such playbook exists; all else is empty then.
        forbidden: The reason why the principal may not start it.
    """

    digest: str = ""
    missing: str = ""
    forbidden: str = ""


class LimitSlots:
    """The loaded slots of a limit, one row each. Other aggregates have none.

    Args:
        most: The number of waiting slots that were requested.

    Attributes:
        has_more: Whether more slots may wait than :meth:`waiting` yields.
    """

    def __init__(self, slots: Sequence[LimitSlot] = (), most: int = 1) -> None:
        self._slots = {slot.holder: slot for slot in slots}
        waiting = [slot for slot in slots if not slot.granted_ms]
        self.has_more = len(waiting) >= most
        self._waiting = deque(waiting[:most])

    def of(self, holder: str) -> LimitSlot | None:
        return self._slots.get(holder)

    def waiting(self) -> Iterator[LimitSlot]:
        """The first waiting slots, in order."""
        queue = self._waiting
        while queue and self._slots.get(queue[0].holder) is not queue[0]:
            queue.popleft()
        return (slot for slot in queue if self._slots.get(slot.holder) is slot)

    def may_be_ended(self) -> Iterator[LimitSlot]:
        """The first slots whose execution a newer one may replace, in order."""
        return iter(sorted((slot for slot in self._slots.values() if slot.may_be_ended), key=lambda slot: slot.number))


NO_SLOTS: Final = LimitSlots()


class Given(msgspec.Struct, frozen=True, gc=False):
    """An input of an aggregate. ``at_ms`` is the time it was stored in EVENTS, or else the database's time.

    ``key`` is the aggregate's. ``found`` answers :meth:`AggregateKind.lookups`, ``slots`` are those of a limit, and
    ``streams`` those that triggers may read. ``is_catching_up``: Postgres was restored and not all holders of slots are
    known
    yet. ``most_per_minute`` bounds the executions that a trigger may start in a minute (0: no bound); ``free_ms`` is
    when the
    trigger's namespace may start the next one.
    """

    aggregate_id: str
    key: str
    fact: AggregateFact
    at_ms: int
    found: Mapping[Lookup, Found] = {}
    slots: LimitSlots = NO_SLOTS
    streams: Collection[str] = ()
    is_catching_up: bool = False
    most_per_minute: int = 0
    free_ms: int = 0


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of an aggregate's history; it replaces an earlier one of the same number.

    Numbers begin with 1 and have no holes, so that the oldest entries are those below a number.
    """

    number: int
    at_ms: int
    status: str
    execution_id: str | None = None
    body: Mapping[str, Any] = {}


class Folded(msgspec.Struct, Generic[State], frozen=True, gc=False):
    """The result of folding an input. If nothing has changed, ``state`` is the very state that was given.

    Attributes:
        state: ``None`` if the aggregate does not exist.
        messages: Messages to executions and other aggregates, sent with the tick.
        history: New and changed entries.
        answer: The answer to a client's request, or the reason for refusing it.
        slots: The changed slots of a limit, by holder; ``None`` for a returned one.
        faults: The number of failed actions of a trigger.
    """

    state: State | None
    messages: Sequence[InboxMessage | AggregateMessage] = ()
    history: Sequence[HistoryEntry] = ()
    answer: Mapping[str, Any] | Rejection = {}
    slots: Mapping[str, LimitSlot | None] = {}
    faults: int = 0


class AggregateKind(Protocol[State]):
    """A kind of aggregate. Its state is a frozen struct, stored as JSON."""

    @property
    def name(self) -> str:
        """The name of the kind as in the catalog: ``Schedule``."""
        ...

    @property
    def family(self) -> Family: ...

    @property
    def state_type(self) -> type[State]: ...

    def timers(self, state: State) -> Mapping[str, int]:
        """The timers of the aggregate: due times in ms, by an id of its own choice.

        A ``TimerDue`` comes for each; its fold must change what is returned here.
        """
        ...

    def lookups(self, state: State | None, fact: AggregateFact) -> Collection[Lookup]:
        """The playbooks that folding ``fact`` may start."""
        ...

    def fold(self, state: State | None, given: Given) -> Folded[State]:
        """Folds ``given``, whose fact is of this kind or of none."""
        ...
