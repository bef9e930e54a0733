"""Retention in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.ports.stores.retention import LivingExecution, Month, StartedExecution


class MemoryRetention:
    """:class:`~noetl_stream.ports.stores.retention.RetentionStore` of a memory store; the port documents each method.

    Journals in memory have no partitions by month.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def living_since(self, started_ms: int) -> list[LivingExecution]:
        rows = [row for _, row in sorted(self._store.tables.executions.items())]
        living = [row for row in rows if row.finished_ms is None and row.started_ms <= started_ms]
        return [
            LivingExecution(row.execution_id, row.partition, await self.journal_bytes([row.execution_id]))
            for row in living
        ]

    async def started_between(self, after: str, before: str, limit: int) -> list[StartedExecution]:
        found = [
            StartedExecution(row.execution_id, row.path, row.status, row.finished_ms)
            for execution_id, row in sorted(self._store.tables.executions.items())
            if after < execution_id < before
        ]
        return found[:limit]

    async def months(self) -> list[Month]:
        return []

    async def make_months(self, ahead: int) -> list[str]:
        return []

    async def drop_empty_months(self) -> list[str]:
        return []

    async def journal_bytes(self, execution_ids: Sequence[str]) -> int:
        journals = await self._store.journals(dict.fromkeys(execution_ids, 0))
        return sum(len(one.data) + len(one.decisions or b"") for entries in journals.values() for one in entries)
