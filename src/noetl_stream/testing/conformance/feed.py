"""Conformance of :class:`~noetl_stream.ports.store.FeedStore`, as tests to inherit.

A test class inherits :class:`FeedConformance`; the module or its ``conftest.py`` provides two fixtures:

``feed``
    An empty feed.
``store``
    The store whose ticks it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from noetl_stream.model import codec
from noetl_stream.ports.store import FedEvent, FeedRow, FeedStore, Store, Tick
from noetl_stream.testing.conformance.store_rows import event_row, execution_row, following, taken, tick_of

Shown = list[tuple[int, int, str, int | None]]


def tick_with_events(tick: Tick, number: int, entries: Sequence[tuple[str, int, int]]) -> Tick:
    """``tick`` with these journal segments, their events and executions."""
    partition = tick.partitions[0]
    events = [
        event_row(execution_id, position)
        for execution_id, first, last in entries
        for position in range(first, last + 1)
    ]
    executions = [execution_row(execution_id, partition=partition.id) for execution_id, _, _ in entries]
    row = FeedRow(partition=partition.id, tick=number, entries=codec.encode(entries))
    return replace(tick, events=events, executions=executions, feed=[row])


def shown(events: Sequence[FedEvent]) -> Shown:
    """Tick, number in it, execution and position of each event."""
    return [(one.tick, one.number, one.execution_id, one.event.position if one.event else None) for one in events]


class FeedConformance:
    """All events of all ticks, in the order of ticks."""

    async def test_an_empty_feed_is_at_the_ticks_of_its_partitions(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        assert (await feed.now())[lease.id] == lease.tick
        assert await feed.read(await feed.now(), 10) == []
        assert await feed.floor() == {}

    async def test_events_come_by_tick_execution_and_position(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        first = tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("b", 1, 2), ("a", 1, 1)])
        await store.commit(first)
        await store.commit(tick_with_events(following(first), lease.tick + 2, [("a", 2, 3)]))
        expected: Shown = [
            (lease.tick + 1, 0, "b", 1),
            (lease.tick + 1, 1, "b", 2),
            (lease.tick + 1, 2, "a", 1),
            (lease.tick + 2, 0, "a", 2),
            (lease.tick + 2, 1, "a", 3),
        ]
        assert shown(await feed.read({lease.id: lease.tick}, 10)) == expected
        assert shown(await feed.read({lease.id: lease.tick + 1}, 10)) == expected[3:]
        assert shown(await feed.read({lease.id: lease.tick}, 1)) == expected[:3]
        assert await feed.read(await feed.now(), 10) == []

    async def test_an_event_has_what_is_known_of_its_execution(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("a", 1, 1)]))
        row = await store.execution("a")
        (event,) = await feed.read({lease.id: lease.tick}, 10)
        assert row is not None
        assert (event.path, event.trace_id, event.digest) == (row.path, row.trace_id, row.digest)
        assert [event.event] == await store.journal("a")

    async def test_a_tick_without_events_is_passed_over(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        first = tick_of("one", [lease])
        await store.commit(first)
        await store.commit(tick_with_events(following(first), lease.tick + 2, [("a", 1, 1)]))
        assert shown(await feed.read({lease.id: lease.tick}, 1)) == [(lease.tick + 2, 0, "a", 1)]

    async def test_a_tick_whose_executions_are_deleted_still_counts(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        first = tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("a", 1, 1)])
        ended = [replace(row, finished_ms=1) for row in first.executions]
        await store.commit(replace(first, executions=ended))
        assert await store.delete_execution("a")
        assert shown(await feed.read({lease.id: lease.tick}, 10)) == [(lease.tick + 1, 0, "", None)]

    async def test_only_some_is_forgotten_at_once(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("a", 1, 1)])
        for number in range(2, 5):
            await store.commit(tick)
            tick = tick_with_events(following(tick), lease.tick + number, [("a", number, number)])
        assert [await feed.trim(-3_600_000, 2) for _ in range(3)] == [2, 1, 0]
        assert await feed.floor() == {lease.id: lease.tick + 3}

    async def test_deleting_part_of_a_tick_leaves_its_numbers_unchanged(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        first = tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("a", 1, 2), ("b", 1, 2)])
        ended = [replace(row, finished_ms=1) for row in first.executions]
        await store.commit(replace(first, executions=ended))
        assert await store.delete_execution("a")
        assert shown(await feed.read({lease.id: lease.tick}, 10)) == [
            (lease.tick + 1, 2, "b", 1),
            (lease.tick + 1, 3, "b", 2),
        ]

    async def test_old_ticks_are_trimmed_and_the_floor_moves(self, feed: FeedStore, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_with_events(tick_of("one", [lease]), lease.tick + 1, [("a", 1, 1)]))
        assert await feed.trim(3_600_000, 10) == 0
        assert len(await feed.read({lease.id: lease.tick}, 10)) == 1
        assert await feed.trim(-3_600_000, 10) == 1
        assert await feed.read({lease.id: lease.tick}, 10) == []
        assert await feed.floor() == {lease.id: lease.tick + 1}
        assert len(await store.journal("a")) == 1
