"""Triggers: each event starts an execution once, or is ignored with a reason (LANGUAGE §15 *Trigger*).

An event gets a number when it is folded, and an entry of that number in the history, with the event itself, so that it
can be sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Given, HistoryEntry, Lookup
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
    EndedExecutions,
    EventReceived,
    ExecutionEnded,
    StartedBefore,
    StartedEnded,
    StarterRegistered,
    StreamEventRead,
    StreamPlace,
    StreamSeen,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.events import Origin
from noetl_stream.model.ids import derive
from noetl_stream.playbook.trigger.matching import Fault, Ignored, Rules, Starts, digits_lost_in, match, read_event
from noetl_stream.trigger.stream_messages import CONSUMER_PREFIX, STREAMS_VARIABLE

MAX_DEPTH: Final = 10
"""How many triggers may lead to an execution one after another, by the ends of executions."""

MAX_KEYS: Final = 500
"""How many keys, the latest, are remembered."""

MAX_RUNNING: Final = 500
"""About how many executions started by messages of a stream run at once: then reading it pauses."""


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An event that has come, and the execution that it may start.

    Attributes:
        resent: The number of the event that it repeats; 0: it is new.
        depth: How many triggers on ends will have led to the execution, one after another.
        root: The execution with whose end they began; ``share``: how many executions may be added to those that follow
            from it; ``None``: no bound is known.
        unfoldable: Why it cannot be folded; empty if it can.
    """

    event: Mapping[str, Any]
    execution_id: str
    resent: int = 0
    depth: int = 0
    root: str = ""
    share: int | None = None
    unfoldable: str = ""

    @classmethod
    def of_end(cls, fact: ExecutionEnded, execution_id: str) -> Arrival:
        """The arrival of an execution's end."""
        event = msgspec.to_builtins(fact.ended)
        return cls(event, execution_id, depth=fact.depth, root=fact.root, share=fact.share)

    @property
    def body(self) -> dict[str, Any]:
        """What the history keeps of it."""
        body: dict[str, Any] = {"event": self.event}
        for name, value in (("resent", self.resent), ("depth", self.depth), ("root", self.root)):
            body |= {name: value} if value else {}
        return body

    def origin(self, aggregate_id: str, path: str, number: int) -> Origin:
        """The origin of the execution that it starts, under a number of the trigger's history."""
        left = None if self.share is None else self.share - 1
        return Origin(aggregate_id, TRIGGER, path, number, depth=self.depth, root=self.root, left=left)


class StreamReading(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a stream is read.

    Attributes:
        since_ms: When it was registered for this stream.
        place: Of the last message that was folded; ``None``: of none yet.
        pending: How many messages were left behind it when it was looked at; ``None``: not known.
        trouble: Why it cannot be read; empty if it can.
        running: The executions of its messages that have not ended.
    """

    since_ms: int = 0
    place: StreamPlace | None = None
    pending: int | None = None
    trouble: str = ""
    trouble_ms: int = 0
    running: tuple[str, ...] = ()


class TriggerFaults(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The events with which a trigger could not do what its present text says: how many, and the last one."""

    count: int = 0
    number: int = 0
    at_ms: int = 0
    reason: str = ""


class TriggerState(StarterState, frozen=True, omit_defaults=True, kw_only=True):
    """
    Attributes:
        keys: The executions started for the keys that came last, by a digest of the key, oldest first.
        reading: How far its stream is read, with ``nats``.
        known: Executions that ends had started before Postgres was restored to an earlier state, by the part of their
            id that is not a time; ``recalled_ms``: when one was added.
    """

    terms: TriggerTerms
    paused: str = ""
    paused_ms: int = 0
    keys: dict[str, str] = {}
    reading: StreamReading = StreamReading()
    known: dict[str, str] = {}
    recalled_ms: int = 0
    faults: TriggerFaults = TriggerFaults()

    @property
    def consumer(self) -> str:
        """The name of its consumer on NATS: a trigger that was deleted and made again has another."""
        return f"{CONSUMER_PREFIX}{derive(aggregate_id('starter', self.path), 'consumer', self.created_ms)[:32]}"

    @property
    def is_read(self) -> bool:
        """Whether its stream is read now."""
        return self.terms.nats is not None and not self.paused and len(self.reading.running) < MAX_RUNNING

    def has_folded(self, place: StreamPlace) -> bool:
        """Whether the message there is folded."""
        known = self.reading.place
        is_same = known is not None and (known.stream, known.made) == (place.stream, place.made)
        return known is not None and is_same and place.sequence <= known.sequence


class TriggerKind(StarterKind[TriggerState]):
    """Triggers; :class:`~noetl_stream.engine.aggregates.starters.StarterKind` documents each method."""

    name = TRIGGER
    state_type = TriggerState
    free = (TriggerDeleted, TriggerPaused, StreamSeen, StartedBefore, StartedEnded)

    def timers(self, state: TriggerState) -> Mapping[str, int]:
        return {}

    def watched(self, state: TriggerState | None, fact: AggregateFact) -> Collection[Lookup]:
        match fact:
            case TriggerRegistered(terms=TriggerTerms(execution=EndedExecutions(path=path)), principal=principal):
                return [_watching(path, principal)]
            case ExecutionEnded(ended=ended) if state is not None:
                return [_watching(ended.path, state.by)]
        return ()

    def forbidden(self, given: Given, fact: StarterRegistered) -> str:
        assert isinstance(fact, TriggerRegistered)
        for watched in self.watched(None, fact):
            if hidden := given.found[watched].forbidden:
                return f"{hidden}, and cannot be told of its executions"
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
                return _arrived(state, given, Arrival(event, execution_id, resent=resent))
            case ExecutionEnded(ended=ended, ended_ms=ended_ms) as fact:
                if given.found[_watching(ended.path, state.by)].forbidden:
                    return Folded(state)  # those who may not see it do not learn of its end
                state = _forgetting(state, given.at_ms)
                execution_id = state.execution_of(given, ended_ms, "ended", ended.execution_id)
                execution_id = state.known.get(_event_in(execution_id), execution_id)
                return _arrived(state, given, Arrival.of_end(fact, execution_id))
            case StartedBefore(execution_id=execution_id) if state.terms.execution is not None:
                last = list(_forgetting(state, given.at_ms).known.items())[-(MAX_KNOWN - 1) :]
                known = {**dict(last), _event_in(execution_id): execution_id}
                return Folded(replace(state, known=known, recalled_ms=given.at_ms))
            case StartedEnded(execution_id=execution_id) if execution_id in state.reading.running:
                running = tuple(one for one in state.reading.running if one != execution_id)
                return Folded(replace(state, reading=replace(state.reading, running=running)))
        return Folded(state)


def _closed(stream: str) -> str:
    return f"triggers may not read stream {stream}: whoever runs the servers opens it, with {STREAMS_VARIABLE}={stream}"


def _kept(state: TriggerState | None, stream: str, at_ms: int) -> StreamReading:
    """How far a stream is read when the trigger is registered: as far as before, if it is the same."""
    before = state.terms.nats if state is not None else None
    if state is None or before is None or before.stream != stream:
        return StreamReading(at_ms) if stream else StreamReading()
    return StreamReading(state.reading.since_ms, state.reading.place)


def _from_stream(state: TriggerState, given: Given, fact: StreamEventRead | StreamSeen) -> Folded[TriggerState]:
    """Folds what the owner has read, unless it did not know the present trigger yet. A message that is not folded stays
    in its stream.
    """
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
    # Not the time of a message from before the trigger: lists of executions are by the times in their ids.
    at_ms = max(fact.at_ms, reading.since_ms)
    execution_id = state.execution_of(given, at_ms, fact.place.stream, fact.place.made, fact.place.sequence)
    state = replace(state, reading=reading)
    folded = _arrived(state, given, Arrival(fact.event, execution_id, unfoldable=fact.unfoldable))
    after, [entry] = folded.state, folded.history
    if after is None or entry.status != "started":
        return folded
    running = (*reading.running, execution_id)
    return replace(folded, state=replace(after, reading=replace(reading, running=running)))


def _event_in(execution_id: str) -> str:
    """What an id says of its event: all but the time. An end that is decided again has another."""
    return execution_id[13:]


def _forgetting(state: TriggerState, at_ms: int) -> TriggerState:
    """Without what partitions that catch up will no longer mention."""
    is_past = state.recalled_ms and at_ms - state.recalled_ms > REMEMBERED_MS
    return replace(state, known={}, recalled_ms=0) if is_past else state


def _arrived(state: TriggerState, given: Given, arrival: Arrival) -> Folded[TriggerState]:
    """Decides about an event: it starts an execution, has started one under its key, or is ignored."""
    number = state.number + 1
    state = replace(state, number=number)
    found = given.found[state.lookup]
    made = _made_of(state, arrival)
    if isinstance(made, Starts):
        if found.forbidden:
            state = paused(state, found.forbidden, given.at_ms)
        if reason := found.forbidden or found.missing:
            made = Fault(reason)
    if isinstance(made, Ignored):
        return _ignored(state, given, arrival, made)
    body = arrival.body | ({"key": made.key} if made.key else {})
    digest = derive("key", made.key) if made.key else ""
    if digest in state.keys:
        body["reason"] = "its key has started this execution before"
        entry = HistoryEntry(number, given.at_ms, "repeated", state.keys[digest], body)
        return Folded(state, history=(entry,), answer=told(state, entry))
    if digest:
        kept = list(state.keys.items())[-(MAX_KEYS - 1) :]
        state = replace(state, keys={**dict(kept), digest: arrival.execution_id})
    entry = HistoryEntry(number, given.at_ms, "started", arrival.execution_id, body)
    origin = arrival.origin(given.aggregate_id, state.path, number)
    lost = digits_lost_in(state.terms, arrival.event)
    message = start(
        state, arrival.execution_id, origin, cause="event", found=found, workload=made.workload, digits_lost=lost
    )
    return Folded(state, (message,), (entry,), told(state, entry))


def _ignored(state: TriggerState, given: Given, arrival: Arrival, made: Ignored) -> Folded[TriggerState]:
    """Notes that the last event starts nothing, and counts a fault."""
    number, body = state.number, {**arrival.body, "reason": made.reason}
    if isinstance(made, Fault):
        body["fault"] = True
        state = replace(state, faults=TriggerFaults(state.faults.count + 1, number, given.at_ms, made.reason))
    entry = HistoryEntry(number, given.at_ms, "ignored", body=body)
    return Folded(state, history=(entry,), answer=told(state, entry))


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
    """Whether a principal may be told of the ends of executions at a path, or below it."""
    return Lookup(path.removesuffix("/*"), None, principal)
