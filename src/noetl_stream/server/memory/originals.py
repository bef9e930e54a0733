"""Reads the inputs that a rerun reuses of its original (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.errors import VALUE_FAULTS, Unreachable, fault_text
from noetl_stream.model.events import ExecutionRequested, Fact, RerunRefused
from noetl_stream.model.ids import partition_of
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal.lost_stream import behind_events
from noetl_stream.server.memory.plan_cache import KnownPlaybook, PlanCache

AT_ONCE: Final = 4
"""How many whole journals are in memory at once: one client command may retry a thousand executions."""


class Originals:
    """Reads the journals of originals of reruns, which may belong to partitions of other servers."""

    def __init__(self, store: Store, log: EventLog, plans: PlanCache) -> None:
        self._store = store
        self._log = log
        self._plans = plans
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def inputs_of(self, execution_id: str, rerun: ExecutionRequested) -> tuple[Sequence[Fact], KnownPlaybook]:
        """Returns the inputs that start a rerun, and its playbook: see :func:`~noetl_stream.engine.rerun.reuse`.

        Raises:
            Unreachable: a store is unreachable, or Postgres has yet to catch up with EVENTS.
            NotReady: the original was written by a newer version.
        """
        async with self._turns:
            known = await self._plans.load(rerun.digest)
            return await self._reused_inputs(execution_id, rerun, known.plan), known

    async def _reused_inputs(
        self, execution_id: str, request: ExecutionRequested, plan: Plan | InvalidPlan
    ) -> Sequence[Fact]:
        assert request.rerun is not None
        original = request.rerun.of
        if await behind_events(self._log, self._store, [partition_of(original)]):
            raise Unreachable(f"Postgres has yet to catch up with what EVENTS holds of execution {original}")
        row = await self._store.execution(original)
        if row is None:
            return (RerunRefused("unknown_execution", f"execution {original} does not exist"),)
        if row.finished_ms is None:
            text = f"execution {original} has not ended: its status is {row.status}"
            return (RerunRefused("not_ended", text),)
        if isinstance(plan, InvalidPlan):
            return (RerunRefused("invalid_playbook", plan.reason),)
        journal = await self._store.journal(original)
        if len(journal) != row.position:
            return (RerunRefused("unknown_execution", f"execution {original} is being deleted"),)
        try:
            return await asyncio.to_thread(
                lambda: reuse(plan, execution_id, request, JournalSummary(original, journal))
            )
        except VALUE_FAULTS as error:
            return (RerunRefused("unreadable", f"execution {original} cannot be read: {fault_text(error)}"),)
