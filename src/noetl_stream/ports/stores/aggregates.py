"""Stored aggregates: their states, their histories and answers, and the slots of limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.protocol.rows import Json, Row

HISTORY_KEPT: Final = 10_000
"""The number of newest entries of an aggregate's history that are kept."""

ANSWERS_KEPT: Final = 10_000
"""The number of an aggregate's changes for which answers to its requests are kept."""


class AggregateRow(Row, frozen=True, kw_only=True):
    """An aggregate with its ``kind`` and ``key``; ``position`` counts its changes.

    ``state`` is that of its kind (``engine/aggregates``), as JSON.
    """

    written_once = frozenset({"id", "partition", "kind", "key"})

    id: str
    partition: int
    kind: str
    key: str
    position: int
    state: Json
    updated_ms: int


class HistoryRow(Row, frozen=True, kw_only=True):
    """An entry of an aggregate's history; it replaces one of the same number. ``body`` is JSON."""

    written_once = frozenset({"aggregate_id", "number"})

    aggregate_id: str
    number: int
    at_ms: int
    status: str
    execution_id: str | None = None
    body: Json


class AggregateKey(Row, frozen=True, gc=False):
    id: str


class HistoryTrim(Row, frozen=True, gc=False):
    """The entries of a history to delete: those up to a number."""

    aggregate_id: str
    through: int


class RequestTrim(Row, frozen=True, gc=False):
    """The answers to an aggregate's requests to delete: those that changed it up to a position, or did not."""

    execution_id: str
    through: int


class AggregateParts(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of aggregates in a tick."""

    aggregates: Sequence[AggregateRow] = ()
    aggregates_gone: Sequence[AggregateKey] = ()
    history: Sequence[HistoryRow] = ()
    history_gone: Sequence[HistoryTrim] = ()
    requests_gone: Sequence[RequestTrim] = ()


class AggregateStore(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        """The existing ones of these aggregates, by id."""

    async def list_aggregates(
        self, kind: str, prefix: str, limit: int, after: str | None, scope: Sequence[str] = ()
    ) -> list[AggregateRow]:
        """The aggregates of a kind whose key begins with ``prefix``, by key, from the first after ``after``.

        Args:
            scope: The paths at or below which keys must be; empty for all.
        """

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        """Entries with a number below ``before``, newest first; with ``statuses``, those that have one of them."""


LEFT_AT_ONCE: Final = 500
"""The most abandoned slots that are returned at once."""


class LimitSlotRow(Row, frozen=True, kw_only=True):
    """A slot of the limit ``limit_id``, held since ``granted_ms`` or waiting, by ``number`` in the order of requests.

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
    """The slots that folding inputs of a limit needs: those of these ``holders``, the first waiting ones, up to
    ``waiting``, and the first that may be replaced, up to ``yielding``.
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
        """The first held or first waiting slots of a limit, in the order of requests."""

    async def limit_slots_of(self, execution_id: str, limit: int) -> list[PlacedSlot]:
        """The slots that an execution holds or waits for, including those of its step runs."""

    async def limit_slots_left(self, before_ms: int, limit: int) -> list[LimitSlotRow]:
        """Slots of executions that ended before this time or do not exist. None, unless a message was lost."""
