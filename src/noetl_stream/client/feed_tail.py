"""What readers at the end of one feed share: the last events, found by one look for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

from noetl_stream.client.feed_sources import Look, Place, Places, Source
from noetl_stream.errors import NoetlError
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.feed import Heard

MAX_EVENTS: Final = 4_096
MAX_CHARS: Final = 8 * 1024 * 1024
"""What is kept for readers that are a little late, at most."""

PATIENCE_S: Final = 2.0
"""How long those that lag are waited for before they are overtaken: until then nobody reads anything alone."""

BATCH_EVENTS: Final = 200
"""How many events a reader is handed at once, at most."""

LOOK_S: Final = 1.0
"""How often it is looked without having been told: news may be lost, what is committed is not."""


class News:
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
        told, late = asyncio.ensure_future(self._told.wait()), asyncio.ensure_future(self.clock.sleep(LOOK_S))
        try:
            await asyncio.wait({told, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            late.cancel()

    async def _tell(self, subject: str, body: bytes, reply: str) -> None:
        self._told.set()


class Tail:
    """Lives as long as somebody listens.

    Args:
        seen: Where it begins: everything up to here is in the past.
        kept_events: How many events are kept.
        forgotten: Called when nobody listens any more.
    """

    def __init__(
        self, source: Source, seen: Places, news: News, kept_events: int, forgotten: Callable[[], object]
    ) -> None:
        self._source = source
        self._base = dict(seen)
        self._end = dict(seen)
        self._news = news
        self._kept_events = kept_events
        self._forgotten = forgotten
        self._events: deque[tuple[Place, Heard]] = deque()
        self._first = 0
        self._chars = 0
        self._listeners: dict[object, int] = {}
        self._grown = asyncio.Event()
        self._taken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._failed: NoetlError | None = None

    def covers(self, seen: Places) -> bool:
        """Whether nothing that comes after ``seen`` has been dropped here."""
        return all(base <= seen.get(key, (0, 0)) for key, base in self._base.items())

    async def listen(self, seen: Places) -> AsyncIterator[list[tuple[Place, Heard]]]:
        """What comes after ``seen``, which this covers; ends when the listener was too slow.

        Raises:
            NoetlError: what ended the looking.
        """
        begun = dict(seen)
        at, joined_at = self._first, self._first + len(self._events)
        me = object()
        self._listeners[me] = at
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            while at >= self._first:
                if at < self._first + len(self._events):
                    begin = at - self._first
                    fresh = list(islice(self._events, begin, begin + BATCH_EVENTS))
                    if at < joined_at:
                        fresh = [one for one in fresh if one[0][1:] > begun.get(one[0][0], (0, 0))]
                    at = min(at + BATCH_EVENTS, self._first + len(self._events))
                    if fresh:
                        yield fresh
                    self._listeners[me] = at
                    self._taken.set()
                    continue
                if self._failed is not None:
                    raise self._failed
                await self._grown.wait()
        finally:
            del self._listeners[me]
            self._taken.set()
            if not self._listeners:
                self._forgotten()
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
        except NoetlError as error:
            self._forgotten()
            self._failed = error
            self._wake()

    async def _wait_for_those_who_lag(self, coming: int) -> None:
        """Until nobody needs what has to be dropped for ``coming`` more events, or for a while."""
        drop = len(self._events) + coming - self._kept_events
        if self._chars > MAX_CHARS:
            drop = max(drop, len(self._events))
        late = asyncio.ensure_future(self._news.clock.sleep(PATIENCE_S))
        try:
            while not late.done() and any(at < self._first + drop for at in self._listeners.values()):
                self._taken.clear()
                taken = asyncio.ensure_future(self._taken.wait())
                await asyncio.wait({taken, late}, return_when=asyncio.FIRST_COMPLETED)
                taken.cancel()
        finally:
            late.cancel()

    def _add(self, look: Look) -> None:
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
