"""Limits by key for people: the holders of a key, its waiters, and their places."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from noetl_stream.errors import Conflict, NotFound
from noetl_stream.model.aggregates import LIMIT, LimitSlot, LimitState, limit_id
from noetl_stream.model.aggregates.key_limits import row_key
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.json import codec
from noetl_stream.model.rights import covers
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.ports.operations.cluster import (
    AwaitedSlotDocument,
    LimitDocument,
    LimitPage,
    LimitWithSlotsDocument,
    SlotDocument,
)
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.aggregates import AggregateRow, LimitSlotRow
from noetl_stream.ports.stores.store import Store

SLOTS_SHOWN: Final = 100
"""The most shown holders of a key, and the most shown waiters."""

NAMESPACES_NAMED: Final = 20
"""The most limits with a key of one name."""

ROWS_READ: Final = 1_000
"""The rows that are read to find the namespaces of a key, and at once for a restricted caller."""

PAGES_READ: Final = 10
"""The rows that are read for one page of a restricted caller."""

HOLDERS_NAMED: Final = 10
"""The rows that are read up to a waiter."""

SLOTS_EXPLAINED: Final = 50
"""The most awaited slots of an execution whose place is shown."""


async def limit_page(store: Store, limit: int, cursor: str | None, paths: Sequence[str] = ()) -> LimitPage:
    """A page of the keys in use, without those that a caller with these ``paths`` may not see."""
    size, after = page_size(limit), read_cursor(cursor, str)
    at_once, seen = ROWS_READ if paths else size + 1, list[tuple[str, LimitState]]()
    for _ in range(PAGES_READ):
        rows = await store.list_aggregates(LIMIT, "", at_once, after)
        seen += [(row.key, state) for row in rows if _is_seen(state := _state(row), paths)]
        if len(seen) > size or len(rows) < at_once:
            break
        after = rows[-1].key
    # The cursor names the last limit that is shown: another one might have a key that the caller may not see.
    shown, following = page_of(seen[: size + 1], size, lambda one: one[0])
    return LimitPage([_document(state, paths) for _, state in shown], following)


async def limit_with_slots(
    store: Store, key: str, namespace: str | None = None, paths: Sequence[str] = ()
) -> LimitWithSlotsDocument:
    """A key in use, with its holders and waiters, as far as a caller with these ``paths`` may see it.

    Raises:
        NotFound: it is not in use.
        Conflict: it is in use in several namespaces, and none is given.
    """
    state = await _find_limit(store, key, namespace, paths)
    id = limit_id(key, state.namespace)
    holders, waiting = await asyncio.gather(
        store.limit_slots_page(id, True, SLOTS_SHOWN), store.limit_slots_page(id, False, SLOTS_SHOWN)
    )
    return document_from(
        LimitWithSlotsDocument,
        _document(state, paths),
        holders=_slots(holders, paths),
        waiting=_slots(waiting, paths),
    )


async def _find_limit(store: Store, key: str, namespace: str | None, paths: Sequence[str]) -> LimitState:
    """The limit of a key in this namespace, or in the only one that has it."""
    found = await _limits_named(store, key) if namespace is None else await _limits_of(store, key, namespace)
    seen = [state for state in found if _is_seen(state, paths)]
    if not seen:
        hint = "keys in use: `noetl-stream limit list`"
        raise NotFound(f"nobody holds key {key}, and nobody waits for it", hint=hint)
    if len(seen) > 1:
        names = ", ".join(state.namespace or "none, as they share it" for state in seen[:NAMESPACES_NAMED])
        hint = "say which: --namespace on the command line, `namespace` over HTTP; empty for that which they share"
        raise Conflict(f"key {key} is in use in {len(seen)} namespaces: {names}", hint=hint)
    return seen[0]


async def _limits_of(store: Store, key: str, namespace: str) -> list[LimitState]:
    rows = await store.aggregates([limit_id(key, namespace)])
    return [_state(row) for row in rows.values()]


async def _limits_named(store: Store, key: str) -> list[LimitState]:
    """The limits of a key in all namespaces, except in case of more than :data:`ROWS_READ` keys with this prefix."""
    shared = await _limits_of(store, key, "")
    rows = await store.list_aggregates(LIMIT, row_key(key), ROWS_READ, None)
    named = (_state(row) for row in rows)
    return shared + [state for state in named if state.key == key and state.namespace]


async def awaited_slots(
    store: Store, execution_id: str, paths: Sequence[str] = ()
) -> Mapping[str, AwaitedSlotDocument]:
    """The slots that an execution waits for, by step run, those of tasks by their own ids; ``""`` for that of the whole
    execution. A caller with these ``paths`` sees only its own among their holders.
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
            slot, document = codec.decode_as(LimitSlot, row.body), _document(_state(limit), paths)
            held_by = _slots(holders[row.limit_id], paths)
            found[slot.slot_id or slot.step_run_id] = document_from(
                AwaitedSlotDocument, document, place=one.place, holders=held_by
            )
    return found


def _state(row: AggregateRow) -> LimitState:
    return codec.decode_as(LimitState, row.state)


def _is_seen(state: LimitState, paths: Sequence[str]) -> bool:
    """Whether a caller with these paths sees the limit: they cover its namespace, or a playbook that uses it."""
    is_own = bool(state.namespace) and covers(paths, state.namespace)
    return not paths or is_own or any(covers(paths, path) for path in (state.set_by, *state.used_by))


def _document(state: LimitState, paths: Sequence[str] = ()) -> LimitDocument:
    is_own = bool(state.namespace) and covers(paths, state.namespace)
    return document_from(
        LimitDocument,
        state,
        set_at=iso(state.set_ms),
        set_by=state.set_by if covers(paths, state.set_by) else "",
        replaced=state.replaced if is_own or not paths else "",  # it names playbooks
        used_by=[path for path in state.used_by if covers(paths, path)],
        next_at=iso_or_none(state.timer_ms or None if state.queued and not state.catching_up else None),
    )


def _slots(rows: Sequence[LimitSlotRow], paths: Sequence[str]) -> list[SlotDocument]:
    """The slots whose executions a caller with these paths may see."""
    slots = (codec.decode_as(LimitSlot, row.body) for row in rows)
    return [_slot(slot) for slot in slots if covers(paths, slot.path)]


def _slot(slot: LimitSlot) -> SlotDocument:
    named = {"step": slot.step or None, "step_run_id": slot.step_run_id or None, "task": slot.task or None}
    return document_from(SlotDocument, slot, since=iso(slot.granted_ms or slot.asked_ms), **named)
