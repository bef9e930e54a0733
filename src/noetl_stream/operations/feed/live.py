"""Events as they happen: history first, then live, exactly once for every reader (PROTOCOL §4).

Postgres is the source, and NATS only notifies: a lost notification loses no event. Readers at the end of the same feed
share its queries and their results. A reader that falls behind reads for itself again, so that the shared buffer stays
bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.operations.executions.reading.run_workers import RunWorkers
from noetl_stream.operations.executions.redacted import UsedSecrets
from noetl_stream.operations.feed.sources import (
    EverythingSource,
    ExecutionSource,
    FeedSource,
    Places,
    decode_id,
    encode_id,
    places_of,
    require_kept,
)
from noetl_stream.operations.feed.tail import MAX_EVENTS, FeedUpdate, Tail, at_once
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.reading.feed import LAST_EVENT, FeedEvent
from noetl_stream.ports.stores.store import FeedStore, Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol import subjects

EVERYTHING: Final = "*"


class LiveFeed:
    """A :class:`~noetl_stream.ports.operations.reading.feed.Feed` on Postgres and NATS.

    Args:
        secrets: Hides the credentials that were handed out for an execution in its events.
        kept_events: How many events are buffered for the readers of one feed that lag a little.
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
        """See :meth:`noetl_stream.ports.operations.reading.feed.Feed.execution`.

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
        """See :meth:`noetl_stream.ports.operations.reading.feed.Feed.everything`.

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
                continue  # it was overtaken: it reads for itself what it lacks
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
    """``feed`` after its place, so that a reader whose line breaks before the first event can resume."""
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
