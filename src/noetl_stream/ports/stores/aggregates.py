"""Stored aggregates: their states, and what became of the messages to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.protocol.rows import Json, Row

HISTORY_KEPT: Final = 10_000
"""How many entries of an aggregate's history are kept, by number."""

ANSWERS_KEPT: Final = 10_000
"""Answers to an aggregate's requests are kept for this many changes of it."""


class AggregateRow(Row, frozen=True, kw_only=True):
    """An aggregate: ``kind`` and ``key`` are what it is and where; ``position`` counts its changes.

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
    """Entries of a history to delete: those up to a number."""

    aggregate_id: str
    through: int


class RequestTrim(Row, frozen=True, gc=False):
    """Answers to an aggregate's requests to delete: to those that changed it up to a position, or did not change it."""

    execution_id: str
    through: int


class AggregateParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a tick writes of aggregates."""

    aggregates: Sequence[AggregateRow] = ()
    aggregates_gone: Sequence[AggregateKey] = ()
    history: Sequence[HistoryRow] = ()
    history_gone: Sequence[HistoryTrim] = ()
    requests_gone: Sequence[RequestTrim] = ()


class AggregateStore(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        """Those of these aggregates that exist, by id."""

    async def list_aggregates(self, kind: str, prefix: str, limit: int, after: str | None) -> list[AggregateRow]:
        """Those of a kind whose key begins with ``prefix``, by key, from the first behind ``after``."""

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        """Entries with a number below ``before``, newest first; with ``statuses``, those that have one of them."""
