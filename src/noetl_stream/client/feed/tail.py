"""What readers at the end of one feed share: the last events, found by one look for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from noetl_stream.client.feed.sources import FeedPage, FeedSource, Place, Places
from noetl_stream.concurrency import result_until
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.feed import FeedEvent

MAX_EVENTS: Final = 4_096
MAX_CHARS: Final = 8 * 1024 * 1024
"""What is kept for readers that are a little late, at most."""

PATIENCE_S: Final = 2.0
"""How long one that lags may hold the others up, in all, before it is overtaken: until then nobody reads alone."""

BATCH_EVENTS: Final = 200
"""How many events a reader is handed at once, at most."""

BATCH_CHARS: Final = 256 * 1024
"""And how much of them, unless it is a single one: a reader that takes nothing more has that in its hands."""

LOOK_S: Final = 1.0
"""How often it is looked without having been told: news may be lost, what is committed is not."""


Found = tuple[Place, FeedEvent]


def at_once(found: Iterable[Found]) -> list[Found]:
    """The first of these, as many as a reader is handed at once: at least one."""
    some: list[Found] = []
    chars = 0
    for one in islice(found, BATCH_EVENTS):
        chars += len(one[1].json)
        if some and chars > BATCH_CHARS:
            break
        some.append(one)
    return some


class FeedUpdate:
    """Says when there may be something new: when ``subject`` is heard, or after a while."""

    def __init__(self, bus: Bus, subject: str, clock: Clock) -> None:
        self._bus = bus
        self._subject = subject
        self.clock = clock
        self._told = asyncio.Event()

    async def open(self) -> Subscription:
        """Begins to listen."""
        return await self._bus.listen(self._subject, self._tell)

    def forget(self) -> None:
        """What was heard so far has been looked at."""
        self._told.clear()

    async def wait(self) -> None:
        """Ends when something was heard since :meth:`forget`, or it is time to look anyway."""
        await result_until(self._told.wait(), self.clock.sleep(LOOK_S))

    async def _tell(self, subject: str, body: bytes, reply: str) -> None:
        self._told.set()


@dataclass(slots=True, eq=False)
class _Listener:
    """``at``: what it takes next. ``patience_s``: how long it may still hold the others up."""

    at: int
    patience_s: float


class Tail:
    """Lives as long as somebody listens.

    Args:
        seen: Where it begins: everything up to here is in the past.
        kept_events: How many events are kept.
        forgotten: Called with this one when nobody listens any more.
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
        """Whether nothing that comes after ``seen`` has been dropped here."""
        return all(base <= seen.get(key, (0, 0)) for key, base in self._base.items())

    async def listen(self, seen: Places, *, waited_for: bool) -> AsyncIterator[list[Found]]:
        """What comes after ``seen``, which this covers; ends when the listener was too slow.

        Args:
            waited_for: Whether it is waited for when it lags. Whenever it has come to the end, it is again.

        Raises:
            NoetlError: what ended the looking.
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
                        await self._wait_for_those_who_lag(len(look.found))
                        self._add(look)
            finally:
                await subscription.close()
        except Exception as error:  # a defect, too: nobody is to wait here for ever
            self._forgotten(self)
            self._failed = error
            self._wake()

    async def _wait_for_those_who_lag(self, coming: int) -> None:
        """Until nobody who is still waited for needs what has to be dropped for ``coming`` more events."""
        drop = len(self._events) + coming - self._kept_events
        if self._chars > MAX_CHARS:
            drop = max(drop, len(self._events))
        dropped = range(self._first, self._first + drop)
        while lagging := [one for one in self._listeners if one.at in dropped and one.patience_s > 0]:
            waited_s = await self._until_taken(min(one.patience_s for one in lagging))
            for one in lagging:
                one.patience_s -= waited_s

    async def _until_taken(self, timeout_s: float) -> float:
        """Ends when somebody has taken something, or the time is over. How long that took."""
        clock = self._news.clock
        began_s = clock.monotonic_s()
        self._taken.clear()
        await result_until(self._taken.wait(), clock.sleep(timeout_s))
        return clock.monotonic_s() - began_s

    def _add(self, look: FeedPage) -> None:
        self._end = look.seen
        for place, heard in look.found:
            self._events.append((place, heard))
            self._chars += len(heard.json)
        while len(self._events) > self._kept_events or (self._chars > MAX_CHARS and self._events):
            (key, *number), dropped = self._events.popleft()
            self._base[key] = (number[0], number[1])
            self._chars -= len(dropped.json)
            self._first += 1
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
