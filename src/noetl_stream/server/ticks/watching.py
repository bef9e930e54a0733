"""Tells triggers what executions do that they wait for, in the tick in which it happens: ends, and events that steps
emit. Triggers on streams are loaded with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from noetl_stream.engine.aggregates.triggers import TriggerState
from noetl_stream.engine.effects import TellOfEvent
from noetl_stream.engine.state import Execution
from noetl_stream.model.aggregates import (
    TRIGGER,
    EmittedEvent,
    EmittedEvents,
    EndedExecution,
    EndedExecutions,
    EndError,
    EventEmitted,
    ExecutionEnded,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, AggregateMessage
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.status import ENDED
from noetl_stream.playbook.trigger.matching import concerns
from noetl_stream.ports.stores.aggregates import AggregateStore

READ_EVERY_S: Final = 2.0
"""The interval at which triggers are read, in seconds: a new one may miss ends for this long."""

PAGE: Final = 500
MOST: Final = 1_000
"""The most triggers loaded for the ends and events of executions, by path: each end and event is matched against
them.
"""


MAX_EVENT_BYTES: Final = 256 * 1024
"""The most bytes of JSON that an event has. What does not fit is left out, and named."""

MAX_TOLD_BYTES: Final = 16 * 1024 * 1024
"""About the most bytes of JSON that all triggers on one event get: of more than 64, each gets a smaller event."""

_OMITTED: Final[Mapping[str, Any]] = {"result": None, "ctx": {}, "workload": {}, "data": {}}
"""The optional parts of an event, the largest first, with their replacements."""


_Event = TypeVar("_Event", EndedExecution, EmittedEvent)


class ToTrigger(NamedTuple):
    """A message to a trigger, whose event has so many bytes."""

    message: AggregateMessage
    size: int


class WatchingTrigger(NamedTuple):
    aggregate_id: str
    wanted: EndedExecutions | EmittedEvents
    created_ms: int


class WatchingTriggers:
    """The triggers on what executions do, as last read.

    Args:
        page_url: The URL of the page, for links to executions; empty if unknown.

    Attributes:
        on_streams: The triggers on streams of NATS, by id.
    """

    def __init__(self, store: AggregateStore, page_url: str = "") -> None:
        self._store = store
        self._page_url = page_url
        self._known: list[WatchingTrigger] = []
        self._read_s = float("-inf")
        self.on_streams: dict[str, TriggerState] = {}

    async def refresh(self, now_s: float, every_s: float = READ_EVERY_S) -> bool:
        """Reads the triggers again if they were read longer ago than ``every_s``; returns whether it did.

        Raises:
            Unreachable: the database is away.
        """
        if now_s - self._read_s < every_s:
            return False
        self._read_s = now_s
        known: list[WatchingTrigger] = []
        on_streams: dict[str, TriggerState] = {}
        after: str | None = None
        while rows := await self._store.list_aggregates(TRIGGER, "", PAGE, after):
            states = [(row.id, codec.decode_as(TriggerState, row.state)) for row in rows]
            known += [
                WatchingTrigger(id, state.terms.watched, state.created_ms)
                for id, state in states
                if state.terms.watched
            ]
            on_streams |= {id: state for id, state in states if state.terms.nats}
            if len(rows) < PAGE:
                break
            after = rows[-1].key
        self._known, self.on_streams = known[:MOST], on_streams
        return True

    def end_messages(
        self,
        after: Execution,
        labels: Mapping[str, Any],
        started_ms: int,
        at_ms: int,
        *,
        again_since_ms: int | None = None,
    ) -> Iterator[ToTrigger]:
        """Yields the messages to triggers about an execution that ran from a time to ``at_ms``. A called execution
        counts as a part of its caller, and no trigger is notified of executions that it started itself. Triggers that
        ask for the same keys of ``ctx`` share one event.

        Args:
            again_since_ms: Set if the end precedes a restoration of Postgres: the time, by EVENTS, it was restored to.
                Triggers newer than both times are not told; the server that wrote ``at_ms`` may have had a wrong clock.
        """
        status = next(one for one in ENDED if one == after.status)
        concerned = list(self._concerned(EndedExecutions, after, labels, status))
        if not concerned:
            return
        root, shares = _root_of(after), shares_of(left_to(after), len(concerned))
        events: dict[tuple[str, ...], tuple[EndedExecution, int]] = {}
        for one, share in zip(concerned, shares, strict=True):
            assert isinstance(one.wanted, EndedExecutions)
            if again_since_ms is None or one.created_ms <= max(at_ms, again_since_ms):
                keys = tuple(one.wanted.ctx)
                if keys not in events:
                    whole = _ended_execution(after, labels, (started_ms, at_ms), keys, self._page_of(after))
                    events[keys] = _fit(whole, len(concerned))
                ended, size = events[keys]
                fact = ExecutionEnded(ended, _depth_after(after), at_ms, root, share)
                yield ToTrigger(AggregateMessage(one.aggregate_id, fact, AGGREGATES_FORMAT), size)

    def event_messages(
        self,
        after: Execution,
        told: TellOfEvent,
        labels: Mapping[str, Any],
        at_ms: int,
        *,
        again_since_ms: int | None = None,
    ) -> Iterator[ToTrigger]:
        """Yields the messages to triggers about an event that a step of an execution has emitted. From each event may
        follow half of what is left to the execution, so that events which lead to one another end. As for
        :meth:`end_messages`.
        """
        fact = told.fact
        concerned = list(self._concerned(EmittedEvents, after, labels, fact.event))
        if not concerned:
            return
        whole = EmittedEvent(
            id=f"{after.execution_id}.{told.position}",
            name=fact.event,
            execution_id=after.execution_id,
            path=after.path,
            step=fact.step,
            on=fact.on,
            data=fact.data,
            version=after.version,
            labels=dict(labels),
            url=self._page_of(after),
            due=after.due or None,
            time=iso(at_ms),
        )
        (emitted, size), shares = _fit(whole, len(concerned)), shares_of(left_to(after) // 2, len(concerned))
        for one, share in zip(concerned, shares, strict=True):
            if again_since_ms is None or one.created_ms <= max(at_ms, again_since_ms):
                happened = EventEmitted(emitted, _depth_after(after), at_ms, _root_of(after), share)
                yield ToTrigger(AggregateMessage(one.aggregate_id, happened, AGGREGATES_FORMAT), size)

    def _page_of(self, execution: Execution) -> str | None:
        return f"{self._page_url}/executions/{execution.execution_id}" if self._page_url else None

    def _concerned(
        self, kind: type[EndedExecutions | EmittedEvents], after: Execution, labels: Mapping[str, Any], word: str
    ) -> Iterator[WatchingTrigger]:
        """Yields the triggers that wait for this: ``word`` is the status of an end, or the name of an event."""
        if not self._known or after.parent is not None:
            return
        own_id = None if after.origin is None else after.origin.aggregate_id
        for one in self._known:
            is_told = isinstance(one.wanted, kind) and one.aggregate_id != own_id
            if is_told and concerns(one.wanted, after.path, labels, word):
                yield one


def left_to(after: Execution) -> int:
    """The number of executions that may follow from the end of this one through triggers: the rest of its root's share,
    at most what its own limit allows.
    """
    most = after.limits.max_descendants
    left = None if after.origin is None else after.origin.left
    return most if left is None else min(left, most)


def shares_of(left: int, count: int) -> list[int]:
    """Splits what is left among so many triggers: no counter is shared, so no order of their folds can exceed it."""
    share, more = divmod(left, count)
    return [share + (place < more) for place in range(count)]


def _depth_after(after: Execution) -> int:
    """The number of triggers in the chain to executions that follow from this one."""
    return 1 if after.origin is None else after.origin.depth + 1


def _root_of(after: Execution) -> str:
    """The execution with whose end a chain of triggers began, which is this one if none led to it."""
    return (after.origin.root if after.origin is not None else "") or after.execution_id


def _ended_execution(
    after: Execution, labels: Mapping[str, Any], ran: tuple[int, int], keys: Collection[str], url: str | None
) -> EndedExecution:
    outcome = after.outcome or Outcome("ok")
    result, error = outcome.result, outcome.error
    omitted = ["result"] if result.reference is not None or len(result.value) > MAX_EVENT_BYTES else []
    return EndedExecution(
        execution_id=after.execution_id,
        path=after.path,
        status=next(one for one in ENDED if one == after.status),
        version=after.version,
        labels=dict(labels),
        error=None
        if error is None
        else EndError(error.kind, error.message, after.failed_step or None, error.task, error.code),
        result=codec.decode_json(result.value) if result.value and not omitted else None,
        workload=after.workload,
        ctx={key: after.ctx.get(key) for key in keys},
        omitted=omitted,
        url=url,
        due=after.due or None,
        started=iso(ran[0]),
        finished=iso(ran[1]),
    )


def _fit(event: _Event, count: int) -> tuple[_Event, int]:
    """The event without what is too large for ``count`` triggers, and its bytes."""
    most = min(MAX_EVENT_BYTES, MAX_TOLD_BYTES // count)
    size = len(codec.encode(event))
    left = [name for name in _OMITTED if hasattr(event, name) and name not in event.omitted]
    while size > most and left:
        name = max(left, key=lambda one: (len(codec.encode(getattr(event, one))), one))
        left.remove(name)
        empty: Any = _OMITTED[name]
        event = replace(event, omitted=sorted([*event.omitted, name]), **{name: empty})
        size = len(codec.encode(event))
    return event, size
