"""Conformance of the port of slots of limits, as tests to inherit. Fixtures: as of the store."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.ports.stores.aggregates import LimitSlotKey, LimitSlotRow, PlacedSlot, WantedSlots
from noetl_stream.ports.stores.store import Store
from noetl_testkit.conformance.store_rows import committed, execution_row, following

A, B = "limit-a", "limit-b"


def slot_row(number: int, limit_id: str = A, granted_ms: int | None = None, yields: int = 0) -> LimitSlotRow:
    """A slot that execution ``e<number>`` waits for, or holds."""
    return LimitSlotRow(
        limit_id=limit_id,
        holder=f"h{number}",
        number=number,
        execution_id=f"e{number}",
        granted_ms=granted_ms,
        yields=yields,
        body=b'{"n":%d}' % number,
    )


class LimitConformance:
    """What every store does with slots of limits."""

    async def test_the_slots_that_are_named_and_the_first_that_wait_are_found_by_limit(self, store: Store) -> None:
        held = slot_row(1, granted_ms=9)
        waiting = [slot_row(number) for number in range(2, 7)]
        other = slot_row(1, B)
        await committed(store, limit_slots=[held, *reversed(waiting), other])
        found = await store.limit_slots([WantedSlots(A, ["h1", "h6", "nobody"], 2), WantedSlots(B, [], 2)])
        assert found == {A: [held, *waiting[:2], waiting[4]], B: [other]}
        assert await store.limit_slots([WantedSlots(A, [], 0)]) == {}

    async def test_a_slot_among_several_kinds_of_wanted_ones_comes_once(self, store: Store) -> None:
        first, second = slot_row(1, granted_ms=9, yields=1), slot_row(2, yields=1)
        await committed(store, limit_slots=[first, second, slot_row(3)])
        assert await store.limit_slots([WantedSlots(A, ["h1", "h2"], 1, 5)]) == {A: [first, second]}
        assert await store.limit_slots([WantedSlots(A, [], 0, 1)]) == {A: [first]}

    async def test_a_slot_that_is_granted_waits_no_more_and_one_that_is_given_back_is_gone(self, store: Store) -> None:
        tick = await committed(store, limit_slots=[slot_row(1), slot_row(2)])
        granted = replace(slot_row(1), granted_ms=7, yields=1, body=b'{"granted":true}')
        await store.commit(following(tick, limit_slots=[granted], limit_slots_gone=[LimitSlotKey(A, "h2")]))
        assert await store.limit_slots([WantedSlots(A, ["h1", "h2"], 5)]) == {A: [granted]}
        assert await store.limit_slots_page(A, True, 5) == [granted]
        assert await store.limit_slots_page(A, False, 5) == []

    async def test_pages_are_in_the_order_of_asking(self, store: Store) -> None:
        rows = [slot_row(number, granted_ms=number if number < 4 else None) for number in range(1, 7)]
        await committed(store, limit_slots=rows[::-1])
        assert await store.limit_slots_page(A, True, 2) == rows[:2]
        assert await store.limit_slots_page(A, False, 2) == rows[3:5]

    async def test_an_execution_learns_its_place_in_each_queue(self, store: Store) -> None:
        mine, held = replace(slot_row(3), execution_id="me"), replace(slot_row(2, B, granted_ms=1), execution_id="me")
        await committed(store, limit_slots=[slot_row(1), slot_row(2, granted_ms=1), mine, slot_row(4), held])
        assert await store.limit_slots_of("me", 5) == [PlacedSlot(mine, 2), PlacedSlot(held, 0)]
        assert await store.limit_slots_of("me", 1) == [PlacedSlot(mine, 2)]

    async def test_slots_of_executions_that_are_over_or_not_there_are_left_behind(self, store: Store) -> None:
        running = execution_row("e1")
        over = execution_row("e2", status="completed", finished_ms=500)
        lately = execution_row("e3", status="failed", finished_ms=1500)
        rows = [slot_row(number, granted_ms=1) for number in (1, 2, 3, 4)]
        await committed(store, executions=[running, over, lately], limit_slots=rows)
        assert await store.limit_slots_left(1000, 5) == [rows[1], rows[3]]
        assert await store.limit_slots_left(1000, 1) == [rows[1]]

    async def test_an_execution_that_waits_for_a_slot_is_not_stuck(self, store: Store) -> None:
        waits = execution_row("e1", status="waiting", commands=0)
        tick = await committed(store, executions=[waits])
        assert await store.stuck(5) == ["e1"]
        await store.commit(following(tick, limit_slots=[slot_row(1)]))
        assert await store.stuck(5) == []
