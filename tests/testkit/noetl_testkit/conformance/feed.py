"""Conformance of :class:`~noetl_stream.ports.stores.fed_events.FeedStore`, as tests to inherit.

A test class inherits :class:`FeedConformance`; the module or its ``conftest.py`` provides two fixtures:

``feed``
    An empty feed.
``store``
    The store whose ticks it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.model.json import codec
from noetl_stream.ports.stores.fed_events import FeedStore
from noetl_stream.ports.stores.store import FeedRow, Store, Tick
from noetl_testkit.conformance.store_rows import entry_row, execution_row, following, taken, tick_of

EVER_MS: Final = 1 << 52

Segments = Sequence[tuple[str, int, int]]
"""Journal segments: execution, first and last position."""


def tick_with_events(tick: Tick, entries: Segments) -> Tick:
    """``tick`` with these journal segments, their events and executions."""
    (partition,) = tick.partitions
    events = [
        entry_row(execution_id, position)
        for execution_id, first, last in entries
        for position in range(first, last + 1)
    ]
    executions = [execution_row(execution_id, partition=partition.id) for execution_id, _, _ in entries]
    row = FeedRow(partition=partition.id, tick=partition.tick + 1, entries=codec.encode(entries))
    return replace(tick, entries=events, executions=executions, feed=[row])


async def grow(store: Store, *ticks: Segments, **changes: object) -> None:
    """Commits the first ticks of partition 0 with these segments, and executions with these ``changes``."""
    tick = tick_of("one", await taken(store))
    for entries in ticks:
        filled = tick_with_events(tick, entries) if entries else tick
        await store.commit(replace(filled, executions=[replace(row, **changes) for row in filled.executions]))
        tick = following(tick)


async def shown(feed: FeedStore, after: int, limit: int = 10) -> list[tuple[int, int, str, int | None]]:
    """Tick, number in it, execution and position of the events of partition 0 after this tick."""
    events = await feed.read({0: after}, limit)
    return [(one.tick, one.number, one.execution_id, one.event.position if one.event else None) for one in events]


class FeedConformance:
    """All events of all ticks, in the order of ticks."""

    async def test_an_empty_feed_is_at_the_ticks_of_its_partitions(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        assert (await feed.now())[lease.id] == lease.tick
        assert await feed.read(await feed.now(), 10) == []
        assert (await feed.floor()).ticks == {}

    async def test_events_come_by_tick_execution_and_position(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("b", 1, 2), ("a", 1, 1)], [("a", 2, 3)])
        expected = [(1, 0, "b", 1), (1, 1, "b", 2), (1, 2, "a", 1), (2, 0, "a", 2), (2, 1, "a", 3)]
        assert await shown(feed, 0) == expected
        assert await shown(feed, 1) == expected[3:]
        assert await shown(feed, 0, limit=1) == expected[:3]
        assert await feed.read(await feed.now(), 10) == []

    async def test_an_event_has_what_is_known_of_its_execution(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 1)])
        row = await store.execution("a")
        (event,) = await feed.read({0: 0}, 10)
        assert row is not None
        assert (event.path, event.trace_id, event.digest) == (row.path, row.trace_id, row.digest)
        assert [event.event] == await store.journal("a")

    async def test_a_tick_without_events_is_passed_over(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [], [("a", 1, 1)])
        assert await shown(feed, 0, limit=1) == [(2, 0, "a", 1)]

    async def test_a_tick_whose_executions_are_deleted_still_counts(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 1)], finished_ms=1)
        assert await store.delete_execution("a")
        assert await shown(feed, 0) == [(1, 0, "", None)]

    async def test_what_ticks_have_added_is_known_by_its_first_position(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 2)], [("a", 3, 3), ("b", 1, 1)])
        assert await store.grown({0: 0}) == {"a": 1, "b": 1}
        assert await store.grown({0: 1, 1: 0}) == {"a": 3, "b": 1}
        assert await store.grown({0: 2}) == await store.grown({}) == {}
        journals = await store.journals({"a": 1, "b": 0})
        assert {id: [entry.position for entry in entries] for id, entries in journals.items()} == {
            "a": [2, 3],
            "b": [1],
        }

    async def test_the_last_tick_before_a_time_is_known_also_where_the_feed_is_trimmed(
        self, feed: FeedStore, store: Store
    ) -> None:
        await grow(store, [("a", 1, 1)], [("a", 2, 2)])
        assert await store.ticks_before([0, 1], 0) == {0: 0, 1: 0}
        assert await store.ticks_before([0, 1], EVER_MS) == {0: 2, 1: 0}
        await feed.trim(-3_600_000, 2)
        assert await store.ticks_before([0], 0) == {0: 2}
        assert await store.ticks_before([], EVER_MS) == {}

    async def test_where_the_feed_is_trimmed_whole_journals_have_grown(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 1)], [("b", 1, 1)], [("b", 2, 2)])
        await feed.trim(-3_600_000, 2)
        assert await store.grown({0: 1}) == {"a": 1, "b": 1}
        assert await store.grown({0: 2}) == {"b": 2}

    async def test_only_some_is_forgotten_at_once(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 1)], [("a", 2, 2)], [("a", 3, 3)])
        assert [await feed.trim(-3_600_000, 2) for _ in range(3)] == [2, 1, 0]
        assert (await feed.floor()).ticks == {0: 3}

    async def test_deleting_part_of_a_tick_leaves_its_numbers_unchanged(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 2), ("b", 1, 2)], finished_ms=1)
        assert await store.delete_execution("a")
        assert await shown(feed, 0) == [(1, 2, "b", 1), (1, 3, "b", 2)]

    async def test_old_ticks_are_trimmed_and_the_floor_moves(self, feed: FeedStore, store: Store) -> None:
        await grow(store, [("a", 1, 1)])
        assert await feed.trim(3_600_000, 10) == 0
        assert await shown(feed, 0) == [(1, 0, "a", 1)]
        assert await feed.trim(-3_600_000, 10) == 1
        assert await shown(feed, 0) == []
        assert (await feed.floor()).ticks == {0: 1}
        assert len(await store.journal("a")) == 1

    async def test_a_reader_finds_how_far_it_was_and_never_goes_back(self, feed: FeedStore) -> None:
        assert await feed.told("reader") == {}
        await feed.set_told("reader", {0: 3, 1: 5})
        await feed.set_told("reader", {0: 2, 1: 6})
        await feed.set_told("another", {0: 9})
        assert (await feed.told("reader"), await feed.told("another")) == ({0: 3, 1: 6}, {0: 9})
