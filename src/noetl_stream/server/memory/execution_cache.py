"""The executions in a server's memory: loaded on first use, evicted when idle longest, dropped when ended.

Eviction changes no decision: it happens between ticks, when everything folded is committed, and an execution is loaded
before an input of it is folded. The data that a server needs of every living execution stays in memory: its timers
(:class:`~noetl_stream.server.inputs.waits.Waits`) and its owed commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.snapshot import encode_state
from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.errors import PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.events import ExecutionQuarantined
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import ExecutionRow, SnapshotRow, Store
from noetl_stream.server.memory.snapshots import (
    EVICTED_BYTES,
    STATE_BYTES,
    LoadedState,
    Snapshots,
    Unloadable,
    values_bytes,
)

ENDED_KEPT = 20_000

NO_LABELS: Final[Mapping[str, Any]] = MappingProxyType({})

LOADED_AT_ONCE: Final = 256
"""The number of executions that a takeover or a turn loads before memory is trimmed."""

MEASURED_FROM: Final = 256 * 1024
"""The bytes above which a state that has doubled is measured before others are evicted for it."""


class OwedCommand(NamedTuple):
    """A command whose end an execution is waiting for."""

    execution_id: str
    command_id: str
    issue: int


@dataclass(slots=True)
class CachedExecution:
    """One execution in memory. ``at_ms`` is the time of its last fact.

    ``through``: reports up to this sequence are folded, including those without effect. ``values`` are the estimated
    bytes of its values in memory: the ``measured`` ones, and the growth of its journal since. At the position
    ``snapshot_due`` a tick writes a snapshot. ``is_stub``: the execution is quarantined and its journal was not read.
    ``unloadable``: the reason why its journal cannot be read.
    """

    state: Execution | None
    plan: Plan | InvalidPlan | Unloaded
    started_ms: int = 0
    at_ms: int = 0
    through: int = 0
    values: int = 0
    measured: int = 0
    snapshot_due: int = 0
    is_stub: bool = False
    unloadable: str = ""

    @property
    def labels(self) -> Mapping[str, Any]:
        """The labels that the execution started with, by default those of its playbook; none if that cannot be used."""
        state, plan = self.state, self.plan
        if state is not None and state.labels is not None:
            return state.labels
        return plan.labels if isinstance(plan, Plan) else NO_LABELS

    @property
    def size(self) -> int:
        return STATE_BYTES + self.values


class ExecutionCache:
    """Caches executions by id; drops those of a partition when its lease is lost (PROTOCOL §2: memory is per epoch).

    Args:
        loaded: Called with every state that is loaded.
        max_bytes: The bound above which :meth:`trim` evicts.

    Attributes:
        size: Estimated bytes of all that is in memory; at most ``max_bytes`` after :meth:`trim`.
        evictions: The number of evictions so far.
        has_stubs: Whether there were stubs of quarantined executions.
        unloadable: The reasons why executions cannot be loaded, until they are quarantined for it.
    """

    def __init__(
        self,
        store: Store,
        snapshots: Snapshots,
        cursor_of: Callable[[int], int],
        loaded: Callable[[Execution], None],
        max_bytes: int,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._cursor_of = cursor_of
        self._loaded = loaded
        self.max_bytes = max_bytes
        self._executions: dict[str, CachedExecution] = {}
        self._evicted: dict[str, tuple[OwedCommand, ...]] = {}
        self._ended: LruCache[str, bool] = LruCache(ENDED_KEPT)
        self._newest: str | None = None
        self.size = 0
        self.evictions = 0
        self.has_stubs = False
        self.unloadable: dict[str, str] = {}

    def get(self, execution_id: str) -> CachedExecution | None:
        return self._executions.get(execution_id)

    def state(self, execution_id: str) -> Execution | None:
        cached = self._executions.get(execution_id)
        return cached.state if cached is not None else None

    def assignment(self, execution_id: str, command_id: str) -> Assignment | None:
        """Returns the assignment of an owed command, if the execution is in memory and owes it."""
        state = self.state(execution_id)
        return state.assignments.get(command_id) if state is not None else None

    def owed_commands(self) -> Iterator[OwedCommand]:
        """Yields the commands owed to all executions, in memory or not."""
        for cached in self._executions.values():
            if cached.state is not None:
                yield from _owed_commands_of(cached.state)
        for commands in self._evicted.values():
            yield from commands

    def has_ended(self, execution_id: str) -> bool:
        """Returns whether the execution has ended, as far as the cache remembers."""
        return execution_id in self._ended

    def is_known(self, execution_id: str) -> bool:
        """Returns whether the execution is in memory or known to have ended."""
        return execution_id in self._executions or execution_id in self._ended

    def is_evicted(self, execution_id: str) -> bool:
        """Returns whether the execution lives and is not in memory: it must be loaded before an input is folded."""
        return execution_id in self._evicted

    @property
    def evicted_count(self) -> int:
        """The number of living executions that are not in memory."""
        return len(self._evicted)

    def begin(self, execution_id: str, plan: Plan | InvalidPlan | Unloaded) -> CachedExecution:
        """Adds an execution whose start is about to be folded."""
        cached = CachedExecution(None, plan, snapshot_due=self._snapshots.every)
        self._put(execution_id, cached)
        if self._newest is not None:
            self._newest = max(self._newest, execution_id)
        return cached

    def end(self, execution_id: str) -> None:
        """Drops an execution whose end is committed."""
        self._drop(execution_id)
        self._ended.put(execution_id, True)

    def grow(self, execution_id: str, size: int) -> None:
        """Counts the growth of a journal in a tick, in bytes of memory."""
        cached = self._executions.get(execution_id)
        if cached is not None:
            cached.values += size
            self.size += size

    def snapshots_due(self, states: Iterable[Execution]) -> list[SnapshotRow]:
        """Returns the snapshots that are due for these states and written with their tick."""
        rows = []
        for state in states:
            cached = self._executions.get(state.execution_id)
            if cached is not None and state.position >= cached.snapshot_due > 0 and not state.ended:
                row, cached.snapshot_due = self._snapshots.take(state)
                if row is not None:
                    rows.append(row)
                    self._set_measured(cached, values_bytes(row.body))
        return rows

    def trim(self) -> None:
        """Evicts executions, least recent fact first, until nine tenths of the bound are left.

        Must be called between ticks. An execution that awaits a value stays: the value is being loaded.
        """
        if self.size <= self.max_bytes:
            return
        for cached in self._executions.values():
            if cached.state is not None and cached.values > max(2 * cached.measured, MEASURED_FROM):
                self._set_measured(cached, _size_of(cached.state, cached.values))
        most = self.max_bytes * 9 // 10
        for execution_id, cached in sorted(self._executions.items(), key=lambda item: item[1].at_ms):
            state = cached.state
            if state is None or state.looks_into is not None:
                continue
            if self.size <= most:
                return
            self._drop(execution_id)
            self._evicted[execution_id] = tuple(_owed_commands_of(state))
            self.size += EVICTED_BYTES
            self.evictions += 1

    async def reload(self, execution_ids: Sequence[str]) -> None:
        """Loads these executions again after their tick was refused."""
        for execution_id in execution_ids:
            self._drop(execution_id)
        await self.load(execution_ids)

    def forget_all(self) -> None:
        self._executions.clear()
        self._evicted.clear()
        self._ended.clear()
        self.unloadable.clear()
        self._newest = None
        self.size = 0

    def forget_partitions(self, partitions: Collection[int]) -> None:
        for known in (self._executions, self._evicted):
            for execution_id in [key for key in known if partition_of(key) in partitions]:
                self._drop(execution_id)

    def __iter__(self) -> Iterator[tuple[str, CachedExecution]]:
        return iter(self._executions.items())

    def __len__(self) -> int:
        return len(self._executions)

    async def load(self, execution_ids: Iterable[str]) -> None:
        """Loads those executions from Postgres that are not in memory, in order; a quarantined one only as a stub."""
        unknown = [key for key in dict.fromkeys(execution_ids) if not self.is_known(key) and not self._is_new(key)]
        if not unknown:
            return
        rows = await self._store.executions(unknown)
        for execution_id, row in rows.items():
            if row.finished_ms is not None:
                self.end(execution_id)
        living = [row for row in rows.values() if row.finished_ms is None]
        for row in living:
            if row.status == "quarantined":
                await self._add_stub(row)
        await self._load([row for row in living if row.status != "quarantined"])

    async def load_freed(self, execution_id: str) -> None:
        """Loads a quarantined execution that is about to be resumed or cancelled."""
        cached = self._executions.get(execution_id)
        if cached is not None and cached.is_stub:
            await self._load(list((await self._store.executions([execution_id])).values()))

    async def load_stub(self, execution_id: str) -> bool:
        """Adds a stub for an execution that cannot be loaded; returns whether an unfinished one exists."""
        for row in (await self._store.executions([execution_id])).values():
            if row.finished_ms is None:
                await self._add_stub(row)
        return execution_id in self._executions

    async def load_partitions(self, partitions: Collection[int]) -> None:
        """Loads the executions of these partitions that are owed a command or await a value, after a takeover. The
        others are loaded for their next input, as if they had been evicted.
        """
        newest, live, resting = await asyncio.gather(
            self._store.newest_execution(),
            self._store.live_executions(partitions),
            self._store.resting_executions(partitions),
        )
        self._newest = max(self._newest or "", newest)
        known = self._executions.keys() | self._evicted.keys()
        for execution_id in (key for key in live if key in resting and key not in known):
            self._evicted[execution_id] = ()
            self.size += EVICTED_BYTES
        living = [key for key in live if key not in self._evicted]
        for at in range(0, len(living), LOADED_AT_ONCE):
            await self.load(living[at : at + LOADED_AT_ONCE])
            self.trim()

    async def look_at(self, execution_id: str) -> CachedExecution | None:
        """Returns the execution for reading only: an evicted one as it was committed, without keeping it in memory;
        ``None`` for an evicted one that is quarantined.
        """
        found: list[CachedExecution] = []
        if execution_id in self._evicted:
            rows = await self._store.executions([execution_id])
            living = [row for row in rows.values() if row.finished_ms is None and row.status != "quarantined"]
            found = [
                self._cached_execution(row, loaded)
                async for row, loaded in self._snapshots.load(living)
                if not isinstance(loaded, Unloadable)
            ]
        return self._executions.get(execution_id) or (found[0] if found else None)

    def _is_new(self, execution_id: str) -> bool:
        """Returns whether the execution cannot have a row: its id is above all that existed at the last takeover, and
        only this owner has begun executions of its partitions since.
        """
        return self._newest is not None and execution_id > self._newest

    async def _load(self, rows: Sequence[ExecutionRow]) -> None:
        async for row, loaded in self._snapshots.load(rows):
            if isinstance(loaded, Unloadable):
                await self._set_aside(row, loaded)
                continue
            self._drop(row.execution_id)
            self._put(row.execution_id, self._cached_execution(row, loaded))
            if loaded.state is not None:
                self._loaded(loaded.state)

    async def _set_aside(self, row: ExecutionRow, found: Unloadable) -> None:
        """Adds a stub for an execution that cannot be loaded; the server quarantines it in its next turn. One that is
        quarantined already can be cancelled, which notifies its caller.
        """
        if row.status != "quarantined":
            self.unloadable[row.execution_id] = found.reason
            await self._add_stub(row, found.reason)
        else:
            await self._add_stub(row)
            stub = self._executions[row.execution_id]
            stub.unloadable, stub.state = found.reason, found.state or stub.state

    async def _add_stub(self, row: ExecutionRow, quarantined: str = "") -> None:
        state, through = await stub_of(row, self._store), self._cursor_of(row.partition)
        if quarantined:
            state = replace(state, quarantined=quarantined, paused_at_ms=row.updated_ms)
        self._drop(row.execution_id)
        stub = CachedExecution(state, UNLOADED, row.started_ms, row.updated_ms, through, is_stub=True)
        self._put(row.execution_id, stub)
        self.has_stubs = True

    def _cached_execution(self, row: ExecutionRow, loaded: LoadedState) -> CachedExecution:
        return CachedExecution(
            loaded.state,
            loaded.plan,
            row.started_ms,
            row.updated_ms,
            through=self._cursor_of(row.partition),  # its messages up to there are all in the journal
            values=loaded.size,
            snapshot_due=loaded.snapshot_due,
        )

    def _put(self, execution_id: str, cached: CachedExecution) -> None:
        self._executions[execution_id] = cached
        self.size += cached.size

    def _drop(self, execution_id: str) -> None:
        if self._evicted.pop(execution_id, None) is not None:
            self.size -= EVICTED_BYTES
        cached = self._executions.pop(execution_id, None)
        if cached is not None:
            self.size -= cached.size

    def _set_measured(self, cached: CachedExecution, values: int) -> None:
        self.size += values - cached.values
        cached.values = cached.measured = values


def _size_of(state: Execution, otherwise: int) -> int:
    try:
        return values_bytes(encode_state(state))
    except PayloadRefused:
        return otherwise


def _owed_commands_of(state: Execution) -> Iterator[OwedCommand]:
    for assignment in state.assignments.values():
        yield OwedCommand(state.execution_id, assignment.command_id, assignment.issue)


async def stub_of(row: ExecutionRow, store: Store) -> Execution:
    """Returns a state made from the execution's row alone. It owes and awaits nothing."""
    is_set_aside = row.status == "quarantined"
    return Execution(
        row.execution_id,
        "",
        row.digest,
        status="running",
        position=row.position,
        path=row.path,
        version=row.version,
        trace_id=row.trace_id,
        ctx=_decoded(row.ctx, {}),
        ctx_version=row.ctx_version,
        discarded=row.discarded,
        at_ms=row.updated_ms,
        paused_at_ms=row.updated_ms if is_set_aside else 0,
        quarantined=await _reason(row.execution_id, store) if is_set_aside else "",
        rerun_of=row.rerun_of or "",
        stored_bytes=row.stored_bytes,
        key=row.key,
        labels=_decoded(row.labels, {}),
        inputs=_decoded(row.inputs, {}),
        failed_step=row.failed_step,
        workers=tuple(_decoded(row.workers, [])),
        due=row.due,
    )


def _decoded(column: bytes, otherwise: Any) -> Any:
    try:
        return codec.decode_json(column)
    except PayloadRefused:  # the request itself may be the reason why its journal is not read
        return otherwise


async def _reason(execution_id: str, store: Store) -> str:
    reason = "its journal was not read"
    for event in await store.events_named(execution_id, ["execution.quarantined"]):
        fact = codec.decode_fact(event.data)
        reason = fact.reason if isinstance(fact, ExecutionQuarantined) else reason
    return reason
