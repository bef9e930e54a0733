"""The executions in a server's memory: loaded from the journal when first needed, dropped when ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.errors import NotReady
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionQuarantined
from noetl_stream.model.ids import partition_of
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.store import ExecutionRow, Store, StoredEntry
from noetl_stream.server.plan_cache import PlanCache

ENDED_KEPT = 20_000

JOURNALS_AT_ONCE = 64
"""How many whole journals are in memory while they are replayed: a takeover may load thousands of executions."""


@dataclass(slots=True)
class CachedExecution:
    """One execution in memory. ``at_ms`` is the time of its last fact.

    ``through``: its reported messages up to this sequence are folded, those without effect included. ``is_stub``: it is
    quarantined, and its journal was not read, which servers may have died of.
    """

    state: Execution | None
    plan: Plan | InvalidPlan | Unloaded
    started_ms: int = 0
    at_ms: int = 0
    through: int = 0
    is_stub: bool = False


class ExecutionCache:
    """Keyed by execution; dropped by partition when a lease is lost (PROTOCOL §2: memory is per epoch).

    ``loaded`` is called with every state read from the journal. ``has_stubs``: stubs were added.
    """

    def __init__(
        self, store: Store, plans: PlanCache, cursor_of: Callable[[int], int], loaded: Callable[[Execution], None]
    ) -> None:
        self._store = store
        self._plans = plans
        self._cursor_of = cursor_of
        self._loaded = loaded
        self._executions: dict[str, CachedExecution] = {}
        self._ended: LruCache[str, bool] = LruCache(ENDED_KEPT)
        self._newest: str | None = None
        self.has_stubs = False

    def get(self, execution_id: str) -> CachedExecution | None:
        return self._executions.get(execution_id)

    def state(self, execution_id: str) -> Execution | None:
        cached = self._executions.get(execution_id)
        return cached.state if cached is not None else None

    def assignment(self, execution_id: str, command_id: str) -> Assignment | None:
        """The owed command, if the execution is in memory and has it."""
        state = self.state(execution_id)
        return state.assignments.get(command_id) if state is not None else None

    def has_ended(self, execution_id: str) -> bool:
        """Whether it is known to have ended, as far as the cache remembers."""
        return execution_id in self._ended

    def is_known(self, execution_id: str) -> bool:
        """Whether it is in memory or known to have ended."""
        return execution_id in self._executions or execution_id in self._ended

    def begin(self, execution_id: str, plan: Plan | InvalidPlan | Unloaded) -> CachedExecution:
        """Adds an execution whose request is about to be folded."""
        cached = self._executions[execution_id] = CachedExecution(None, plan)
        if self._newest is not None:
            self._newest = max(self._newest, execution_id)
        return cached

    def end(self, execution_id: str) -> None:
        """Drops an execution whose end is committed."""
        self._executions.pop(execution_id, None)
        self._ended.put(execution_id, True)

    async def reload(self, execution_ids: Collection[str]) -> None:
        """Reads these executions again: their tick was refused."""
        for execution_id in execution_ids:
            self._executions.pop(execution_id, None)
        await self.load(execution_ids)

    def forget_all(self) -> None:
        self._executions.clear()
        self._ended.clear()
        self._newest = None

    def forget_partitions(self, partitions: Collection[int]) -> None:
        for execution_id in [key for key in self._executions if partition_of(key) in partitions]:
            del self._executions[execution_id]

    def __iter__(self) -> Iterator[tuple[str, CachedExecution]]:
        return iter(self._executions.items())

    def __len__(self) -> int:
        return len(self._executions)

    async def load(self, execution_ids: Collection[str]) -> None:
        """Loads those executions from Postgres that are not in memory; of quarantined ones only a stub."""
        unknown = [key for key in execution_ids if not self.is_known(key) and not self._is_new(key)]
        if not unknown:
            return
        rows = await self._store.executions(unknown)
        open_ids = []
        for execution_id, row in rows.items():
            if row.finished_ms is not None:
                self.end(execution_id)
            elif row.status == "quarantined":
                await self._add_stub(row)
            else:
                open_ids.append(execution_id)
        await self._load_journals(open_ids)

    async def load_freed(self, execution_id: str) -> None:
        """Loads a quarantined execution that is about to be resumed or cancelled."""
        cached = self._executions.get(execution_id)
        if cached is not None and cached.is_stub:
            await self._load_journals([execution_id])

    async def load_stub(self, execution_id: str) -> bool:
        """Adds what stands for an execution that cannot be loaded; returns whether there is one that has not ended."""
        rows = await self._store.executions([execution_id])
        for row in rows.values():
            if row.finished_ms is None:
                await self._add_stub(row)
        return execution_id in self._executions

    async def _add_stub(self, row: ExecutionRow) -> None:
        reason = ""
        for event in await self._store.events_named(row.execution_id, ["execution.quarantined"]):
            fact = codec.decode_fact(event.data)
            reason = fact.reason if isinstance(fact, ExecutionQuarantined) else reason
        is_set_aside = row.status == "quarantined"
        state = Execution(
            row.execution_id,
            "",
            row.digest,
            status="running",
            position=row.position,
            path=row.path,
            version=row.version,
            trace_id=row.trace_id,
            ctx=codec.decode_json(row.ctx),
            ctx_version=row.ctx_version,
            discarded=row.discarded,
            at_ms=row.updated_ms,
            paused_at_ms=row.updated_ms if is_set_aside else 0,
            quarantined=reason or "its journal was not read" if is_set_aside else "",
            rerun_of=row.rerun_of or "",
        )
        through = self._cursor_of(row.partition)
        stub = CachedExecution(state, UNLOADED, row.started_ms, row.updated_ms, through, is_stub=True)
        self._executions[row.execution_id] = stub
        self.has_stubs = True

    async def _load_journals(self, open_ids: Sequence[str]) -> None:
        for at in range(0, len(open_ids), JOURNALS_AT_ONCE):
            journals = await self._store.journals(open_ids[at : at + JOURNALS_AT_ONCE])
            for execution_id, journal in journals.items():
                cached = self._executions[execution_id] = await self._replay(execution_id, journal)
                if cached.state is not None:
                    self._loaded(cached.state)

    async def load_partitions(self, partitions: Collection[int]) -> None:
        """Loads all open executions of these partitions, after a takeover."""
        newest, live = await asyncio.gather(self._store.newest_execution(), self._store.live_executions(partitions))
        self._newest = max(self._newest or "", newest)
        await self.load(live.keys())

    def _is_new(self, execution_id: str) -> bool:
        """Whether it can have no row: the id is above all there were at the last takeover, and this owner alone has
        begun executions of its partitions since.
        """
        return self._newest is not None and execution_id > self._newest

    async def _replay(self, execution_id: str, journal: Sequence[StoredEntry]) -> CachedExecution:
        state = replay_entries(execution_id, journal)
        plan: Plan | InvalidPlan | Unloaded = UNLOADED
        if state is None or state.request is None:  # else it is loaded beside the loop
            plan = (await self._plans.load(state.digest if state is not None else "")).plan
        if isinstance(plan, InvalidPlan) and state is not None and state.status == "running":
            raise NotReady(
                f"execution {execution_id} uses a playbook that does not compile on this server: {plan.reason}",
                hint="install the tool kinds it was accepted with",
            )
        first_ms, last_ms = (journal[0].at_ms, journal[-1].at_ms) if journal else (0, 0)
        through = self._cursor_of(partition_of(execution_id))  # its messages up to there are all in the journal
        return CachedExecution(state, plan, first_ms, last_ms, through)
