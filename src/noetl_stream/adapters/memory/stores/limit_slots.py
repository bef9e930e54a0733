"""Slots of limits by key in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from noetl_stream.model.aggregates import LimitFact, is_limit
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.aggregates import LimitSlotRow, PlacedSlot, WantedSlots
from noetl_stream.ports.stores.store import ExecutionRow, InboxRow, Tick


@dataclass
class LimitTables:
    """Tables of slots, by limit and holder."""

    rows: dict[tuple[str, str], LimitSlotRow] = field(default_factory=dict)

    def write(self, tick: Tick) -> None:
        """Writes the slots of a tick."""
        for row in tick.limit_slots:
            key = (row.limit_id, row.holder)
            before = self.rows.get(key)
            self.rows[key] = row if before is None else row.over(before)
        for gone in tick.limit_slots_gone:
            self.rows.pop((gone.limit_id, gone.holder), None)

    def askers(self, inbox: Iterable[InboxRow]) -> set[str]:
        """The executions that hold or await slots, and those whose messages to limits are not folded yet."""
        facts = (codec.decode_aggregate_message(row.body).fact for row in inbox if is_limit(row.execution_id))
        asked = {fact.execution_id for fact in facts if isinstance(fact, LimitFact)}
        return asked | {row.execution_id for row in self.rows.values()}


class MemoryLimits(ABC):
    """:class:`~noetl_stream.ports.stores.aggregates.LimitStore`, over :attr:`limit_tables`; the port documents each
    method.
    """

    @property
    @abstractmethod
    def limit_tables(self) -> tuple[LimitTables, Mapping[str, ExecutionRow]]:
        """The tables of slots and of executions."""

    async def limit_slots(self, wanted: Collection[WantedSlots]) -> dict[str, list[LimitSlotRow]]:
        slots = {}
        for one in wanted:
            rows = self._slots_of(one.limit_id)
            chosen = [row for row in rows if row.holder in one.holders]
            chosen += islice((row for row in rows if row.granted_ms is None), one.waiting)
            chosen += islice((row for row in rows if row.yields), one.yielding)
            if chosen:
                slots[one.limit_id] = _in_order({row.number: row for row in chosen}.values())
        return slots

    async def limit_slots_page(self, limit_id: str, held: bool, limit: int) -> list[LimitSlotRow]:
        return [row for row in self._slots_of(limit_id) if (row.granted_ms is not None) == held][:limit]

    async def limit_slots_of(self, execution_id: str, limit: int) -> list[PlacedSlot]:
        found = [row for row in self.limit_tables[0].rows.values() if row.execution_id == execution_id]
        found.sort(key=lambda row: (row.limit_id, row.number))
        return [PlacedSlot(row, self._place(row)) for row in found[:limit]]

    async def limit_slots_left(self, before_ms: int, limit: int) -> list[LimitSlotRow]:
        tables, executions = self.limit_tables

        def is_left(row: LimitSlotRow) -> bool:
            execution = executions.get(row.execution_id)
            if execution is None:
                return True
            return execution.finished_ms is not None and execution.finished_ms < before_ms

        found = [row for row in tables.rows.values() if is_left(row)]
        return sorted(found, key=lambda row: (row.limit_id, row.number))[:limit]

    def _slots_of(self, limit_id: str) -> list[LimitSlotRow]:
        return _in_order(row for row in self.limit_tables[0].rows.values() if row.limit_id == limit_id)

    def _place(self, slot: LimitSlotRow) -> int:
        if slot.granted_ms is not None:
            return 0
        return sum(row.granted_ms is None and row.number <= slot.number for row in self._slots_of(slot.limit_id))


def _in_order(rows: Iterable[LimitSlotRow]) -> list[LimitSlotRow]:
    return sorted(rows, key=attrgetter("number"))
