"""Slots of limits by key, as they are stored: each is a row beside the state of its limit, held or waited for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from noetl_stream.protocol.rows import Json, Row

LEFT_AT_ONCE: Final = 500
"""How many slots left behind are given back at once."""


class LimitSlotRow(Row, frozen=True, kw_only=True):
    """A slot of the limit ``limit_id``, held since ``granted_ms`` or waited for, by ``number`` in the order of asking.

    ``yields``: 1 if a newer execution may take its place. ``body`` is the whole slot
    (:class:`~noetl_stream.model.aggregates.LimitSlot`), as JSON.
    """

    written_once = frozenset({"limit_id", "holder", "number", "execution_id"})

    limit_id: str
    holder: str
    number: int
    execution_id: str
    granted_ms: int | None
    yields: int
    body: Json


class LimitSlotKey(Row, frozen=True, gc=False):
    limit_id: str
    holder: str


class WantedSlots(msgspec.Struct, frozen=True, gc=False):
    """What folding inputs of a limit must see: its slots of these ``holders``, the first that wait, up to ``waiting``,
    and the first that may have to yield, up to ``yielding``.
    """

    limit_id: str
    holders: Collection[str]
    waiting: int
    yielding: int = 0


class PlacedSlot(msgspec.Struct, frozen=True, gc=False):
    """A slot and its place in the queue, from 1; 0 if it is held."""

    row: LimitSlotRow
    place: int


class LimitStore(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def limit_slots(self, wanted: Collection[WantedSlots]) -> dict[str, list[LimitSlotRow]]:
        """The wanted slots by limit, in order, each once."""

    async def limit_slots_page(self, limit_id: str, held: bool, limit: int) -> list[LimitSlotRow]:
        """The first slots of a limit that are held, or that are waited for, in the order of asking."""

    async def limit_slots_of(self, execution_id: str, limit: int) -> list[PlacedSlot]:
        """What an execution holds and waits for, its step runs included."""

    async def limit_slots_left(self, before_ms: int, limit: int) -> list[LimitSlotRow]:
        """Slots of executions that ended before then, or do not exist. None, unless a message was lost."""
