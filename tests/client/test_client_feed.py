"""Events as they happen, for many readers: nothing missed, nothing twice, nothing kept without bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.feed import MemoryFeed
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.client.feed.live import LiveFeed
from noetl_stream.errors import NotFound, Unreachable, UsageError
from noetl_stream.ports import subjects
from noetl_stream.ports.feed import FedEvent
from noetl_stream.ports.operations.feed import FeedEvent
from noetl_stream.ports.store import PartitionLease, StoredEvent
from noetl_stream.testing.conformance.feed import fed
from noetl_stream.testing.conformance.store_rows import taken, tick_of
from noetl_stream.testing.simulation.time import simulated_clock


class Countable(MemoryStore):
    """Counts how often a journal is looked into; can be away."""

    looks = 0
    away = False
    defect: Exception | None = None

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        self.looks += 1
        if self.defect is not None:
            raise self.defect
        if self.away:
            raise Unreachable("Postgres is away")
        return await super().journal(execution_id, after, limit)


class CountableTicks(MemoryFeed):
    """Counts the events that are read."""

    rows = 0

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        found = await super().read(after, limit)
        self.rows += len(found)
        return found


class World:
    """A store that grows by ticks, and a feed over it."""

    def __init__(self, *, kept_events: int = 4_096) -> None:
        clock = simulated_clock()
        self.store = Countable(clock)
        self.bus = MemoryBroker(clock).bus
        self.ticks = CountableTicks(self.store, clock)
        self.feed = LiveFeed(self.store, self.ticks, self.bus, clock, kept_events=kept_events)
        self._leases: dict[int, PartitionLease] = {}
        self._positions: dict[str, int] = {}

    async def open(self) -> World:
        self._leases = {lease.id: lease for lease in await taken(self.store, limit=2)}
        return self

    async def one(self, execution_id: str, after: int) -> AsyncIterator[FeedEvent]:
        return each(await self.feed.execution(execution_id, after))

    async def all(self, after: str | None) -> AsyncIterator[FeedEvent]:
        return each(await self.feed.everything(after))

    async def end(self, execution_id: str, by: int = 1) -> None:
        """The last tick of an execution."""
        await self.grow(execution_id, by=by, named="playbook.processed", finished_ms=1)

    async def grow(
        self,
        *executions: str,
        by: int = 1,
        partition: int = 0,
        quietly: bool = False,
        named: str = "token.enqueued",
        data: bytes = b'{"status":"completed"}',
        finished_ms: int | None = None,
    ) -> None:
        """One tick adds ``by`` events to each of these journals."""
        lease = self._leases[partition]
        entries = []
        for name in executions:
            first = self._positions.get(name, 0) + 1
            self._positions[name] = first + by - 1
            entries.append((name, first, first + by - 1))
        tick = fed(tick_of("one", [lease]), lease.tick + 1, entries)
        events = [replace(event, name=named, data=data) for event in tick.events]
        rows = [
            replace(row, position=last, finished_ms=finished_ms)
            for row, (_, _, last) in zip(tick.executions, entries, strict=True)
        ]
        await self.store.commit(replace(tick, events=events, executions=rows, feed=tick.feed if by else []))
        self._leases[partition] = lease._replace(tick=lease.tick + 1)
        if not quietly:
            for name in executions:
                self.bus.send(subjects.decided(partition, name), b"")


async def world(**kept: int) -> World:
    return await World(**kept).open()


async def each(feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[FeedEvent]:
    """The events of a feed one by one."""
    async for heard in feed:
        for one in heard:
            yield one


async def some(feed: AsyncIterator[FeedEvent], count: int) -> list[str]:
    """The next events, as execution and position."""
    return [(await anext(feed)).event.event_id for _ in range(count)]


def numbered(name: str, first: int, last: int) -> list[str]:
    return [f"{name}.{position}" for position in range(first, last + 1)]


async def test_history_comes_first_then_what_happens() -> None:
    stage = await world()
    await stage.grow("a", by=3)
    feed = await stage.one("a", 1)
    assert await some(feed, 2) == numbered("a", 2, 3)
    waiting = asyncio.ensure_future(some(feed, 2))
    await asyncio.sleep(0)
    await stage.grow("a")
    await stage.grow("a")
    assert await waiting == numbered("a", 4, 5)


async def test_what_is_committed_between_history_and_live_is_neither_missed_nor_doubled() -> None:
    stage = await world()
    await stage.grow("a", by=2)
    feed = await stage.one("a", 0)
    heard = []
    for _ in range(50):
        heard += await some(feed, 1)
        await stage.grow("a")
    assert heard == numbered("a", 1, 50)


async def test_news_that_is_lost_costs_time_and_no_event() -> None:
    stage = await world()
    await stage.grow("a")
    feed = await stage.one("a", 0)
    await some(feed, 1)
    waiting = asyncio.ensure_future(some(feed, 1))
    await asyncio.sleep(0)
    await stage.grow("a", quietly=True)
    assert await waiting == ["a.2"]


async def test_readers_at_the_end_share_one_look() -> None:
    stage = await world()
    await stage.grow("a", by=10)
    feeds = [await stage.one("a", 0) for _ in range(20)]
    assert [await some(feed, 10) for feed in feeds] == [numbered("a", 1, 10)] * 20
    waiting = [asyncio.ensure_future(some(feed, 5)) for feed in feeds]
    await asyncio.sleep(0.1)
    before = stage.store.looks
    await stage.grow("a", by=5)
    assert [await one for one in waiting] == [numbered("a", 11, 15)] * 20
    assert stage.store.looks - before <= 2


async def test_a_reader_that_is_overtaken_reads_on_for_itself() -> None:
    stage = await world(kept_events=5)
    await stage.grow("a")
    slow, quick = await stage.one("a", 0), await stage.one("a", 0)
    first = await some(slow, 1), await some(quick, 1)
    assert first == (["a.1"], ["a.1"])
    begun = asyncio.ensure_future(some(slow, 1)), asyncio.ensure_future(some(quick, 1))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    assert [await one for one in begun] == [["a.2"], ["a.2"]]
    for position in range(3, 30):
        await stage.grow("a")
        assert await some(quick, 1) == [f"a.{position}"]
    assert await some(slow, 27) == numbered("a", 3, 29)


async def test_a_feed_of_one_ends_with_its_execution() -> None:
    stage = await world()
    await stage.grow("a")
    await stage.end("a")
    assert [heard.id async for heard in await stage.one("a", 0)] == ["1", "2"]


async def test_an_execution_that_is_not_there_has_no_feed() -> None:
    stage = await world()
    with pytest.raises(NotFound, match="no execution nothing"):
        await anext(await stage.one("nothing", 0))


async def test_everything_begins_now_and_tells_of_all_executions() -> None:
    stage = await world()
    await stage.grow("old", by=5)
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(some(feed, 4))
    await asyncio.sleep(0.1)
    await stage.grow("a", "b")
    await stage.grow("c", partition=1)
    await stage.grow("a")
    heard = await waiting
    assert sorted(heard) == ["a.1", "a.2", "b.1", "c.1"] and heard.index("a.1") < heard.index("a.2")


async def test_everything_goes_on_after_any_event_even_within_a_tick() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    for _ in range(3):
        await stage.grow("a", "b", by=2)
        await stage.grow("c", partition=1)
    whole = [await waiting] + [await anext(feed) for _ in range(14)]
    names = [heard.event.event_id for heard in whole]
    assert len(set(names)) == 15
    for at, heard in enumerate(whole):
        again = await stage.all(heard.id)
        rest = await some(again, 14 - at)
        assert sorted(rest) == sorted(names[at + 1 :])


@pytest.mark.parametrize("text", ["", "x", "1-2", "-".join(["zz"] * 32), "-".join(["1.1.1"] * 32), "é" * 5])
async def test_an_id_of_something_else_is_refused(text: str) -> None:
    stage = await world()
    with pytest.raises(UsageError, match="none of this feed"):
        await anext(await stage.all(text))


async def test_an_id_that_is_too_old_is_refused() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    old = (await waiting).id
    await stage.grow("a")
    await stage.ticks.trim(-1_000, 1_000)
    with pytest.raises(UsageError, match="too old"):
        await anext(await stage.all(old))


async def test_a_store_that_goes_away_ends_the_feed_of_everyone() -> None:
    stage = await world()
    await stage.grow("a")
    feeds = [await stage.one("a", 0) for _ in range(2)]
    waiting = [asyncio.ensure_future(some(feed, 2)) for feed in feeds]
    await asyncio.sleep(0.1)
    stage.store.away = True
    for one in waiting:
        with pytest.raises(Unreachable):
            await one
    stage.store.away = False
    await stage.grow("a")
    assert await some(await stage.one("a", 0), 2) == numbered("a", 1, 2)
