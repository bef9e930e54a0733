"""What readers at the end of one feed share: its last events, read once for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, Final

import msgspec

from noetl_stream.concurrency import result_until
from noetl_stream.operations.feed.sources import FeedPage, FeedSource, Place, Places
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.reading.feed import FeedEvent
from noetl_stream.ports.streams.bus import Bus, Subscription

MAX_EVENTS: Final = 4_096
MAX_CHARS: Final = 8 * 1024 * 1024
"""How much is buffered for readers that lag a little."""

PATIENCE_S: Final = 2.0
"""How long a lagging reader may hold up the others, in total, before it is overtaken and reads for itself."""

BATCH_EVENTS: Final = 200
"""How many events a reader gets at once, at most."""

BATCH_CHARS: Final = 256 * 1024
"""How many characters a reader gets at once, at most, unless it is a single event: a stalled reader holds them."""

POLL_S: Final = 1.0
"""How often the source is read without a notification, since notifications may be lost."""


Found = tuple[Place, FeedEvent]


def at_once(found: Iterable[Found]) -> list[Found]:
    """As many of these as a reader gets at once, at least one."""
    some: list[Found] = []
    chars = 0
    for one in islice(found, BATCH_EVENTS):
        chars += len(one[1].json)
        if some and chars > BATCH_CHARS:
            break
        some.append(one)
    return some


class FeedUpdate:
    """Says when there may be new events: after a message on ``subject``, or after :data:`POLL_S`."""

    def __init__(self, bus: Bus, subject: str, clock: Clock) -> None:
        self._bus = bus
        self._subject = subject
        self.clock = clock
        self._notified = asyncio.Event()

    async def open(self) -> Subscription:
        """Subscribes."""
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
    """``at``: the number of its next event. ``patience_s``: how long it may still hold up the others."""

    at: int
    patience_s: float


class Tail:
    """The shared end of a feed. It exists while it has listeners.

    Args:
        seen: Where it begins.
        kept_events: How many events are buffered.
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
        """The events after ``seen``, which this covers; ends when the listener was too slow.

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
            subscription = await self._news.open()
            try:
                while True:
                    self._news.forget()
                    look = await self._source.read(self._end)
                    if look.seen == self._end:
                        await self._news.wait()
                    else:
                        await self._wait_for_lagging(len(look.found))
                        self._add(look)
            finally:
                await subscription.close()
        except Exception as error:  # a defect, too: otherwise the listeners would wait forever
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
