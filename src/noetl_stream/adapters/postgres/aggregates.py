"""Aggregates, their histories, and slots of limits by key."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from noetl_stream.adapters.postgres.connections.database import DatabasePort
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow, LimitSlotRow, PlacedSlot, WantedSlots


class PostgresAggregates(DatabasePort):
    """:class:`~noetl_stream.ports.stores.aggregates.AggregateStore`; the port documents each method."""

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        rows = await self._database.fetch("aggregates", ids=list(ids))
        return {row["id"]: row_of(AggregateRow, row) for row in rows}

    async def list_aggregates(
        self, kind: str, prefix: str, limit: int, after: str | None, scope: Sequence[str] = ()
    ) -> list[AggregateRow]:
        return await self._rows_by_name(
            AggregateRow, "list_aggregates", kind=kind, prefix=prefix, limit=limit, after=after, scope=list(scope)
        )

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        return await self._rows_by_name(
            HistoryRow, "aggregate_history", id=id, limit=limit, before=before, statuses=list(statuses)
        )


class PostgresLimits(DatabasePort):
    """:class:`~noetl_stream.ports.stores.limit_slots.LimitStore`; the port documents each method."""

    async def limit_slots(self, wanted: Collection[WantedSlots]) -> dict[str, list[LimitSlotRow]]:
        named = [(one.limit_id, holder) for one in wanted for holder in one.holders]
        yielding = [one for one in wanted if one.yielding]
        rows = await self._database.fetch(
            "limit_slots",
            limit_ids=[limit_id for limit_id, _ in named],
            holders=[holder for _, holder in named],
            waiting_ids=[one.limit_id for one in wanted],
            waiting=[one.waiting for one in wanted],
            yielding_ids=[one.limit_id for one in yielding],
            yielding=[one.yielding for one in yielding],
        )
        found = {(row["limit_id"], row["number"]): row_of(LimitSlotRow, row) for row in rows}
        slots: dict[str, list[LimitSlotRow]] = {}
        for (limit_id, _), slot in sorted(found.items()):
            slots.setdefault(limit_id, []).append(slot)
        return slots

    async def limit_slots_page(self, limit_id: str, held: bool, limit: int) -> list[LimitSlotRow]:
        return await self._rows_by_name(LimitSlotRow, "limit_slots_page", id=limit_id, held=held, limit=limit)

    async def limit_slots_of(self, execution_id: str, limit: int) -> list[PlacedSlot]:
        rows = await self._database.fetch("limit_slots_of", execution_id=execution_id, limit=limit)
        return [PlacedSlot(row_of(LimitSlotRow, row), row["place"]) for row in rows]

    async def limit_slots_left(self, before_ms: int, limit: int) -> list[LimitSlotRow]:
        return await self._rows_by_name(LimitSlotRow, "limit_slots_left", before_ms=before_ms, limit=limit)
