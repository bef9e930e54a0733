"""Triggers: each event starts an execution once, or is ignored with a reason (LANGUAGE §15 *Trigger*).

An event gets a number when it is folded, and an entry of that number in the history, which holds the event so that it
can be sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Given, HistoryEntry, Lookup
from noetl_stream.engine.aggregates.pacing import MAX_WAIT_MS, Bucket, Pace
from noetl_stream.engine.aggregates.starters import (
    MAX_KNOWN,
    REMEMBERED_MS,
    StarterKind,
    StarterState,
    paused,
    start,
    told,
)
from noetl_stream.errors import UsageError
from noetl_stream.model.aggregates import (
    TRIGGER,
    AggregateFact,
    EmittedEvents,
    EndedExecutions,
    EventEmitted,
    EventReceived,
    ExecutionEnded,
    StartedBefore,
    StartedEnded,
    StarterRegistered,
    StreamEventRead,
    StreamPlace,
    StreamSeen,
    TimerDue,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Origin
from noetl_stream.model.ids import derive
from noetl_stream.model.json.codec import encode
from noetl_stream.model.messages import AggregateMessage, InboxMessage
from noetl_stream.playbook.trigger.matching import Fault, Ignored, Rules, Starts, digits_lost_in, match, read_event
from noetl_stream.playbook.trigger.notification import SUFFIX
from noetl_stream.trigger.rates import TRIGGER_RATE_VARIABLE
from noetl_stream.trigger.stream_messages import CONSUMER_PREFIX, STREAMS_VARIABLE

MAX_DEPTH: Final = 10
"""The longest chain of triggers in which each starts an execution at the end of the previous one."""

MAX_WAITING: Final = 500
MAX_WAITING_BYTES: Final = 262_144
"""The bounds of the events that a rate holds back, in number and in bytes of JSON; further ones are dropped."""

DUE: Final = "start"
"""The timer of the first held event's turn."""

MAX_KEYS: Final = 500
"""The number of newest keys that are remembered."""

MAX_RUNNING: Final = 500
"""The number of running executions, started by messages of a stream, at which reading the stream pauses."""


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A received event and the execution that it may start.

    Attributes:
        resent: The number of the event that it repeats; 0 for a new one.
        depth: The number of triggers in the chain of ends that leads to the execution, itself included.
        root: The execution whose end began that chain. ``share`` is the number of executions that may still be added
            to those that follow from it; ``None`` if no bound is known.
        unfoldable: The reason why it cannot be folded; empty if it can.
    """

    event: Mapping[str, Any]
    execution_id: str
    resent: int = 0
    depth: int = 0
    root: str = ""
    share: int | None = None
    unfoldable: str = ""

    @classmethod
    def of_told(cls, fact: ExecutionEnded | EventEmitted, execution_id: str) -> Arrival:
        """The arrival of an execution's end, or of an event that an execution emitted."""
        event = msgspec.to_builtins(fact.ended if isinstance(fact, ExecutionEnded) else fact.emitted)
        return cls(event, execution_id, depth=fact.depth, root=fact.root, share=fact.share)

    @property
    def body(self) -> dict[str, Any]:
        """The content of the event's history entry."""
        body: dict[str, Any] = {"event": self.event}
        for name, value in (("resent", self.resent), ("depth", self.depth), ("root", self.root)):
            body |= {name: value} if value else {}
        return body

    def origin(self, aggregate_id: str, path: str, number: int) -> Origin:
        """The origin of the execution that it starts; ``number`` is the entry in the trigger's history."""
        left = None if self.share is None else self.share - 1
        return Origin(aggregate_id, TRIGGER, path, number, depth=self.depth, root=self.root, left=left)


class WaitingEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An event held back by the trigger's rate until ``due_ms``. ``number`` is its history entry, ``size`` its JSON
    bytes.
    """

    number: int
    due_ms: int
    size: int
    arrival: Arrival


class StreamReading(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The position of a trigger in its stream.

    Attributes:
        since_ms: The time at which the trigger was registered for this stream.
        place: The last folded message; ``None`` before the first.
        pending: The number of messages after it at the last look; ``None`` if unknown.
        trouble: The reason why the stream cannot be read; empty if it can.
        running: The unfinished executions of its messages.
    """

    since_ms: int = 0
    place: StreamPlace | None = None
    pending: int | None = None
    trouble: str = ""
    trouble_ms: int = 0
    running: tuple[str, ...] = ()


class TriggerFaults(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The number of failed actions of a trigger since its present text was registered, and the last of them."""

    count: int = 0
    number: int = 0
    at_ms: int = 0
    reason: str = ""


class TriggerState(StarterState, frozen=True, omit_defaults=True, kw_only=True):
    """
    Attributes:
        keys: The executions started for the newest keys, by a digest of the key, oldest first.
        reading: The position in its stream, for the source ``nats``.
        known: Executions that ends had started before Postgres was restored to an earlier state, by their ids without
            the time. ``recalled_ms`` is the time of the last addition.
        bucket: The use of its rate. ``waiting`` are the events that the rate holds back, in order.
    """

    terms: TriggerTerms
    paused: str = ""
    paused_ms: int = 0
    keys: dict[str, str] = {}
    reading: StreamReading = StreamReading()
    known: dict[str, str] = {}
    recalled_ms: int = 0
    faults: TriggerFaults = TriggerFaults()
    bucket: Bucket = Bucket()
    waiting: tuple[WaitingEvent, ...] = ()

    @property
    def consumer(self) -> str:
        """The name of its consumer on NATS; a trigger that was deleted and registered again has another one."""
        return f"{CONSUMER_PREFIX}{derive(aggregate_id('starter', self.path), 'consumer', self.created_ms)[:32]}"

    @property
    def is_read(self) -> bool:
        is_full = len(self.reading.running) >= MAX_RUNNING or bool(self.waiting)
        return self.terms.nats is not None and not self.paused and not is_full

    def has_folded(self, place: StreamPlace) -> bool:
        """Whether the message at this place was folded."""
        known = self.reading.place
        is_same = known is not None and (known.stream, known.made) == (place.stream, place.made)
        return known is not None and is_same and place.sequence <= known.sequence


class TriggerKind(StarterKind[TriggerState]):
    """Triggers; :class:`~noetl_stream.engine.aggregates.starters.StarterKind` documents each method."""

    name = TRIGGER
    state_type = TriggerState
    free = (TriggerDeleted, TriggerPaused, StreamSeen, StartedBefore, StartedEnded)

    def timers(self, state: TriggerState) -> Mapping[str, int]:
        return {DUE: state.waiting[0].due_ms} if state.waiting else {}

    def watched(self, state: TriggerState | None, fact: AggregateFact) -> Collection[Lookup]:
        match fact:
            case TriggerRegistered(terms=TriggerTerms(watched=EndedExecutions(path=path)), principal=principal):
                return [_watching(path, principal)]
            case TriggerRegistered(terms=TriggerTerms(watched=EmittedEvents(path=path)), principal=principal):
                return [_watching(path, principal)]
            case ExecutionEnded(ended=told) | EventEmitted(emitted=told) if state is not None:
                return [_watching(told.path, state.by)]
        return ()

    def forbidden(self, given: Given, fact: StarterRegistered) -> str:
        assert isinstance(fact, TriggerRegistered)
        for watched in self.watched(None, fact):
            if hidden := given.found[watched].forbidden:
                return f"{hidden}, and cannot be told of its executions"
        rate = fact.terms.rate
        if rate is not None and 0 < given.most_per_minute < rate.per_minute:
            return (
                f"a trigger may start at most {given.most_per_minute:,} executions a minute, not {rate.per_minute:,}: "
                f"lower `rate.per_minute`, or let whoever runs the servers raise {TRIGGER_RATE_VARIABLE}"
            )
        stream = fact.terms.nats.stream if fact.terms.nats is not None else ""
        return _closed(stream) if stream and stream not in given.streams else ""

    def registered(self, before: TriggerState | None, state: TriggerState, given: Given) -> TriggerState:
        stream = state.terms.nats.stream if state.terms.nats is not None else ""
        return replace(state, reading=_kept(before, stream, given.at_ms), faults=TriggerFaults())

    def resumed(self, state: TriggerState, given: Given) -> Folded[TriggerState]:
        return Folded(state)

    def react(self, state: TriggerState, given: Given) -> Folded[TriggerState]:
        match given.fact:
            case StreamEventRead() | StreamSeen() as fact:
                return _from_stream(state, given, fact)
            case EventReceived(event=event, resent=resent, request_id=request_id):
                execution_id = state.execution_of(given, given.at_ms, request_id)
                if state.terms.source == "webhook":  # a resent event has a key of its own
                    event = {"time": iso(given.at_ms), **event}
                return _arrived(state, given, Arrival(event, execution_id, resent=resent))
            case ExecutionEnded(ended=ended, ended_ms=ended_ms) as fact:
                return _told(state, given, fact, ended.path, (ended_ms, "ended", ended.execution_id))
            case EventEmitted(emitted=emitted, emitted_ms=emitted_ms) as fact:
                return _told(state, given, fact, emitted.path, (emitted_ms, "emitted", emitted.id))
            case TimerDue():
                return _due(state, given)
            case StartedBefore(execution_id=execution_id) if state.terms.watched is not None:
                last = list(_forgetting(state, given.at_ms).known.items())[-(MAX_KNOWN - 1) :]
                known = {**dict(last), _event_in(execution_id): execution_id}
                return Folded(replace(state, known=known, recalled_ms=given.at_ms))
            case StartedEnded() as fact:
                return _ended(state, fact, given.at_ms)
        return Folded(state)


def _told(
    state: TriggerState,
    given: Given,
    fact: ExecutionEnded | EventEmitted,
    path: str,
    cause: tuple[int, str, str],
) -> Folded[TriggerState]:
    """Folds the end or event of an execution at ``path``, at the time of ``cause``, if the trigger's principal may see
    it.
    """
    if given.found[_watching(path, state.by)].forbidden:
        return Folded(state)
    state = _forgetting(state, given.at_ms)
    execution_id = state.execution_of(given, *cause)
    execution_id = state.known.get(_event_in(execution_id), execution_id)
    return _arrived(state, given, Arrival.of_told(fact, execution_id))


def _closed(stream: str) -> str:
    return f"triggers may not read stream {stream}: whoever runs the servers opens it, with {STREAMS_VARIABLE}={stream}"


def _kept(state: TriggerState | None, stream: str, at_ms: int) -> StreamReading:
    """The position in the stream after a registration: the former one, if the stream is the same."""
    before = state.terms.nats if state is not None else None
    if state is None or before is None or before.stream != stream:
        return StreamReading(at_ms) if stream else StreamReading()
    return StreamReading(state.reading.since_ms, state.reading.place)


def _from_stream(state: TriggerState, given: Given, fact: StreamEventRead | StreamSeen) -> Folded[TriggerState]:
    """Folds what the owner has read for the present trigger. A message that is not folded stays in its stream."""
    nats, reading = state.terms.nats, state.reading
    if nats is None or fact.consumer != state.consumer:
        return Folded(state)
    if isinstance(fact, StreamSeen):
        since_ms = reading.trouble_ms if reading.trouble else given.at_ms
        pending = reading.pending if fact.pending is None else fact.pending
        trouble_ms = since_ms if fact.trouble else 0
        seen = replace(reading, pending=pending, trouble=fact.trouble, trouble_ms=trouble_ms)
        return Folded(state if seen == reading else replace(state, reading=seen))
    is_wanted = (fact.place.stream, fact.subject) == (nats.stream, nats.subject)
    if (state.paused and not fact.unfoldable) or not is_wanted or state.has_folded(fact.place):
        return Folded(state)
    reading = replace(reading, place=fact.place, pending=fact.pending, trouble="", trouble_ms=0)
    # A message may be older than the trigger, but lists of executions are ordered by the times in their ids.
    at_ms = max(fact.at_ms, reading.since_ms)
    execution_id = state.execution_of(given, at_ms, fact.place.stream, fact.place.made, fact.place.sequence)
    state = replace(state, reading=reading)
    folded = _arrived(state, given, Arrival(fact.event, execution_id, unfoldable=fact.unfoldable))
    after, [entry] = folded.state, folded.history
    if after is None or entry.status not in ("started", "waiting"):
        return folded
    running = (*reading.running, execution_id)
    return replace(folded, state=replace(after, reading=replace(reading, running=running)))


def _event_in(execution_id: str) -> str:
    """The part of an execution id that identifies its event: all but the time. A repeated end has another id."""
    return execution_id[13:]


def _forgetting(state: TriggerState, at_ms: int) -> TriggerState:
    """The trigger without remembered starts that partitions can no longer report after a restore."""
    is_past = state.recalled_ms and at_ms - state.recalled_ms > REMEMBERED_MS
    return replace(state, known={}, recalled_ms=0) if is_past else state


def _arrived(state: TriggerState, given: Given, arrival: Arrival) -> Folded[TriggerState]:
    """Decides about an event: it starts an execution, has already started one under its key, or is ignored."""
    number = state.number + 1
    state = replace(_timed(state, given.at_ms), number=number)
    made = _permitted(state, given, _made_of(state, arrival))
    if isinstance(made, Ignored):
        return _ignored(state, given, arrival, made)
    digest = derive("key", made.key) if made.key else ""
    if digest in state.keys:
        body = {**arrival.body, "key": made.key, "reason": "its key has started this execution before"}
        entry = HistoryEntry(number, given.at_ms, "repeated", state.keys[digest], body)
        return Folded(state, history=(entry,), answer=told(state, entry))
    late = _lateness(state, given, arrival)
    if isinstance(late, Ignored):
        return _ignored(state, given, arrival, late)
    if digest:
        kept = list(state.keys.items())[-(MAX_KEYS - 1) :]
        state = replace(state, keys={**dict(kept), digest: arrival.execution_id})
    state = replace(state, bucket=_pace(state, given).after_start(state.bucket))
    return _started(state, given, arrival, made, number) if late is None else _waits(state, given, late, made)


def _started(state: TriggerState, given: Given, arrival: Arrival, made: Starts, number: int) -> Folded[TriggerState]:
    """Starts the execution of an event."""
    body = arrival.body | ({"key": made.key} if made.key else {})
    entry = HistoryEntry(number, given.at_ms, "started", arrival.execution_id, body)
    origin = arrival.origin(given.aggregate_id, state.path, number)
    found, lost = given.found[state.lookup], digits_lost_in(state.terms, arrival.event)
    message = start(
        state,
        arrival.execution_id,
        origin,
        cause="event",
        found=found,
        workload=made.workload,
        labels=dict(made.labels),
        key=made.key,
        digits_lost=lost,
    )
    return Folded(state, (message,), (entry,), told(state, entry))


def _pace(state: TriggerState, given: Given) -> Pace:
    """The rate of a trigger, its own or the default one, within the operator's bound."""
    rate, most = state.terms.pace, given.most_per_minute
    return Pace(min(rate.per_minute, most) if most else rate.per_minute, rate.burst)


def _lateness(state: TriggerState, given: Given, arrival: Arrival) -> WaitingEvent | Ignored | None:
    """The delay of the last event: ``None`` if it starts now, ``Ignored`` with the reason if it never does."""
    last_ms = state.waiting[-1].due_ms if state.waiting else 0
    own_ms = max(last_ms, _pace(state, given).due_ms(state.bucket))
    due_ms = max(own_ms, given.free_ms)
    if due_ms <= given.at_ms:
        return None
    is_own = own_ms > given.at_ms
    no_more = f"{'the trigger starts' if is_own else 'triggers of its namespace start'} no more executions now (`rate`)"
    if state.terms.pace.exceeding == "drop":
        return (Ignored if is_own else Fault)(f"{no_more}, and it drops what exceeds that")
    waits = WaitingEvent(state.number, due_ms, len(encode(arrival.event)), arrival)
    if len(state.waiting) >= MAX_WAITING or sum(one.size for one in (*state.waiting, waits)) > MAX_WAITING_BYTES:
        return Fault(f"{no_more}, and {len(state.waiting)} events wait already")
    if due_ms > given.at_ms + MAX_WAIT_MS:
        return Fault(f"{no_more}, and its turn would come in more than {MAX_WAIT_MS // 60_000} minutes")
    return waits


def _timed(state: TriggerState, at_ms: int) -> TriggerState:
    """The trigger at a time. If the clock was ahead, the times of waiting events are moved back as far."""
    back_ms = state.bucket.set_back_ms(at_ms)
    waiting = tuple(replace(one, due_ms=one.due_ms - back_ms) for one in state.waiting) if back_ms else state.waiting
    return replace(state, bucket=state.bucket.at(at_ms), waiting=waiting)


def _waits(state: TriggerState, given: Given, late: WaitingEvent, made: Starts) -> Folded[TriggerState]:
    """Holds the last event back until its rate lets it start."""
    body = {**late.arrival.body, "due_ms": late.due_ms, "reason": "it waits for its turn (`rate`)"}
    body |= {"key": made.key} if made.key else {}
    entry = HistoryEntry(late.number, given.at_ms, "waiting", late.arrival.execution_id, body)
    return Folded(replace(state, waiting=(*state.waiting, late)), history=(entry,), answer=told(state, entry))


def _due(state: TriggerState, given: Given) -> Folded[TriggerState]:
    """Starts the executions of waiting events that are due, by the present text of the trigger."""
    due = [one for one in state.waiting if one.due_ms <= given.at_ms]
    state = replace(state, waiting=state.waiting[len(due) :])
    messages: list[InboxMessage | AggregateMessage] = []
    history: list[HistoryEntry] = []
    faults = 0
    for one in due:
        made = _permitted(state, given, _made_of(state, one.arrival))
        if isinstance(made, Starts):
            known = state.known.get(_event_in(one.arrival.execution_id), one.arrival.execution_id)
            folded = _started(state, given, replace(one.arrival, execution_id=known), made, one.number)
        else:
            folded = _ignored(_not_running(state, one.arrival.execution_id), given, one.arrival, made, one.number)
        assert folded.state is not None
        state = folded.state
        messages += folded.messages
        history += folded.history
        faults += folded.faults
    return Folded(state, tuple(messages), tuple(history), faults=faults)


def _not_running(state: TriggerState, execution_id: str) -> TriggerState:
    """The trigger without this execution among the running ones of its stream."""
    if execution_id not in state.reading.running:
        return state
    running = tuple(one for one in state.reading.running if one != execution_id)
    return replace(state, reading=replace(state.reading, running=running))


def _ended(state: TriggerState, fact: StartedEnded, at_ms: int) -> Folded[TriggerState]:
    """Records the end of an execution. A failed notification is a fault, since nobody else would report it."""
    state = _not_running(state, fact.execution_id)
    if fact.status != "failed" or state.terms.playbook != state.path + SUFFIX:
        return Folded(state)
    reason = f"its notification failed ({fact.error}): execution {fact.execution_id}"
    return Folded(_with_fault(state, fact.number, at_ms, reason), faults=1)


def _with_fault(state: TriggerState, number: int, at_ms: int, reason: str) -> TriggerState:
    return replace(state, faults=TriggerFaults(state.faults.count + 1, number, at_ms, reason))


def _permitted(state: TriggerState, given: Given, made: Starts | Ignored) -> Starts | Ignored:
    """``made`` if the trigger may start its playbook, else the reason for ignoring the event."""
    found = given.found[state.lookup]
    reason = found.forbidden or found.missing
    return Fault(reason) if isinstance(made, Starts) and reason else made


def _ignored(
    state: TriggerState, given: Given, arrival: Arrival, made: Ignored, number: int = 0
) -> Folded[TriggerState]:
    """Records that the last event starts nothing, and counts a fault. A trigger that may not start is paused."""
    number = number or state.number
    body: dict[str, Any] = {**arrival.body, "reason": made.reason}
    if isinstance(made, Fault):
        body["fault"] = True
        state = _with_fault(state, number, given.at_ms, made.reason)
        if (forbidden := given.found[state.lookup].forbidden) and made.reason == forbidden:
            state = paused(state, forbidden, given.at_ms)
    entry = HistoryEntry(number, given.at_ms, "ignored", body=body)
    return Folded(state, history=(entry,), answer=told(state, entry), faults=int(isinstance(made, Fault)))


def _made_of(state: TriggerState, arrival: Arrival) -> Starts | Ignored:
    if arrival.unfoldable:
        return Fault(arrival.unfoldable)
    if state.paused:
        return Ignored(f"the trigger is paused: {state.paused}")
    if arrival.depth > MAX_DEPTH:
        return Fault(f"{MAX_DEPTH} triggers have led to it, one after another: no more may")
    if arrival.share == 0:
        return Fault(
            f"no more executions may follow from execution {arrival.root} through triggers: its share is used up "
            "(limits.max_descendants)"
        )
    terms = state.terms
    try:
        read = read_event(terms.source, arrival.event, terms.nats.format if terms.nats is not None else "json")
    except UsageError as error:
        return Fault.for_reason(error.message)
    return match(Rules.from_terms(terms), read)


def _watching(path: str, principal: str) -> Lookup:
    """The lookup whether a principal may read executions at or below a path."""
    return Lookup(path.removesuffix("/*"), None, principal)
