"""The periodic work of a server, beside its loop, that bounds the growth of the stores; it changes no execution."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.dead_letters import DeadLetters, LetterBounds
from noetl_stream.ports.stores.store import FeedStore
from noetl_stream.server.upkeep.expiry import Retention
from noetl_stream.server.upkeep.sweeping import QueueSweeper
from noetl_stream.server.upkeep.trimming import Trimmer

log = logging.getLogger(__name__)

TICKS_AT_ONCE: Final = 5_000
"""How many ticks of the feed one transaction trims, to keep it short."""

LETTERS_AT_ONCE: Final = 5_000

TRIM_FEED_S: Final = 600.0
TRIM_LETTERS_S: Final = 30.0
TRIM_EVENTS_S: Final = 30.0
SWEEP_S: Final = 300.0
MAKE_MONTHS_S: Final = 6 * 3_600.0
DELETE_OLD_S: Final = 3_600.0
"""How often old executions are deleted, in seconds; above, the intervals of the other jobs."""

LOOK_S: Final = 5.0
"""How often a server checks whether the upkeep is its own."""


class Upkeep:
    """The periodic work on the stores. Every server trims the feed; the rest is done by one of them.

    Attributes:
        letters_dropped: Dead letters above their bounds.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        feed: FeedStore | None = None,
        trimmer: Trimmer | None = None,
        retention: Retention | None = None,
        letters: DeadLetters | None = None,
        sweeper: QueueSweeper | None = None,
        trim_events_s: float = TRIM_EVENTS_S,
    ) -> None:
        self._trim_events_s = trim_events_s
        self._clock = clock
        self._feed = feed
        self._trimmer = trimmer
        self._retention = retention
        self._letters = letters
        self._sweeper = sweeper
        self.letters_dropped = 0

    async def run(self, feed_keep_s: float, is_mine: Callable[[], bool]) -> None:
        """Runs the jobs until cancelled.

        Args:
            feed_keep_s: How long the whole feed can be resumed.
            is_mine: Returns whether this server does the work that one server does for all.
        """
        async with asyncio.TaskGroup() as group:
            if self._feed is not None:
                group.create_task(self._repeat(lambda: self._trim_feed(feed_keep_s), TRIM_FEED_S, "trim the feed"))
            if self._trimmer is not None:
                group.create_task(self._repeat(self._trimmer.trim, self._trim_events_s, "trim EVENTS", is_mine))
            if self._letters is not None:
                trim = partial(self._trim_letters, self._letters)
                group.create_task(self._repeat(trim, TRIM_LETTERS_S, "trim the dead letters", is_mine))
            if self._sweeper is not None:
                group.create_task(self._repeat(self._sweeper.sweep, SWEEP_S, "sweep the queue", is_mine))
            if self._retention is not None:
                make, delete = self._retention.make_months, self._retention.delete_old
                group.create_task(self._repeat(make, MAKE_MONTHS_S, "make tables for the next months", is_mine))
                group.create_task(self._repeat(delete, DELETE_OLD_S, "delete old executions", is_mine))

    async def _trim_feed(self, keep_s: float) -> None:
        while self._feed is not None and await self._feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
            pass

    async def _trim_letters(self, letters: DeadLetters) -> None:
        bounds, dropped, count = LetterBounds(), 0, LETTERS_AT_ONCE
        while count == LETTERS_AT_ONCE:
            count = await letters.trim(bounds, self._clock.now_ms(), LETTERS_AT_ONCE)
            self.letters_dropped += count
            dropped += count
        if dropped:
            log.warning("dropped the %d oldest dead letters: above their bounds", dropped)

    async def _repeat(
        self,
        work: Callable[[], Awaitable[object]],
        every_s: float,
        what: str,
        is_mine: Callable[[], bool] = lambda: True,
    ) -> None:
        while True:
            if not is_mine():
                await self._clock.sleep(LOOK_S)
                continue
            try:
                await work()
            except NoetlError as error:
                log.warning("cannot %s, will retry: %s", what, error)
            await self._clock.sleep(every_s)
