"""Loads the originals of reruns, outside the loop (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.model.events import ExecutionRequested, Fact, RerunRefused
from noetl_stream.ports.store import Store
from noetl_stream.server.plan_cache import PlanCache

ORIGINALS_AT_ONCE: Final = 4
"""How many whole journals are in memory at once: one client command may retry a thousand executions."""


class RerunLoader:
    """Builds the inputs that start a rerun."""

    def __init__(self, store: Store, plans: PlanCache) -> None:
        self._store = store
        self._plans = plans
        self._places = asyncio.Semaphore(ORIGINALS_AT_ONCE)

    async def inputs(self, execution_id: str, request: ExecutionRequested) -> Sequence[Fact]:
        """See :func:`~noetl_stream.engine.rerun.reuse`.

        Raises:
            Unreachable: a store is unreachable.
            NotReady: the original was written by a newer version.
        """
        async with self._places:
            return await self._inputs(execution_id, request)

    async def _inputs(self, execution_id: str, request: ExecutionRequested) -> Sequence[Fact]:
        assert request.rerun is not None
        original = request.rerun.of
        row = await self._store.execution(original)
        if row is None:
            return (RerunRefused("unknown_execution", f"execution {original} does not exist"),)
        if row.finished_ms is None:
            text = f"execution {original} has not ended: its status is {row.status}"
            return (RerunRefused("not_ended", text),)
        plan = (await self._plans.load(request.digest)).plan
        if isinstance(plan, InvalidPlan):
            return (RerunRefused("invalid_playbook", plan.reason),)
        journal = await self._store.journal(original)
        if len(journal) != row.position:
            return (RerunRefused("unknown_execution", f"execution {original} is being deleted"),)
        return await asyncio.to_thread(lambda: reuse(plan, execution_id, request, JournalSummary(original, journal)))
