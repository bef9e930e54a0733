"""Live events: history first, then live, exactly once for every reader (PROTOCOL §4).

Postgres is the source, and NATS only notifies: a lost notification loses no event. Readers at the end of the same feed
share its queries and their results. A reader that falls behind reads by itself again, so that the shared buffer stays
bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from noetl_stream.concurrency import beside, closing, result_until
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.envelope import EventDocument
from noetl_stream.operations.executions.reading.documents import RunWorkers, event_document, event_documents, size_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.reading.events import LAST_EVENT, FeedEvent
from noetl_stream.ports.stores.fed_events import FedEvent, FeedStore
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_stream.protocol import subjects
from noetl_stream.storage.used_secrets import UsedSecrets

PAGE_EVENTS: Final = 500
PAGE_TICKS: Final = 2
WHOLE_TICK: Final = 2**31
_NUMBERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Place: TypeAlias = tuple[int, int, int]
"""The place of an event: its order (partition), its tick or position, and its number there."""

Places: TypeAlias = Mapping[int, tuple[int, int]]
"""The place of the last event seen, in each order."""


class FeedPage(msgspec.Struct, frozen=True, gc=False):
    """Some events, and the places after them: unchanged at the end of the feed."""

    found: list[tuple[Place, FeedEvent]]
    seen: dict[int, tuple[int, int]]


class FeedSource(Protocol):
    async def read(self, seen: Places) -> FeedPage:
        """Some of the events after ``seen``, sorted in each order."""


class ExecutionSource:
    """One journal: a single order, 0, by positions."""

    def __init__(self, store: Store, workers: RunWorkers, secrets: UsedSecrets, row: ExecutionRow) -> None:
        self._store = store
        self._workers = workers
        self._secrets = secrets
        self._row = row

    async def read(self, seen: Places) -> FeedPage:
        """See :class:`FeedSource`. The last event seen is read again: it exists unless the execution was deleted.

        Raises:
            NotFound: the execution was deleted.
        """
        last, one = seen[0][0], self._row
        rows = await self._store.journal(one.execution_id, max(last, 1) - 1, PAGE_EVENTS)
        if not rows or rows[0].position != max(last, 1):
            raise NotFound(f"execution {one.execution_id} was deleted")
        workers = await self._workers.names(one.execution_id, rows)
        events = await event_documents(one, [row for row in rows if row.position > last], workers)
        shown = await self._secrets.hide(one.execution_id, events)
        found = [((0, event.position, 0), FeedEvent(str(event.position), event, one.path)) for event in shown]
        return FeedPage(found, {0: found[-1][0][1:]} if found else dict(seen))


class EverythingSource:
    """All journals: each partition is an order, by ticks."""

    def __init__(self, feed: FeedStore, workers: RunWorkers, secrets: UsedSecrets) -> None:
        self._feed = feed
        self._workers = workers
        self._secrets = secrets

    async def read(self, seen: Places) -> FeedPage:
        """See :class:`FeedSource`. A tick is complete with its last event. One seen in part is read again, without the
        seen events.

        Raises:
            UsageError: the events after ``seen`` are no longer stored.
        """
        after = {key: tick if number >= WHOLE_TICK else tick - 1 for key, (tick, number) in seen.items()}
        rows = await self._feed.read(after, PAGE_TICKS)
        floor = await self._feed.floor()
        require_kept(seen, floor.ticks)
        workers = await self._workers_of(rows)
        places = dict(seen)
        fresh: list[tuple[FedEvent, StoredEvent]] = []
        found: list[tuple[Place, str, str]] = []
        for fed, following in zip_longest(rows, rows[1:]):
            is_known = (fed.tick, fed.number) <= places[fed.partition]
            is_last = following is None or (following.partition, following.tick) != (fed.partition, fed.tick)
            if is_last or not is_known:
                places[fed.partition] = (fed.tick, WHOLE_TICK if is_last else fed.number)
            if not is_known and fed.event is not None:
                fresh.append((fed, fed.event))
                place = (fed.partition, *places[fed.partition])
                found.append((place, encode_id(places, floor.generation), fed.path))

        def documents() -> list[EventDocument]:
            by = [workers.get((fed.execution_id, event.position), "") for fed, event in fresh]
            return [
                event_document(fed.execution_id, fed.trace_id, fed.digest, event, worker)
                for (fed, event), worker in zip(fresh, by, strict=True)
            ]

        events = await beside(documents, size_of(event for _, event in fresh))
        shown = zip(found, await self._secrets.hide_each(events), strict=True)
        return FeedPage([(place, FeedEvent(id, event, path)) for (place, id, path), event in shown], places)

    async def _workers_of(self, rows: Sequence[FedEvent]) -> dict[tuple[str, int], str]:
        """The workers that reported these events, by execution and position."""
        journals: dict[str, list[StoredEvent]] = {}
        for fed in rows:
            if fed.event is not None:
                journals.setdefault(fed.execution_id, []).append(fed.event)
        return {
            (execution_id, position): worker
            for execution_id, events in journals.items()
            for position, worker in (await self._workers.names(execution_id, events)).items()
        }


def places_of(ticks: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The places of partitions seen up to the end of these ticks."""
    return {partition: (tick, WHOLE_TICK) for partition, tick in ticks.items()}


def encode_id(places: Places, generation: int) -> str:
    """The id of the feed at these places: the generation, and the ticks of partitions 0, 1, …, partial ones with a
    number.
    """
    ticks = "-".join(_place_text(*places[partition]) for partition in sorted(places))
    return f"{_base36(generation)}:{ticks}"


def decode_id(text: str, now: Mapping[int, int], generation: int) -> dict[int, tuple[int, int]]:
    """The places that an id stands for. Ids of version 0.3 have no generation.

    Args:
        now: The last tick of each partition.

    Raises:
        UsageError: the id does not belong to this feed.
    """
    said, _, ticks = text.rpartition(":")
    try:
        places = dict(enumerate(map(_place_of, ticks.split("-"))))
    except ValueError:
        places = {}
    if places and said not in ("", _base36(generation)):
        hint = "read the missing events from the executions, and begin the feed again"
        raise UsageError("the event id is older than the last repair of the stores", hint=hint)
    if places.keys() != now.keys() or any(tick > now[key] for key, (tick, _) in places.items()):
        raise UsageError("the event id does not belong to this feed", hint="omit it to begin now")
    return places


def require_kept(places: Places, floor: Mapping[int, int]) -> None:
    """Raises :class:`~noetl_stream.errors.UsageError` if events after ``places`` are no longer stored.

    Args:
        floor: The last deleted tick of each partition.
    """
    if any(place < (floor[key], WHOLE_TICK) for key, place in places.items() if key in floor):
        hint = "read the missing events from the executions, and begin the feed again"
        raise UsageError("the event id is too old: the events after it are no longer stored", hint=hint)


def _place_text(tick: int, number: int) -> str:
    return _base36(tick) if number >= WHOLE_TICK else f"{_base36(tick)}.{_base36(number)}"


def _place_of(text: str) -> tuple[int, int]:
    tick, dot, number = text.partition(".")
    if not text.isascii() or not text.replace(".", "", 1).isalnum():
        raise ValueError(text)
    return (int(tick, 36), int(number, 36) if dot else WHOLE_TICK)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _NUMBERS[digit] + digits
        if not number:
            return digits


MAX_EVENTS: Final = 4_096
MAX_CHARS: Final = 8 * 1024 * 1024
"""The events that are buffered for readers that lag a little."""

PATIENCE_S: Final = 2.0
"""The total time for which a lagging reader may hold up the others before it is overtaken and reads by itself."""

BATCH_EVENTS: Final = 200
"""The most events that a reader gets at once."""

BATCH_CHARS: Final = 256 * 1024
"""The most characters that a reader gets at once, except for a single event: a stalled reader holds them."""

POLL_S: Final = 1.0
"""The interval at which the source is read without a notification, since notifications may be lost."""


Found = tuple[Place, FeedEvent]


def at_once(found: Iterable[Found]) -> list[Found]:
    """The first of these events: as many as a reader gets at once, at least one."""
    some: list[Found] = []
    chars = 0
    for one in islice(found, BATCH_EVENTS):
        chars += len(one[1].json)
        if some and chars > BATCH_CHARS:
            break
        some.append(one)
    return some


class FeedUpdate:
    """Reports when there may be new events: after a message on ``subject``, or after :data:`POLL_S`."""

    def __init__(self, bus: Bus, subject: str, clock: Clock) -> None:
        self._bus = bus
        self._subject = subject
        self.clock = clock
        self._notified = asyncio.Event()

    async def open(self) -> Subscription:
        return await self._bus.listen(self._subject, self._notify)

    def forget(self) -> None:
        """Forgets the notifications so far."""
        self._notified.clear()

    async def wait(self) -> None:
        """Waits for a notification since :meth:`forget`, or for :data:`POLL_S`."""
        await result_until(self._notified.wait(), self.clock.sleep(POLL_S))

    async def _notify(self, subject: str, body: bytes, reply: str) -> None:
        self._notified.set()


class _Listener(msgspec.Struct, eq=False):
    """A listener. ``at`` is the number of its next event, ``patience_s`` how long it may still hold up the others."""

    at: int
    patience_s: float


class Tail:
    """The shared end of a feed. It exists while it has listeners.

    Args:
        seen: The places at which it begins.
        kept_events: The number of buffered events.
        forgotten: Called with this object when the last listener has left.
    """

    def __init__(
        self, source: FeedSource, seen: Places, news: FeedUpdate, kept_events: int, forgotten: Callable[[Any], object]
    ) -> None:
        self._source = source
        self._base = dict(seen)
        self._end = dict(seen)
        self._news = news
        self._kept_events = kept_events
        self._forgotten = forgotten
        self._events: deque[Found] = deque()
        self._first = 0
        self._chars = 0
        self._listeners: set[_Listener] = set()
        self._grown = asyncio.Event()
        self._taken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._failed: Exception | None = None

    def covers(self, seen: Places) -> bool:
        """Whether no event after ``seen`` was dropped here."""
        return all(base <= seen.get(key, (0, 0)) for key, base in self._base.items())

    async def listen(self, seen: Places, *, waited_for: bool) -> AsyncIterator[list[Found]]:
        """The events after ``seen``, which this covers; ends when the listener is too slow.

        Args:
            waited_for: Whether the others wait for it when it lags. Once it has reached the end, they always do.

        Raises:
            NoetlError: reading failed.
        """
        begun = dict(seen)
        at, joined_at = self._first, self._first + len(self._events)
        is_ahead = any(place > self._end.get(key, (0, 0)) for key, place in begun.items())
        me = _Listener(at, PATIENCE_S if waited_for else 0.0)
        self._listeners.add(me)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            while at >= self._first:
                if at < self._first + len(self._events):
                    fresh = at_once(islice(self._events, at - self._first, None))
                    may_be_known = at < joined_at or is_ahead
                    at += len(fresh)
                    if may_be_known:
                        fresh = [one for one in fresh if one[0][1:] > begun.get(one[0][0], (0, 0))]
                    if fresh:
                        yield fresh
                    me.at = at
                    self._taken.set()
                    continue
                if self._failed is not None:
                    raise self._failed
                me.patience_s = PATIENCE_S
                await self._grown.wait()
        finally:
            self._listeners.discard(me)
            self._taken.set()
            if not self._listeners:
                self._forgotten(self)
                self._looking.cancel()

    async def _look(self) -> None:
        try:
            async with closing(await self._news.open()):
                while True:
                    self._news.forget()
                    look = await self._source.read(self._end)
                    if look.seen == self._end:
                        await self._news.wait()
                    else:
                        await self._wait_for_lagging(len(look.found))
                        self._add(look)
        except Exception as error:  # a defect, too: otherwise the listeners would wait for ever
            self._forgotten(self)
            self._failed = error
            self._wake()

    async def _wait_for_lagging(self, coming: int) -> None:
        """Waits until no listener with patience left needs the events that ``coming`` more would displace."""
        drop = len(self._events) + coming - self._kept_events
        if self._chars > MAX_CHARS:
            drop = max(drop, len(self._events))
        dropped = range(self._first, self._first + drop)
        while lagging := [one for one in self._listeners if one.at in dropped and one.patience_s > 0]:
            waited_s = await self._until_taken(min(one.patience_s for one in lagging))
            for one in lagging:
                one.patience_s -= waited_s

    async def _until_taken(self, timeout_s: float) -> float:
        """Waits until a listener has taken something, or for ``timeout_s``; returns how long that took."""
        clock = self._news.clock
        began_s = clock.monotonic_s()
        self._taken.clear()
        await result_until(self._taken.wait(), clock.sleep(timeout_s))
        return clock.monotonic_s() - began_s

    def _add(self, look: FeedPage) -> None:
        self._end = look.seen
        for place, event in look.found:
            self._events.append((place, event))
            self._chars += len(event.json)
        while len(self._events) > self._kept_events or (self._chars > MAX_CHARS and self._events):
            (key, *number), dropped = self._events.popleft()
            self._base[key] = (number[0], number[1])
            self._chars -= len(dropped.json)
            self._first += 1
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()


EVERYTHING: Final = "*"


class LiveFeed:
    """A :class:`~noetl_stream.ports.operations.reading.events.Feed` on Postgres and NATS.

    Args:
        secrets: Hides the credentials that were handed out for an execution in its events.
        kept_events: The events that are buffered for the readers of one feed that lag a little.
    """

    def __init__(
        self,
        store: Store,
        feed: FeedStore,
        bus: Bus,
        clock: Clock,
        secrets: UsedSecrets,
        *,
        kept_events: int = MAX_EVENTS,
    ) -> None:
        self._store = store
        self._feed = feed
        self._bus = bus
        self._clock = clock
        self._secrets = secrets
        self._kept_events = kept_events
        self._workers = RunWorkers(store)
        self._tails: dict[str, Tail] = {}

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        """See :meth:`noetl_stream.ports.operations.reading.events.Feed.execution`.

        Raises:
            NotFound: the execution does not exist; also while reading, after its deletion.
            UsageError: its journal ends before the position ``after``.
        """
        row = await self._store.execution(execution_id)
        if row is None:
            raise NotFound(f"execution {execution_id} not found")
        if row.finished_ms is not None and after >= row.position:
            return _nothing()
        if after > row.position:
            raise UsageError(f"the journal of execution {execution_id} ends at position {row.position}")
        source = ExecutionSource(self._store, self._workers, self._secrets, row)
        subject = subjects.decided(row.partition, execution_id)
        return _to_the_end(self._follow(execution_id, subject, source, {0: (after, 0)}))

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        """See :meth:`noetl_stream.ports.operations.reading.events.Feed.everything`.

        Raises:
            UsageError: the id does not belong to this feed, or is too old; also while reading.
        """
        now, floor = await self._feed.now(), await self._feed.floor()
        seen = places_of(now) if after is None else decode_id(after, now, floor.generation)
        require_kept(seen, floor.ticks)
        source = EverythingSource(self._feed, self._workers, self._secrets)
        feed = self._follow(EVERYTHING, subjects.ALL_DECIDED, source, seen)
        return _from_place(encode_id(seen, floor.generation), feed)

    async def _follow(
        self, name: str, subject: str, source: FeedSource, places: Places
    ) -> AsyncIterator[list[FeedEvent]]:
        seen, keeps_up = dict(places), True
        while True:
            tail = self._tails.get(name)
            if tail is not None and tail.covers(seen):
                async for fresh in tail.listen(seen, waited_for=keeps_up):
                    seen |= {place[0]: place[1:] for place, _ in fresh}
                    yield [event for _, event in fresh]
                keeps_up = False
                continue  # it was overtaken, and reads missing events by itself
            page = await source.read(seen)
            after = page.seen
            at_end = after == seen
            some = at_once(page.found)
            if len(some) < len(page.found):  # the rest is read again: many slow readers would hold too much
                after = seen | {place[0]: place[1:] for place, _ in some}
            del page
            seen = after
            if some:
                yield [event for _, event in some]
            if at_end and self._tails.get(name) is None:
                news = FeedUpdate(self._bus, subject, self._clock)
                self._tails[name] = Tail(source, seen, news, self._kept_events, self._forget(name))

    def _forget(self, name: str) -> Callable[[Tail], None]:
        def forget(tail: Tail) -> None:
            if self._tails.get(name) is tail:
                del self._tails[name]

        return forget


async def _from_place(id: str, feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[list[FeedEvent]]:
    """``feed`` after its place, so that a reader whose connection breaks before the first event can resume."""
    yield [FeedEvent(id, None, "")]
    async for batch in feed:
        yield batch


async def _to_the_end(feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[list[FeedEvent]]:
    async for batch in feed:
        yield batch
        if batch[-1].name == LAST_EVENT:
            return


async def _nothing() -> AsyncIterator[list[FeedEvent]]:
    return
    yield []
