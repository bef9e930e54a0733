"""Limits by key, as people read them: who holds a key, who waits for it, and at which place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from noetl_stream.errors import NotFound
from noetl_stream.model.aggregates import LIMIT, LimitSlot, LimitState, aggregate_id
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.json import codec
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.ports.operations.documents import document_from
from noetl_stream.ports.operations.limits import (
    AwaitedSlotDocument,
    LimitDocument,
    LimitPage,
    LimitWithSlotsDocument,
    RateDocument,
    SlotDocument,
)
from noetl_stream.ports.stores.aggregates import AggregateRow, LimitSlotRow
from noetl_stream.ports.stores.store import Store

SLOTS_SHOWN: Final = 100
"""Of those that hold a key, and of those that wait."""

HOLDERS_NAMED: Final = 10
"""To who waits for a key."""

SLOTS_EXPLAINED: Final = 50
"""How many awaited slots of an execution have a known place."""


async def limit_page(store: Store, limit: int, cursor: str | None) -> LimitPage:
    """A page of the keys in use."""
    size = page_size(limit)
    found = await store.list_aggregates(LIMIT, "", size + 1, read_cursor(cursor, str))
    rows, following = page_of(found, size, lambda row: row.key)
    return LimitPage([_document(row) for row in rows], following)


async def limit_with_slots(store: Store, key: str) -> LimitWithSlotsDocument:
    """A key in use, with who holds it and who waits.

    Raises:
        NotFound: it is not in use.
    """
    id = aggregate_id("limit", key)
    rows, holders, waiting = await asyncio.gather(
        store.aggregates([id]),
        store.limit_slots_page(id, True, SLOTS_SHOWN),
        store.limit_slots_page(id, False, SLOTS_SHOWN),
    )
    row = rows.get(id)
    if row is None:
        hint = "keys in use: `noetl-stream limit list`"
        raise NotFound(f"nobody holds key {key}, and nobody waits for it", hint=hint)
    return document_from(
        LimitWithSlotsDocument, _document(row), holders=list(map(_slot, holders)), waiting=list(map(_slot, waiting))
    )


async def awaited_slots(store: Store, execution_id: str) -> Mapping[str, AwaitedSlotDocument]:
    """The slots that an execution waits for, by step run, those of tasks by their own ids; ``""`` for that of the
    whole execution.
    """
    placed = [one for one in await store.limit_slots_of(execution_id, SLOTS_EXPLAINED) if one.place]
    ids = {one.row.limit_id for one in placed}
    if not ids:
        return {}
    limits = await store.aggregates(ids)
    pages = await asyncio.gather(*(store.limit_slots_page(id, True, HOLDERS_NAMED) for id in limits))
    holders = dict(zip(limits, pages, strict=True))
    found = {}
    for one in placed:
        row = one.row
        limit = limits.get(row.limit_id)
        if limit is not None:
            slot, document = codec.decode_as(LimitSlot, row.body), _document(limit)
            held_by = [_slot(holder) for holder in holders[row.limit_id]]
            found[slot.slot_id or slot.step_run_id] = document_from(
                AwaitedSlotDocument, document, place=one.place, holders=held_by
            )
    return found


def _document(row: AggregateRow) -> LimitDocument:
    state = codec.decode_as(LimitState, row.state)
    rate = state.rate
    return document_from(
        LimitDocument,
        state,
        rate=None if rate is None else RateDocument(rate.per_s, rate.burst),
        set_at=iso(state.set_ms),
        next_at=iso_or_none(state.timer_ms or None if state.queued and not state.catching_up else None),
    )


def _slot(row: LimitSlotRow) -> SlotDocument:
    slot = codec.decode_as(LimitSlot, row.body)
    named = {"step": slot.step or None, "step_run_id": slot.step_run_id or None, "task": slot.task or None}
    return document_from(SlotDocument, slot, since=iso(slot.granted_ms or slot.asked_ms), **named)
