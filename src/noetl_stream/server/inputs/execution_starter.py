"""Starts executions: finds the playbook of a request, and all that it needs to run."""

from __future__ import annotations

from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import PlaybookRow
from noetl_stream.server.answers.credential_values import with_credentials
from noetl_stream.server.answers.grants import check_grants
from noetl_stream.server.answers.schemas import with_schemas
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.memory.plan_cache import KnownPlaybook, check_path
from noetl_stream.server.ticks.tick import PendingTick


class ExecutionStarter:
    """Adds requested executions to the memory of the server."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._executions = parts.executions

    async def begin(self, execution_id: str, request: ExecutionRequested) -> PlaybookRow | None:
        """Adds a requested execution with its playbook; returns the playbook to store, if any."""
        known = await self._parts.plans.load_if_quick(request.digest)
        if known is None:
            self._executions.begin(execution_id, UNLOADED)
            return None
        self._executions.begin(execution_id, await self._runnable_plan(known.plan, request))
        return known.row

    async def take_playbook(self, execution_id: str, recorded: RecordedFact, tick: PendingTick) -> None:
        """Gives an execution that was parked until its playbook is loaded that playbook."""
        cached, known = self._executions.get(execution_id), recorded.value
        if cached is None or not isinstance(cached.plan, Unloaded) or not isinstance(known, KnownPlaybook):
            return
        if cached.state is not None and cached.state.request is not None:
            cached.plan = await self._runnable_plan(known.plan, cached.state.request)
            if known.row is not None:
                tick.playbooks[known.row.digest] = known.row

    async def _runnable_plan(self, known: Plan | InvalidPlan, request: ExecutionRequested) -> Plan | InvalidPlan:
        """Returns the playbook of a request with everything it needs to run; or why it may not run."""
        ports = self._parts.ports
        grants = ports.grants.current() if ports.grants is not None else None
        caller = await self._caller_of(request) if grants is not None else None
        plan = check_grants(check_path(known), grants, caller)
        if request.rerun is None:  # which has the schemas of its original
            plan = await with_schemas(plan, ports.catalog, grants)
        return self._parts.formats.with_format(await with_credentials(plan, ports.secrets, grants))

    async def _caller_of(self, request: ExecutionRequested) -> str | None:
        """Returns the path of the calling playbook; ``None`` if the execution was not called."""
        if request.parent is None:
            return None
        row = await self._parts.ports.store.execution(request.parent.execution_id)
        return row.path if row is not None else ""
