"""Aggregates: loaded for each input, folded, and written in the same ticks as executions.

The decisions of a kind are pure (``engine/aggregates``). Only the due times of an aggregate stay in memory.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.engine.aggregates.contract import (
    NO_SLOTS,
    AggregateKind,
    Folded,
    Found,
    Given,
    HistoryEntry,
    Lookup,
)
from noetl_stream.engine.aggregates.key_limits import LimitKind
from noetl_stream.engine.aggregates.schedules import ScheduleKind
from noetl_stream.engine.aggregates.triggers import TriggerKind, TriggerState
from noetl_stream.engine.effects import SendMessage
from noetl_stream.errors import NewerFormat, PayloadRefused, TickRefused
from noetl_stream.model.aggregates import (
    AggregateFact,
    AggregateRequested,
    LimitFact,
    LimitSlot,
    SlotReturned,
    StartedBefore,
    TimerDue,
    is_aggregate,
    is_limit,
)
from noetl_stream.model.aggregates.key_limits import row_key
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AggregateRequest
from noetl_stream.model.status import Rejection
from noetl_stream.ports.stores.aggregates import (
    ANSWERS_KEPT,
    HISTORY_KEPT,
    AggregateKey,
    AggregateRow,
    HistoryRow,
    HistoryTrim,
    LimitSlotRow,
    RequestTrim,
)
from noetl_stream.ports.stores.store import InboxItem, Store, TimerRow
from noetl_stream.server.aggregates.lookups import LoadedSlots, Lookups, load_slots
from noetl_stream.server.aggregates.namespace_rates import NamespaceRates
from noetl_stream.server.aggregates.stream_readers import StreamInput
from noetl_stream.server.formats import OLDER_SERVERS, Formats
from noetl_stream.server.ticks.tick import PendingTick, inbox_letter, refused_answer

KINDS: Final[Mapping[str, AggregateKind[Any]]] = {
    kind.name: kind for kind in (ScheduleKind(), TriggerKind(), LimitKind())
}


log = logging.getLogger(__name__)

STARTED_BEFORE: Final = str(StartedBefore.__struct_config__.tag)

FEW: Final = 1024
"""The number of stale timers that are not worth removing."""

MOST_AT_ONCE: Final = 500
"""The most timers that one tick fires."""

TRIM_EVERY: Final = 100
"""The growth, in entries, after which histories and answers are trimmed."""


class DueTimer(msgspec.Struct, frozen=True, gc=False, order=True):
    due_ms: int
    aggregate_id: str
    timer_id: str


class AggregateTimers:
    """The due times of aggregates. ``owns`` says whether a partition is this server's."""

    def __init__(self, owns: Callable[[int], bool]) -> None:
        self._owns = owns
        self._due: list[DueTimer] = []
        self._tracked: dict[tuple[str, str], int] = {}

    def track(self, rows: Iterable[TimerRow]) -> None:
        for row in rows:
            key = (row.execution_id, row.timer_id)
            if is_aggregate(row.execution_id) and self._tracked.get(key) != row.due_ms:
                self._tracked[key] = row.due_ms
                heapq.heappush(self._due, DueTimer(row.due_ms, *key))
        if len(self._due) > 2 * len(self._tracked) + FEW:  # most timers were moved since
            self._due = [DueTimer(due_ms, *key) for key, due_ms in self._tracked.items()]
            heapq.heapify(self._due)

    def next_in_s(self, now_ms: int, most_s: float) -> float:
        """Seconds until a timer is due, at most ``most_s``."""
        return min(most_s, max(0.0, (self._due[0].due_ms - now_ms) / 1000)) if self._due else most_s

    def overdue_s(self, now_ms: int) -> float:
        """The seconds for which the first timer has been due; 0 if none is."""
        return max(0.0, (now_ms - self._due[0].due_ms) / 1000) if self._due else 0.0

    def take(self, now_ms: int) -> list[DueTimer]:
        """The timers that are due, of owned partitions: at most :data:`MOST_AT_ONCE`."""
        found: list[DueTimer] = []
        while self._due and self._due[0].due_ms <= now_ms and len(found) < MOST_AT_ONCE:
            one = heapq.heappop(self._due)
            key = (one.aggregate_id, one.timer_id)
            if self._tracked.get(key) != one.due_ms:  # a moved timer has another place in the heap
                continue
            del self._tracked[key]
            if self._owns(partition_of(one.aggregate_id)):
                found.append(one)
        return found

    def restore(self, timers: Iterable[DueTimer]) -> None:
        """Makes :meth:`take` return these again."""
        for one in timers:
            self._tracked[one.aggregate_id, one.timer_id] = one.due_ms
            heapq.heappush(self._due, one)

    def forget(self) -> None:
        self._due.clear()
        self._tracked.clear()

    def __len__(self) -> int:
        return len(self._due)


class AggregateInput(msgspec.Struct, frozen=True, gc=False):
    """An input of an aggregate. A request has a ``request_id`` and is answered."""

    aggregate_id: str
    fact: AggregateFact
    at_ms: int
    request_id: str = ""


class Aggregates:
    """Folds aggregates into pending ticks.

    Args:
        is_catching_up: Whether an aggregate may be a limit that does not know all its holders.
        rates: The bounds on starts by triggers.
        streams: The streams that triggers may read.
    """

    def __init__(
        self,
        store: Store,
        lookups: Lookups,
        formats: Formats,
        is_catching_up: Callable[[str], bool],
        rates: NamespaceRates,
        streams: Collection[str] = (),
    ) -> None:
        self._store = store
        self._lookups = lookups
        self._formats = formats
        self._is_catching_up = is_catching_up
        self._rates = rates
        self._streams = streams

    async def requests(self, bodies: Sequence[tuple[int, AggregateRequest]], tick: PendingTick) -> None:
        """Folds requests, each with the time at which it was stored, and answers them."""
        await self._fold(
            [AggregateInput(one.execution_id, one.fact, at_ms, one.request_id) for at_ms, one in bodies], tick
        )

    @staticmethod
    def in_order(items: Sequence[InboxItem]) -> Sequence[InboxItem]:
        """The messages in the order in which they are folded: starts in the past before new ones."""

        def follows(item: InboxItem) -> bool:
            id = item.execution_id  # limits get no such messages, but the most messages of all
            return not is_aggregate(id) or is_limit(id) or codec.name_of_fact(item.body) != STARTED_BEFORE

        return sorted(items, key=follows)

    async def messages(self, items: Sequence[InboxItem], at_ms: int, tick: PendingTick) -> None:
        """Folds messages of the inbox; an unreadable one becomes a dead letter. Both are deleted.

        Raises:
            NewerFormat: a newer server has written one.
        """
        inputs = []
        for item in items:
            if newer := codec.newer_format(item.body, self._formats.reads):
                raise NewerFormat(item.partition, f"message {item.seq} of the inbox has format {newer}")
            tick.inbox_folded.append(item.seq)
            try:
                message = codec.decode_aggregate_message(item.body)
            except PayloadRefused as error:
                tick.dead_letters.append(inbox_letter(item, at_ms, str(error)))
            else:
                inputs.append(AggregateInput(item.execution_id, message.fact, at_ms))
        await self._fold(inputs, tick)

    async def timers(self, due: Sequence[DueTimer], at_ms: int, tick: PendingTick) -> None:
        facts = [AggregateInput(one.aggregate_id, TimerDue(one.timer_id, one.due_ms), at_ms) for one in due]
        await self._fold(facts, tick)

    async def read(self, inputs: Sequence[StreamInput], at_ms: int, tick: PendingTick) -> Mapping[str, Any]:
        """Folds messages read from streams; returns the new states of their triggers, by id."""
        return await self._fold([AggregateInput(one.aggregate_id, one.fact, at_ms) for one in inputs], tick)

    async def give_back(self, slots: Sequence[LimitSlotRow], at_ms: int, tick: PendingTick) -> None:
        """Returns slots to their limits in place of their holders, which have ended without it."""
        found = [(row.limit_id, codec.decode_as(LimitSlot, row.body)) for row in slots]
        facts = [(id, SlotReturned("", slot.execution_id, slot.step_run_id, slot.slot_id)) for id, slot in found]
        await self._fold([AggregateInput(id, fact, at_ms) for id, fact in facts], tick)

    async def _fold(self, inputs: Sequence[AggregateInput], tick: PendingTick) -> Mapping[str, Any]:
        """Folds inputs; returns the new states of their aggregates, by id."""
        if not inputs:
            return {}
        known = await self._store.aggregates(dict.fromkeys(one.aggregate_id for one in inputs))
        loaded = {id: _Loaded.of(row) for id, row in known.items()}
        batch = _Batch(tick, loaded, {id: one.row.position for id, one in loaded.items()})
        wanted = dict.fromkeys(found for one in inputs for found in _wanted(one.fact, loaded.get(one.aggregate_id)))
        found = await self._lookups.find(wanted)
        slots = await load_slots(self._store, [(one.aggregate_id, one.fact) for one in inputs])
        for one in inputs:
            left = [new for new in _wanted(one.fact, loaded.get(one.aggregate_id)) if new not in found]
            if left:  # an earlier input has changed the lookups
                found |= await self._lookups.find(left)
            self._fold_one(one, _Seen(found, slots.get(one.aggregate_id)), batch)
        return {id: one.state for id, one in batch.loaded.items()}

    def _fold_one(self, one: AggregateInput, seen: _Seen, batch: _Batch) -> None:
        tick, before = batch.tick, batch.loaded.get(one.aggregate_id)
        kind = _kind_of(one.fact, before)
        if isinstance(one.fact, AggregateRequested) and (refusal := self._refusal(one.fact, before)) is not None:
            _answer(one, refusal, tick)
            return
        if kind is None:
            return
        state = before.state if before is not None else None
        if isinstance(one.fact, TimerDue) and (
            state is None or kind.timers(state).get(one.fact.timer_id) != one.fact.due_ms
        ):
            return
        key = before.row.key if before is not None else _row_key(one.fact)
        slots = seen.slots or NO_SLOTS
        given = Given(
            one.aggregate_id,
            key,
            one.fact,
            one.at_ms,
            seen.found,
            slots,
            streams=self._streams,
            is_catching_up=self._is_catching_up(one.aggregate_id),
            most_per_minute=self._rates.rates.of_trigger,
            free_ms=self._rates.free_ms(state.terms.playbook, one.at_ms) if isinstance(state, TriggerState) else 0,
        )
        folded = kind.fold(state, given)
        if isinstance(state, TriggerState):
            self._rates.count(state.terms.playbook, _begun(folded, state.number), one.at_ms)
        if folded.state is state:
            _answer(one, folded.answer, tick)
            return
        position = batch.positions[one.aggregate_id] = batch.positions.get(one.aggregate_id, 0) + 1
        _answer(one, folded.answer, tick, position)
        if position > ANSWERS_KEPT and position % TRIM_EVERY == 0:
            tick.requests_gone[one.aggregate_id] = RequestTrim(one.aggregate_id, position - ANSWERS_KEPT)
        after = None
        if folded.state is not None:
            row = AggregateRow(
                id=one.aggregate_id,
                partition=partition_of(one.aggregate_id),
                kind=kind.name,
                key=key,
                position=position,
                state=codec.encode(folded.state),
                updated_ms=one.at_ms,
            )
            after = batch.loaded[one.aggregate_id] = _Loaded(row, kind, folded.state)
        else:
            del batch.loaded[one.aggregate_id]
        for number, message in enumerate(folded.messages):  # another aggregate with this id may have sent some
            tick.send(SendMessage(position, message), one.aggregate_id, one.at_ms, number)
        _collect(one.aggregate_id, before, after, folded, tick)
        if seen.slots is not None:
            seen.slots.change(folded.slots, tick)

    def _refusal(self, fact: AggregateRequested, before: _Loaded | None) -> Rejection | None:
        """The reason why no kind folds this request; ``None`` if one does."""
        if not self._formats.know_aggregates:
            return OLDER_SERVERS
        if before is not None and fact.of not in ("", before.kind.name):
            return Rejection("other_kind", f"{before.row.key} is a {before.kind.name}, not a {fact.of}")
        if before is None and not fact.of:
            return Rejection("unknown_aggregate", f"nothing is registered at {fact.key}")
        return None


def _row_key(fact: object) -> str:
    """The row key of the aggregate that this fact creates."""
    return row_key(fact.key, fact.namespace) if isinstance(fact, LimitFact) else getattr(fact, "key", "")


class _Seen(NamedTuple):
    """The inputs of a fold in addition to the state of its aggregate."""

    found: Mapping[Lookup, Found]
    slots: LoadedSlots | None


class _Loaded(msgspec.Struct, frozen=True, gc=False):
    row: AggregateRow
    kind: AggregateKind[Any]
    state: Any

    @classmethod
    def of(cls, row: AggregateRow) -> _Loaded:
        """
        Raises:
            NewerFormat: a newer server has written it.
            TickRefused: it does not decode.
        """
        kind = KINDS.get(row.kind)
        if kind is None:
            raise NewerFormat(row.partition, f"{row.id} is a {row.kind}")
        try:
            return cls(row, kind, codec.decode_as(kind.state_type, row.state))
        except PayloadRefused as error:
            raise TickRefused(f"the state of {row.kind} {row.key}: {error.message}") from error


class _Batch(msgspec.Struct, frozen=True, gc=False):
    """Aggregates that take inputs of one tick; ``positions`` continue if one is recreated."""

    tick: PendingTick
    loaded: dict[str, _Loaded]
    positions: dict[str, int]


def _kind_of(fact: AggregateFact, loaded: _Loaded | None) -> AggregateKind[Any] | None:
    return loaded.kind if loaded is not None else KINDS.get(fact.of)


def _wanted(fact: AggregateFact, loaded: _Loaded | None) -> Iterable[Lookup]:
    """The lookups that folding the fact may need."""
    kind = _kind_of(fact, loaded)
    return () if kind is None else kind.lookups(loaded.state if loaded is not None else None, fact)


def _begun(folded: Folded[Any], number: int) -> int:
    """The number of events after this one that start an execution, now or later."""
    return sum(entry.number > number and entry.status in ("started", "waiting") for entry in folded.history)


def _answer(one: AggregateInput, answer: Any, tick: PendingTick, position: int = 0) -> None:
    if not one.request_id:
        return
    if isinstance(answer, Rejection):
        given = refused_answer(one.aggregate_id, answer)
    else:
        given = {"ok": True, "execution_id": one.aggregate_id, **answer}
    tick.answer(one.request_id, one.aggregate_id, given, position)


def _collect(id: str, before: _Loaded | None, after: _Loaded | None, folded: Folded[Any], tick: PendingTick) -> None:
    """Adds the rows of a change to the tick."""
    had = before.kind.timers(before.state) if before is not None else {}
    has = after.kind.timers(after.state) if after is not None else {}
    gone = [timer_id for timer_id in had if timer_id not in has]
    moved = {timer_id: due_ms for timer_id, due_ms in has.items() if had.get(timer_id) != due_ms}
    tick.set_timers(id, moved, gone)
    if after is None:
        tick.aggregates.pop(id, None)
        tick.aggregates_gone[id] = AggregateKey(id)
        return
    tick.aggregates_gone.pop(id, None)  # an aggregate recreated in the same tick keeps its history
    tick.aggregates[id] = after.row
    tick.trigger_faults += folded.faults
    for entry in folded.history:
        tick.history[id, entry.number] = _history_row(id, entry)
        if entry.status == "started" and entry.body.get("cause") == "timetable":
            tick.late.append((after.row.key, (entry.at_ms - entry.body["due_ms"]) / 1000))
        if entry.number > HISTORY_KEPT and entry.number % TRIM_EVERY == 0:
            tick.history_gone[id] = HistoryTrim(id, entry.number - HISTORY_KEPT)


def _history_row(id: str, entry: HistoryEntry) -> HistoryRow:
    return HistoryRow(
        aggregate_id=id,
        number=entry.number,
        at_ms=entry.at_ms,
        status=entry.status,
        execution_id=entry.execution_id,
        body=codec.encode(entry.body),
    )
