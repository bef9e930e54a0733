"""Feeds over a store that grows by ticks, in simulated time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from msgspec.structs import replace
from operations_stage import NO_SECRETS

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import Unreachable
from noetl_stream.model.json import codec
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.operations.reading.events import FeedEvent
from noetl_stream.ports.stores.fed_events import FedEvent
from noetl_stream.ports.stores.store import PartitionLease, StoredEvent
from noetl_stream.protocol import subjects
from noetl_testkit.conformance.feed import tick_with_events
from noetl_testkit.conformance.store_rows import FACTS, taken, tick_of
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryFeed


class Countable(MemoryStore):
    """Counts reads of journals; can be unreachable."""

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
    """Counts the events read."""

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
        self.bus = StagedBroker(clock).bus
        self.ticks = CountableTicks(self.store, clock)
        self.feed = LiveFeed(self.store, self.ticks, self.bus, clock, NO_SECRETS, kept_events=kept_events)
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
        data: bytes | None = None,
        finished_ms: int | None = None,
    ) -> None:
        """One tick adds ``by`` events to each of these journals."""
        lease = self._leases[partition]
        entries = []
        for name in executions:
            first = self._positions.get(name, 0) + 1
            self._positions[name] = first + by - 1
            entries.append((name, first, first + by - 1))
        tick = tick_with_events(tick_of("one", [lease]), entries)
        facts = codec.encode([FACTS[named]]) if data is None else b"[%b]" % data
        events = [replace(entry, data=facts) for entry in tick.entries]
        rows = [
            replace(row, position=last, finished_ms=finished_ms)
            for row, (_, _, last) in zip(tick.executions, entries, strict=True)
        ]
        await self.store.commit(replace(tick, entries=events, executions=rows, feed=tick.feed if by else []))
        self._leases[partition] = replace(lease, tick=lease.tick + 1)
        if not quietly:
            for name in executions:
                self.bus.send(subjects.decided(partition, name), b"")


async def world(**kept: int) -> World:
    return await World(**kept).open()


async def each(feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[FeedEvent]:
    """The events of a feed one by one, without its place at the beginning."""
    async for batch in feed:
        for one in batch:
            if one.event is not None:
                yield one


async def some(feed: AsyncIterator[FeedEvent], count: int) -> list[str]:
    """The next events, as execution and position."""
    return [(await anext(feed)).event.event_id for _ in range(count)]


def numbered(name: str, first: int, last: int) -> list[str]:
    return [f"{name}.{position}" for position in range(first, last + 1)]
