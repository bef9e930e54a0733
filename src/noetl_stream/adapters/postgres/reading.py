"""What is read of journals, executions, requests and playbooks."""

from __future__ import annotations

from collections.abc import Collection

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.ports.store import (
    ExecutionRow,
    InboxItem,
    ObjectUseRow,
    PlaybookRow,
    RequestRow,
    StoredEvent,
    TimerRow,
)


class JournalReads:
    """The reading part of :class:`~noetl_stream.ports.store.Store`, where each method is described."""

    _database: Database

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        rows = await self._database.fetch("journal", execution_id=execution_id, after=after, limit=limit)
        return [StoredEvent._make(row) for row in rows]

    async def journals(self, execution_ids: Collection[str]) -> dict[str, list[StoredEvent]]:
        journals: dict[str, list[StoredEvent]] = {execution_id: [] for execution_id in execution_ids}
        for execution_id, *event in await self._database.fetch("journals", execution_ids=list(execution_ids)):
            journals[execution_id].append(StoredEvent._make(event))
        return journals

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[StoredEvent]:
        rows = await self._database.fetch("iteration_results", execution_id=execution_id, step_run_id=step_run_id)
        return [StoredEvent._make(row) for row in rows]

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        rows = await self._database.fetch("inbox", partition_ids=list(partitions), limit=limit)
        return [InboxItem._make(row) for row in rows]

    async def timers(self, execution_id: str) -> list[TimerRow]:
        rows = await self._database.fetch("timers", execution_id=execution_id)
        return [row_of(TimerRow, row) for row in rows]

    async def objects_used_elsewhere(self, execution_id: str) -> list[ObjectUseRow]:
        rows = await self._database.fetch("objects_used_elsewhere", execution_id=execution_id)
        return [row_of(ObjectUseRow, row) for row in rows]

    async def objects_kept_for(self, execution_id: str) -> list[ObjectUseRow]:
        rows = await self._database.fetch("objects_kept_for", execution_id=execution_id)
        return [row_of(ObjectUseRow, row) for row in rows]

    async def stuck(self, limit: int) -> list[str]:
        return [row[0] for row in await self._database.fetch("stuck", limit=limit)]

    async def now_ms(self) -> int:
        found: int = (await self._database.fetch("now_ms"))[0][0]
        return found

    async def live_executions(self, partitions: Collection[int]) -> dict[str, str]:
        rows = await self._database.fetch("live_executions", partition_ids=list(partitions))
        return {row[0]: row[1] for row in rows}

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        return (await self.executions([execution_id])).get(execution_id)

    async def executions(self, execution_ids: Collection[str]) -> dict[str, ExecutionRow]:
        rows = await self._database.fetch("executions", execution_ids=list(execution_ids))
        return {row[0]: row_of(ExecutionRow, row) for row in rows}

    async def request(self, execution_id: str, request_id: str) -> RequestRow | None:
        rows = await self._database.fetch("request", execution_id=execution_id, request_id=request_id)
        return row_of(RequestRow, rows[0]) if rows else None

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        execution_ids, request_ids = zip(*requests, strict=True) if requests else ((), ())
        rows = await self._database.fetch("answered", execution_ids=execution_ids, request_ids=request_ids)
        return set(map(tuple, rows))

    async def playbook(self, digest: str) -> PlaybookRow | None:
        rows = await self._database.fetch("playbook", digest=digest)
        return row_of(PlaybookRow, rows[0]) if rows else None
