"""The limit aggregate: which holder of a key gets a slot, and when (LANGUAGE §15). Pure: no change, no consequence.

A key may have ten thousand waiters. The state therefore holds counts, and each slot is a row of its own: a fold sees
only
the rows that its input names and the first waiters, so that a grant costs the same however long the queue is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Given, LimitSlots, Lookup
from noetl_stream.model import events
from noetl_stream.model.aggregates import (
    LIMIT,
    AggregateFact,
    Family,
    LimitFact,
    LimitSlot,
    LimitState,
    SlotAsked,
    SlotHeld,
)
from noetl_stream.model.aggregates.key_limits import shown_limit
from noetl_stream.model.events import Rate
from noetl_stream.model.ids import derive
from noetl_stream.model.messages import AGGREGATES_FORMAT, InboxMessage
from noetl_stream.model.rights import covers

US_PER_MS: Final = 1000

IDLE_MS: Final = 60_000
"""The time after which an unused key is forgotten; long enough that frequent users still find it."""

USERS_KEPT: Final = 16
"""The most playbooks that are named as users of a key."""

CATCHING_UP_MS: Final = 500
"""The interval at which a limit checks again whether all its holders are known."""

TIMER: Final = "limit"


class LimitKind:
    """:class:`~noetl_stream.engine.aggregates.contract.AggregateKind`; the contract documents each method."""

    name: Final = LIMIT
    family: Final[Family] = "limit"
    state_type: Final = LimitState

    def timers(self, state: LimitState) -> Mapping[str, int]:
        return {TIMER: state.timer_ms} if state.timer_ms else {}

    def lookups(self, state: LimitState | None, fact: AggregateFact) -> Collection[Lookup]:
        return ()

    def fold(self, state: LimitState | None, given: Given) -> Folded[LimitState]:
        fact = given.fact if isinstance(given.fact, LimitFact) else None
        return fold_limit(state, given.slots, fact, given.at_ms, is_catching_up=given.is_catching_up)


def fold_limit(
    state: LimitState | None, slots: LimitSlots, fact: LimitFact | None, at_ms: int, *, is_catching_up: bool = False
) -> Folded[LimitState]:
    """Folds an input into a limit.

    Args:
        fact: The request or notice; ``None`` if its timer is due.
        at_ms: The time of the fact; the limit's own time never decreases.
        is_catching_up: Whether not all holders are known. Nothing is granted then: all requests wait, even with
            ``reject``.
    """
    if isinstance(fact, SlotAsked):
        known = state or LimitState(fact.key, namespace=fact.namespace)
        return _take_request(known, slots, fact, at_ms, is_catching_up=is_catching_up)
    if state is None:
        return Folded(None)
    if fact is None:
        return _wake(state, slots, at_ms, is_catching_up=is_catching_up)
    slot = slots.of(fact.holder)
    if slot is None or (isinstance(fact, SlotHeld) and slot.granted_ms):
        return Folded(state)
    folding = _Folding(state, slots, at_ms, is_catching_up)
    if isinstance(fact, SlotHeld):
        folding.grant_to(slot)
    else:
        folding.remove(slot)
        folding.grant(())
    return folding.result()


def _wake(state: LimitState, slots: LimitSlots, at_ms: int, *, is_catching_up: bool) -> Folded[LimitState]:
    if not state.timer_ms or at_ms < state.timer_ms:
        return Folded(state)
    if not (state.held or state.queued):
        return Folded(None)
    folding = _Folding(state, slots, at_ms, is_catching_up)
    folding.grant(())
    return folding.result()


def _take_request(
    state: LimitState, slots: LimitSlots, fact: SlotAsked, at_ms: int, *, is_catching_up: bool
) -> Folded[LimitState]:
    if slots.of(fact.holder) is not None:
        return Folded(state)
    limited = _with_newest_limit(state, fact, at_ms)
    warning = "" if limited is state else _warning(limited, state, fact)
    folding = _Folding(_with_user(limited, fact.path), slots, at_ms, is_catching_up)
    asked = LimitSlot(
        number=folding.state.next_number,
        execution_id=fact.execution_id,
        step_run_id=fact.step_run_id,
        path=fact.path,
        step=fact.step,
        slot_id=fact.slot_id,
        task=fact.task,
        on_limit=fact.on_limit,
        asked_ms=folding.at_ms,
        warning=warning,
    )
    folding.add(asked)
    return folding.result()


def _with_user(state: LimitState, path: str) -> LimitState:
    """The limit with ``path`` among the playbooks that use it."""
    if path in state.used_by:
        return state
    return replace(state, used_by=(*state.used_by, path)[-USERS_KEPT:])


def _warning(limited: LimitState, before: LimitState, fact: SlotAsked) -> str:
    """The warning that the newest request has replaced a concurrency or rate. It is read by all who may see the
    playbook that asks; for a key shared between namespaces it names no playbook of another one.
    """
    is_named = bool(limited.namespace) or covers((fact.path,), before.set_by)
    return limited.replaced if is_named or not limited.replaced else _replaced(limited, before, "another playbook")


def _with_newest_limit(state: LimitState, fact: SlotAsked, at_ms: int) -> LimitState:
    """The limit with the concurrency and rate of the newest request."""
    concurrency = state.concurrency if fact.concurrency is None else fact.concurrency
    rate = state.rate if fact.rate is None else fact.rate
    if (concurrency, rate) == (state.concurrency, state.rate):
        return state
    limited = replace(state, concurrency=concurrency, rate=rate, set_by=fact.path, set_ms=max(at_ms, 1), replaced="")
    if (fact.concurrency and state.concurrency) or (fact.rate and state.rate):
        return replace(limited, replaced=_replaced(limited, state, f"playbook {state.set_by}"))
    return limited


def _replaced(limited: LimitState, before: LimitState, by: str) -> str:
    """A description of the former limit and the playbook that set it."""
    now, was = (shown_limit(one.concurrency, one.rate) for one in (limited, before))
    return (
        f"the limit of key {limited.key} is {now} now, as playbook {limited.set_by} says; it was {was}, as {by} says: "
        "the newest that asks decides"
    )


class _Folding:
    """The fold of one input of a limit: the state so far, changed slots and notices."""

    def __init__(self, state: LimitState, slots: LimitSlots, at_ms: int, is_catching_up: bool) -> None:
        self.at_ms: Final = max(at_ms, state.at_ms)
        self._woken_ms: Final = state.timer_ms if state.timer_ms <= at_ms else 0  # a timer is set once only
        self.state = replace(state, at_ms=self.at_ms)
        self._slots: Final = slots
        self._is_catching_up: Final = is_catching_up
        self._changed: Final[dict[str, LimitSlot | None]] = {}
        self._told: Final[list[InboxMessage]] = []

    def add(self, asked: LimitSlot) -> None:
        """Adds a slot to the end of the queue, and grants free slots."""
        number = asked.number
        self.state = replace(self.state, next_number=number + 1, queued=self.state.queued + 1)
        self._changed[asked.holder] = asked
        self.grant((asked,))
        is_refused = self._changed[asked.holder] is asked and not self._is_catching_up
        if is_refused and asked.on_limit in ("reject", "discard"):
            del self._changed[asked.holder]
            self.state = replace(self.state, next_number=number, queued=self.state.queued - 1)
            reason = f"{self._full_text()}, and on_limit is {asked.on_limit}"
            self._tell(asked, events.SlotRefused(self.state.key, reason, asked.step_run_id, self.state.namespace))
        elif is_refused and asked.on_limit == "cancel_running":
            self._end_oldest(asked)

    def remove(self, slot: LimitSlot) -> None:
        """Removes a slot that was held, or that waits in the queue."""
        held, queued = (1, 0) if slot.granted_ms else (0, 1)
        self.state = replace(self.state, held=self.state.held - held, queued=self.state.queued - queued)
        self._changed[slot.holder] = None

    def grant(self, last: Sequence[LimitSlot]) -> None:
        """Grants free slots to the queue, in order; ``last`` come after all others."""
        if self._is_catching_up:
            return
        queue = self._slots.waiting() if self._slots.has_more else chain(self._slots.waiting(), last)
        for slot in queue:
            if self._changed.get(slot.holder, slot) is not slot:
                continue
            if not self._has_slot or self._next_us > self.at_ms * US_PER_MS:
                return
            self.grant_to(slot)

    def grant_to(self, slot: LimitSlot) -> None:
        """Grants a slot to a waiting holder."""
        state, rate = self.state, self.state.rate
        if rate is not None:
            free_us = max(state.free_us, self.at_ms * US_PER_MS) + _interval_us(rate)
            state = replace(state, free_us=free_us)
        holds = state.concurrency is not None  # a rate alone has nothing to return
        self.state = replace(state, queued=state.queued - 1, held=state.held + holds)
        self._changed[slot.holder] = replace(slot, granted_ms=max(self.at_ms, 1)) if holds else None
        granted = events.SlotGranted(state.key, slot.step_run_id, slot.warning, slot.slot_id, state.namespace)
        self._tell(slot, granted)

    def result(self) -> Folded[LimitState]:
        """The result of the fold. The limit's timer is set for the next slot of the rate, the next rows of the queue,
        or the time at which the key is forgotten.
        """
        state, timer_ms = self.state, 0
        if state.queued and self._is_catching_up:
            timer_ms = self.at_ms + CATCHING_UP_MS
        elif state.queued and self._has_slot:
            timer_ms = max(-(-self._next_us // US_PER_MS), self.at_ms, self._woken_ms + 1)
        elif not (state.held or state.queued):
            timer_ms = max(-(-state.free_us // US_PER_MS), self.at_ms + IDLE_MS)
        is_held_back = self._is_catching_up and state.queued > 0
        return Folded(replace(state, timer_ms=timer_ms, catching_up=is_held_back), self._told, slots=self._changed)

    @property
    def _has_slot(self) -> bool:
        return self.state.concurrency is None or self.state.held < self.state.concurrency

    @property
    def _next_us(self) -> int:
        """The time at which the rate grants the next slot, in microseconds."""
        rate = self.state.rate
        return 0 if rate is None else self.state.free_us - (rate.burst - 1) * _interval_us(rate)

    def _end_oldest(self, newer: LimitSlot) -> None:
        """Ends the oldest execution, holding or waiting, to stay within the limit."""
        oldest = next((slot for slot in self._slots.may_be_ended() if slot.holder not in self._changed), None)
        if oldest is None:
            return
        self._changed[oldest.holder] = replace(oldest, is_ending=True)
        is_seen = covers((oldest.path,), newer.path)  # may all who see the ending execution see the newer one?
        by = f"execution {newer.execution_id}" if is_seen else "an execution of another playbook"
        reason = f"{by} takes its place: key {self.state.key}, on_limit is cancel_running"
        request_id = derive("limit", self.state.key, oldest.holder, newer.holder)
        self._tell(oldest, events.CancelRequested(request_id, reason=reason))

    def _full_text(self) -> str:
        state = self.state
        ahead = f", {state.queued} wait" if state.queued else ""
        return f"key {state.key} is limited to {shown_limit(state.concurrency, state.rate)}: {state.held} held{ahead}"

    def _tell(self, slot: LimitSlot, fact: events.SlotGranted | events.SlotRefused | events.CancelRequested) -> None:
        self._told.append(InboxMessage(slot.execution_id, fact, AGGREGATES_FORMAT))


def _interval_us(rate: Rate) -> int:
    return max(1, round(1_000_000 / rate.per_s))
