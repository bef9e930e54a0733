"""Schedules: each occurrence starts once, or is skipped with a reason (LANGUAGE §15 *Schedule*).

A due occurrence gets a number, and an entry of that number in the history that records its fate: waiting, started,
skipped, or how its execution ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Found, Given, HistoryEntry
from noetl_stream.engine.aggregates.starters import (
    MAX_KNOWN,
    REMEMBERED_MS,
    StarterKind,
    StarterState,
    paused,
    start,
    told,
)
from noetl_stream.model.aggregates import (
    SCHEDULE,
    Overlap,
    ScheduleBackfilled,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleRegistered,
    ScheduleTerms,
    ScheduleTriggered,
    StartedBefore,
    StartedEnded,
    TimerDue,
)
from noetl_stream.model.events import CancelRequested, Origin
from noetl_stream.model.ids import derive
from noetl_stream.model.messages import AGGREGATES_FORMAT, InboxMessage
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.schedule.schedule_workload import Unrenderable, render_key, render_workload
from noetl_stream.schedule.occurrence import OccurrenceView, occurrence_view
from noetl_stream.schedule.recurrence import Recurrence, jitter_of
from noetl_stream.zones import iso_in, zone_named

AT_ONCE: Final = 50
"""The most occurrences that one fold decides about; if more are due, the timer fires again at once."""

ON_TIME_MS: Final = 60_000
"""An occurrence that is at most this late does not count as missed."""

MAX_RUNNING: Final = 1_000
MAX_WAITING: Final = 100
MAX_BACKFILL: Final = 10_000

AHEAD_MS: Final = 300_000
"""A range that ends at most this far in the future is cut off at the present."""

MAX_MISSED: Final = 200
"""The number of missed occurrences that are remembered: a server may still report that they started."""

Cause = Literal["timetable", "trigger", "backfill"]


class DueOccurrence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An occurrence that waits or runs. ``at_ms`` is its time in the timetable, ``due_ms`` includes the jitter;
    ``own_id`` is the id of its execution, once started.
    """

    number: int
    at_ms: int
    due_ms: int
    own_id: str
    cause: Cause = "timetable"
    execution_id: str = ""
    started_ms: int = 0


class Backfill(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A backfill under way: the next occurrence, the end of its range, and the request for it."""

    next_ms: int
    before_ms: int
    overlap: Overlap
    left: int
    request_id: str
    asked_ms: int


class ScheduleState(StarterState, frozen=True, omit_defaults=True, kw_only=True):
    """
    Attributes:
        next_ms: The next time of the timetable; ``None`` if there is none left.
        decided_ms: The last decided time of the timetable.
        failures: The number of consecutive failures.
        known: Executions started before Postgres was restored to an earlier state, by id, until their occurrences are
            due again; each with its end, if it has ended.
        missed: The last missed occurrences. ``recalled_ms`` is the time of the last addition to ``known`` or
            ``missed``.
    """

    terms: ScheduleTerms
    next_ms: int | None = None
    decided_ms: int = 0
    paused: str = ""
    paused_ms: int = 0
    failures: int = 0
    running: tuple[DueOccurrence, ...] = ()
    waiting: tuple[DueOccurrence, ...] = ()
    backfill: Backfill | None = None
    known: dict[str, StartedEnded | None] = {}
    missed: tuple[DueOccurrence, ...] = ()
    recalled_ms: int = 0


class ScheduleKind(StarterKind[ScheduleState]):
    """Schedules; :class:`~noetl_stream.engine.aggregates.starters.StarterKind` documents each method."""

    name = SCHEDULE
    state_type = ScheduleState
    free = (ScheduleDeleted, SchedulePaused)

    def timers(self, state: ScheduleState) -> Mapping[str, int]:
        if state.paused:
            return {}
        found: dict[str, int] = {}
        if state.next_ms is not None:
            found["next"] = _due_ms(state, state.next_ms)
        if state.backfill is not None and not _holds_back(state, state.backfill):
            found["backfill"] = state.backfill.next_ms
        return found

    def registered(self, before: ScheduleState | None, state: ScheduleState, given: Given) -> ScheduleState:
        if before is None and isinstance(given.fact, ScheduleRegistered) and given.fact.paused:
            state = paused(state, "it was registered paused", given.at_ms)
        return replace(state, next_ms=_after(state.terms, max(given.at_ms, state.decided_ms)))

    def resumed(self, state: ScheduleState, given: Given) -> Folded[ScheduleState]:
        next_ms = _after(state.terms, max(given.at_ms, state.decided_ms))
        turn = _Turn(replace(state, failures=0, next_ms=next_ms), given)
        turn.start_waiting()
        return turn.folded()

    def react(self, state: ScheduleState, given: Given) -> Folded[ScheduleState]:
        turn = _Turn(state, given)
        match given.fact:
            case ScheduleTriggered(request_id=request_id):
                one = turn.numbered(given.at_ms, "trigger", request_id)
                number = turn.arrive(one, state.terms.overlap)
                return turn.folded(told(state, turn.history[number]))
            case ScheduleBackfilled() as fact:
                return _backfilled(turn, fact)
            case StartedBefore(execution_id=execution_id):
                turn.recall(execution_id)
            case StartedEnded() as fact:
                turn.ended(fact)
            case TimerDue("next"):
                _next_due(turn)
            case TimerDue("backfill"):
                _backfill_due(turn)
        return turn.folded()


def _backfilled(turn: _Turn, fact: ScheduleBackfilled) -> Folded[ScheduleState]:
    state = turn.state
    if state.paused:
        text = f"the schedule is paused and starts nothing: {state.paused}; resume it first"
        return Folded(state, answer=Rejection("paused", text))
    if state.backfill is not None:
        text = f"a backfill is under way: {state.backfill.left} occurrences are left of it"
        return Folded(state, answer=Rejection("under_way", text))
    before_ms = min(fact.before_ms, turn.at_ms)  # the client's clock may be ahead
    if fact.before_ms > turn.at_ms + AHEAD_MS:
        return Folded(state, answer=Rejection("nothing_due", "the range of a backfill ends in the future"))
    due = list(islice(_range(state.terms, fact.from_ms, before_ms), MAX_BACKFILL + 1))
    if not due:
        text = "the schedule has no occurrence in this range: look at its times, `window` and `exclude`"
        return Folded(state, answer=Rejection("nothing_due", text))
    if len(due) > MAX_BACKFILL:
        text = f"the range has more than {MAX_BACKFILL} occurrences: give a shorter one"
        return Folded(state, answer=Rejection("too_large", text))
    backfill = Backfill(due[0], before_ms, fact.overlap, len(due), fact.request_id, turn.at_ms)
    turn.state = replace(state, backfill=backfill)
    return turn.folded({"path": state.path, "occurrences": len(due)})


def _next_due(turn: _Turn) -> None:
    """Decides about due occurrences, oldest first, at most :data:`AT_ONCE`."""
    terms, at_ms = turn.state.terms, turn.at_ms
    due: list[int] = []
    next_ms = turn.state.next_ms
    while next_ms is not None and _due_ms(turn.state, next_ms) <= at_ms and len(due) < AT_ONCE:
        due.append(next_ms)
        next_ms = _after(terms, next_ms)
    turn.state = replace(turn.state, next_ms=next_ms, decided_ms=due[-1] if due else turn.state.decided_ms)
    has_newer = next_ms is not None and _due_ms(turn.state, next_ms) <= at_ms
    for place, one in enumerate(due):
        late_ms = at_ms - _due_ms(turn.state, one)
        is_last = place == len(due) - 1 and not has_newer
        turn.arrive(turn.numbered(one, "timetable"), terms.overlap, _missed(terms, late_ms, is_last=is_last))
    if not has_newer and turn.state.backfill is None:
        turn.forget()


def _missed(terms: ScheduleTerms, late_ms: int, *, is_last: bool) -> str:
    """The reason for skipping an occurrence that is this late; empty if it is caught up."""
    if late_ms <= ON_TIME_MS:
        return ""
    text = f"no server ran when it was due, {late_ms // 1000} s ago"
    if terms.missed == "none":
        return f"{text} (`missed: none`)"
    if terms.missed_within_s is not None and late_ms > terms.missed_within_s * 1000:
        return f"{text}: longer than `missed_within`"
    return "" if is_last or terms.missed == "all" else f"{text}, and a later one is due (`missed: last`)"


def _backfill_due(turn: _Turn) -> None:
    for _ in range(AT_ONCE):
        backfill = turn.state.backfill
        if backfill is None or _holds_back(turn.state, backfill) or turn.state.paused:
            return
        following = next(_range(turn.state.terms, backfill.next_ms + 1, backfill.before_ms), None)
        after = None if following is None else replace(backfill, next_ms=following, left=max(1, backfill.left - 1))
        turn.state = replace(turn.state, backfill=after)
        one = turn.numbered(backfill.next_ms, "backfill", backfill.request_id, backfill.asked_ms)
        turn.arrive(one, backfill.overlap)


def _holds_back(state: ScheduleState, backfill: Backfill) -> bool:
    """Whether the backfill postpones its next occurrence itself; else the bounds of waiting and running ones decide."""
    if backfill.overlap == "queue_all":
        return bool(state.running or state.waiting)
    return backfill.overlap == "allow" and len(state.running) >= MAX_RUNNING


class _Turn:
    """The fold of one input: the state so far, with messages and history."""

    def __init__(self, state: ScheduleState, given: Given) -> None:
        self.state, self.given = state, given
        self.at_ms = given.at_ms
        self.messages: list[InboxMessage] = []
        self.history: dict[int, HistoryEntry] = {}

    @property
    def found(self) -> Found:
        return self.given.found[self.state.lookup]

    def folded(self, answer: Mapping[str, Any] = {}) -> Folded[ScheduleState]:
        return Folded(self.state, tuple(self.messages), tuple(self.history.values()), answer)

    def numbered(self, at_ms: int, cause: Cause, request_id: str = "", asked_ms: int = 0) -> DueOccurrence:
        """Adds a new occurrence, with the next number.

        Args:
            request_id: The request that caused it, if the timetable did not; ``asked_ms`` is the time of the request.
        """
        state, number = self.state, self.state.number + 1
        self.state = replace(state, number=number)
        due_ms = _due_ms(state, at_ms) if cause == "timetable" else at_ms
        # The id contains neither its number nor the time of the decision: both may differ after a restore of Postgres.
        own_id = state.execution_of(self.given, asked_ms or due_ms, cause, request_id, at_ms)
        return DueOccurrence(number, at_ms, due_ms, own_id, cause)

    def arrive(self, one: DueOccurrence, overlap: Overlap, missed: str = "") -> int:
        """Decides about a due occurrence and returns its number. ``missed`` is the reason for not catching it up."""
        state = self.state
        if one.own_id in state.known:
            self._take_back(one)
        elif missed:
            self.skip(one, missed)
            last = (*state.missed, one)[-MAX_MISSED:]
            self.state = replace(self.state, missed=last, recalled_ms=self.at_ms)
        elif state.paused and one.cause != "trigger":  # paused by an earlier occurrence of this very input
            self.skip(one, f"the schedule is paused: {state.paused}")
        elif not state.running or overlap == "allow":
            self.start(one)
        elif overlap == "skip":
            self.skip(one, f"execution {state.running[-1].execution_id} still runs (`overlap: skip`)")
        elif overlap == "terminate":
            self._cancel_running("it is terminated for the next occurrence")
            self.start(one)
        elif overlap == "cancel":
            self._cancel_running("it is cancelled for the next occurrence")
            for waits in state.waiting:
                self.skip(waits, "a later occurrence is due (`overlap: cancel`)")
            self._wait(one, ())
        elif overlap == "queue_one" and state.waiting:
            self.skip(one, f"occurrence {state.waiting[-1].number} waits already (`overlap: queue_one`)")
        elif len(state.waiting) >= MAX_WAITING:
            self.skip(one, f"{MAX_WAITING} occurrences wait already")
        else:
            self._wait(one, state.waiting)
        return one.number

    def start(self, one: DueOccurrence) -> None:
        found, state = self.found, self.state
        if found.forbidden:
            self.skip(one, found.forbidden)
            self.pause(found.forbidden)
        elif found.missing:
            self.skip(one, found.missing)
        elif len(state.running) >= MAX_RUNNING:
            self.skip(one, f"{MAX_RUNNING} executions of it run already")
        else:
            try:
                workload = render_workload(state.terms.workload, partial(_view, state, one))
            except Unrenderable as error:
                self.skip(one, f"its workload cannot be evaluated: {error}")
                return
            try:
                key = render_key(state.terms.key, partial(_view, state, one))
            except Unrenderable as error:
                self.skip(one, f"its key cannot be evaluated: {error}")
                return
            started = replace(one, execution_id=one.own_id, started_ms=self.at_ms)
            self.state = replace(state, running=(*state.running, started))
            origin = Origin(self.given.aggregate_id, SCHEDULE, state.path, one.number)
            given: dict[str, Any] = {"workload": workload, "labels": state.terms.labels, "key": key}
            given["due"] = _shown_due(state, one)
            self.messages.append(start(state, one.own_id, origin, cause="occurrence", found=found, **given))
            self._note(started, "started")

    def ended(self, fact: StartedEnded) -> None:
        """Records the end of an execution and starts the next waiting occurrence."""
        state = self.state
        one = next((one for one in state.running if one.execution_id == fact.execution_id), None)
        if one is None:
            if fact.execution_id in state.known:
                self.state = replace(state, known={**state.known, fact.execution_id: fact})
            return
        running = tuple(other for other in state.running if other is not one)
        failures = state.failures + 1 if fact.status == "failed" else 0
        self.state = replace(state, running=running, failures=failures)
        self._note(one, fact.status, fact.error, ended_ms=self.at_ms)
        most = state.terms.pause_after_failures
        if most and failures >= most and not state.paused:
            self.pause(f"{failures} executions have failed in a row; the last: {fact.error}")
        self.start_waiting()

    def recall(self, execution_id: str) -> None:
        """Remembers an execution started before Postgres was restored, unless its occurrence is already decided."""
        state = self.state
        if any(one.own_id == execution_id for one in state.running):
            return
        known = dict(list(state.known.items())[-(MAX_KNOWN - 1) :]) | {execution_id: None}
        waiting, missed = (
            tuple(one for one in some if one.own_id != execution_id) for some in (state.waiting, state.missed)
        )
        self.state = replace(state, known=known, waiting=waiting, missed=missed, recalled_ms=self.at_ms)
        for one in (*state.waiting, *state.missed):
            if one.own_id == execution_id:
                self._take_back(one)

    def forget(self) -> None:
        """Forgets the remembered starts that partitions can no longer report after a restore."""
        if self.state.recalled_ms and self.at_ms - self.state.recalled_ms > REMEMBERED_MS:
            self.state = replace(self.state, known={}, missed=(), recalled_ms=0)

    def _take_back(self, one: DueOccurrence) -> None:
        """Restores an occurrence that was started before, with its execution and its end."""
        known = dict(self.state.known)
        end = known.pop(one.own_id)
        started = replace(one, execution_id=one.own_id, started_ms=self.at_ms)
        self.state = replace(self.state, known=known, running=(*self.state.running, started))
        self._note(started, "started")
        if end is not None:
            self.ended(end)

    def start_waiting(self) -> None:
        """Starts the next waiting occurrence if nothing runs and the schedule is not paused."""
        while self.state.waiting and not self.state.running and not self.state.paused:
            first, *rest = self.state.waiting
            self.state = replace(self.state, waiting=tuple(rest))
            self.start(first)

    def pause(self, reason: str) -> None:
        self.state = paused(self.state, reason, self.at_ms)

    def skip(self, one: DueOccurrence, reason: str) -> None:
        self._note(one, "skipped", reason)

    def _wait(self, one: DueOccurrence, before: tuple[DueOccurrence, ...]) -> None:
        self.state = replace(self.state, waiting=(*before, one))
        self._note(one, "waiting", f"execution {self.state.running[-1].execution_id} still runs")

    def _cancel_running(self, reason: str) -> None:
        for one in self.state.running:
            order = CancelRequested(derive(one.execution_id, "order", self.state.number), self.state.by, reason)
            self.messages.append(InboxMessage(one.execution_id, order, AGGREGATES_FORMAT))

    def _note(self, one: DueOccurrence, status: str, reason: str = "", *, ended_ms: int = 0) -> None:
        body: dict[str, Any] = {"due_ms": one.due_ms, "scheduled_ms": one.at_ms, "cause": one.cause}
        body |= {"reason": reason} if reason else {}
        body |= {"started_ms": one.started_ms} if one.started_ms else {}
        body |= {"ended_ms": ended_ms} if ended_ms else {}
        entry = HistoryEntry(one.number, self.at_ms, status, one.execution_id or None, body)
        self.history[one.number] = entry


def _view(state: ScheduleState, one: DueOccurrence) -> OccurrenceView:
    return occurrence_view(
        Recurrence.from_timetable(state.terms.timetable),
        one.at_ms,
        path=state.path,
        name=state.terms.name,
        by_hand=one.cause == "trigger",
        backfill=one.cause == "backfill",
    )


def _shown_due(state: ScheduleState, one: DueOccurrence) -> str:
    return iso_in(one.at_ms, zone_named(state.terms.timetable.zone))


def _due_ms(state: ScheduleState, at_ms: int) -> int:
    return at_ms + jitter_of(state.path, at_ms, state.terms.jitter_s)


def _after(terms: ScheduleTerms, at_ms: int) -> int | None:
    return Recurrence.from_timetable(terms.timetable).next_after(at_ms)


def _range(terms: ScheduleTerms, from_ms: int, before_ms: int) -> Iterator[int]:
    return Recurrence.from_timetable(terms.timetable).occurrences(from_ms - 1, before_ms - 1)
