"""States loaded from Postgres: the last snapshot, and the journal after it. Decides which snapshots a tick writes.

A snapshot is a cache (PROTOCOL §5 *Snapshots*): an unusable one is deleted, and the whole journal is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.snapshot import (
    MAX_SNAPSHOT_BYTES,
    SNAPSHOT_FORMAT,
    SnapshotUnusable,
    digest_of_snapshot,
    encode_state,
    is_drawn,
    read_snapshot,
)
from noetl_stream.engine.state import Execution
from noetl_stream.errors import VALUE_FAULTS, NotReady, PayloadRefused, fault_text
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import ExecutionRow, SnapshotRow, Store, StoredEntry
from noetl_stream.server.memory.plan_cache import PlanCache

STATE_BYTES: Final = 5 * 1024
"""Memory of an execution in addition to values: its structs, tables, and the entry of the cache."""

EVICTED_BYTES: Final = 256
"""Memory of an evicted execution: its id and its owed commands."""

SMALL_BYTES: Final = 512
"""The size up to which facts are not examined: most have no value that is kept."""

SMALL_FACTOR: Final = 2

BRACKET_BYTES: Final = 160
"""Memory of each JSON object and list: an empty one, and its place in another."""

COMMA_BYTES: Final = 64
"""Memory of each member and element: a number or a short text, and its place."""


def decoded_bytes(data: bytes) -> int:
    """Estimates the memory of the values in this JSON, rather too much than too little."""
    if len(data) <= SMALL_BYTES:
        return SMALL_FACTOR * len(data)
    return values_bytes(data)


def values_bytes(data: bytes) -> int:
    """Estimates memory like :func:`decoded_bytes`, of JSON that is only values. Counts bytes, also those in texts."""
    brackets = data.count(b"{") + data.count(b"[")
    return 2 * len(data) + BRACKET_BYTES * brackets + COMMA_BYTES * data.count(b",")


log = logging.getLogger(__name__)

EXECUTIONS_AT_ONCE: Final = 64
ENTRIES_AT_ONCE: Final = 5_000
"""The most journal entries in memory during a replay, of all executions together."""

SNAPSHOT_EVERY: Final = 1_000
"""The number of facts after which the next snapshot is due."""

BYTES_PER_FACT: Final = 100
"""The bytes of a snapshot per fact until the next one: snapshots take no more space than the journal."""


class LoadedState(NamedTuple):
    """An execution's state as of the end of its journal.

    Attributes:
        size: The estimated bytes of memory that its values take.
        snapshot_due: The position from which a tick writes a snapshot.
    """

    state: Execution | None
    plan: Plan | InvalidPlan | Unloaded
    size: int
    snapshot_due: int


class Unloadable(NamedTuple):
    """The reason why no server can continue an execution. ``state`` is that at the end of its journal, if readable."""

    reason: str
    state: Execution | None = None


@dataclass(slots=True)
class _Base:
    """A state during its replay to the end of its journal."""

    row: ExecutionRow
    state: Execution | None = None
    size: int = 0
    snapshot_due: int = 0

    @property
    def position(self) -> int:
        return self.state.position if self.state is not None else 0

    def take(self, entries: Sequence[StoredEntry]) -> None:
        self.state = replay_entries(self.row.execution_id, entries, self.state)
        self.size += sum(decoded_bytes(entry.data) + decoded_bytes(entry.decisions or b"") for entry in entries)


class Snapshots:
    """Reads and writes snapshots of states.

    Args:
        every: The number of facts between two snapshots of a journal.

    Attributes:
        written: The snapshots given to ticks.
        thrown_away: The unusable snapshots.
    """

    def __init__(self, store: Store, plans: PlanCache, every: int = SNAPSHOT_EVERY) -> None:
        self._store = store
        self._plans = plans
        self.every = every
        self.written = 0
        self.thrown_away = 0

    async def load(self, rows: Sequence[ExecutionRow]) -> AsyncIterator[tuple[ExecutionRow, LoadedState | Unloadable]]:
        """Loads the states of living executions, in no particular order.

        Raises:
            NotReady: a newer version has written a journal, or a playbook does not compile here.
        """
        for at in range(0, len(rows), EXECUTIONS_AT_ONCE):
            pending = await self._bases(rows[at : at + EXECUTIONS_AT_ONCE])
            while pending:
                limit = ENTRIES_AT_ONCE // len(pending)
                after = {execution_id: base.position for execution_id, base in pending.items()}
                for execution_id, entries in (await self._store.journals(after, limit)).items():
                    base = pending[execution_id]
                    try:
                        base.take(entries)
                    except VALUE_FAULTS as error:
                        del pending[execution_id]
                        yield base.row, Unloadable(f"its journal cannot be read: {fault_text(error)}")
                        continue
                    if len(entries) < limit:
                        del pending[execution_id]
                        yield base.row, await self._loaded_state(base)

    def take(self, state: Execution) -> tuple[SnapshotRow | None, int]:
        """Takes a snapshot of a state, ``None`` if it cannot be stored; and the position at which the next is due."""
        try:
            body = encode_state(state)
        except PayloadRefused as error:
            log.warning("no snapshot: %s", error, extra={"execution": state.execution_id})
            return None, state.position + self.every
        if len(body) > MAX_SNAPSHOT_BYTES:
            return None, state.position + self._gap(len(body))
        self.written += 1
        row = SnapshotRow(
            execution_id=state.execution_id,
            position=state.position,
            format=SNAPSHOT_FORMAT,
            digest=digest_of_snapshot(state.execution_id, state.position, body),
            body=body,
        )
        return row, state.position + self._gap(len(body))

    def _gap(self, size: int) -> int:
        return max(self.every, size // BYTES_PER_FACT)

    async def _bases(self, rows: Sequence[ExecutionRow]) -> dict[str, _Base]:
        """Returns the base from which each state is replayed: its snapshot, or nothing."""
        bases = {row.execution_id: _Base(row, snapshot_due=self.every) for row in rows}
        long = [row.execution_id for row in rows if row.position >= self.every]
        found: Mapping[str, SnapshotRow] = await self._store.snapshots(long) if long else {}
        for execution_id, row in found.items():
            base = bases[execution_id]
            try:
                base.state = await self._read(row, base.row)
                base.size, base.snapshot_due = values_bytes(row.body), row.position + self._gap(len(row.body))
            except (SnapshotUnusable, *VALUE_FAULTS) as error:
                self.thrown_away += 1
                log.warning("a snapshot is thrown away: %s", error, extra={"execution": execution_id})
                if row.format <= SNAPSHOT_FORMAT:  # a newer server still uses other formats
                    await self._store.drop_snapshots(execution_id)
        return bases

    async def _read(self, row: SnapshotRow, execution: ExecutionRow) -> Execution:
        """Decodes a snapshot and compares a sample of them with the journal.

        Raises:
            SnapshotUnusable: the snapshot is damaged, or disagrees with the journal.
        """
        if row.position > execution.position:
            raise SnapshotUnusable(f"it is at {row.position}, and the journal ends at {execution.position}")
        state = read_snapshot(row)
        if is_drawn(row.digest) and await self._replayed_state(execution, row.position) != state:
            raise SnapshotUnusable(f"the journal gives another state at {row.position}")
        return state

    async def _replayed_state(self, execution: ExecutionRow, through: int) -> Execution | None:
        base = _Base(execution)
        while base.position < through:
            after = {execution.execution_id: base.position}
            entries = (await self._store.journals(after, ENTRIES_AT_ONCE))[execution.execution_id]
            below = [entry for entry in entries if entry.position <= through]
            if not below:
                break
            base.take(below)
        return base.state

    async def _loaded_state(self, base: _Base) -> LoadedState | Unloadable:
        state = base.state
        plan: Plan | InvalidPlan | Unloaded = UNLOADED
        if state is None or state.request is None:  # else it is loaded beside the loop
            plan = (await self._plans.load(state.digest if state is not None else "")).plan
        if isinstance(plan, InvalidPlan) and state is not None and state.status == "running":
            if not plan.diagnostics:  # unusable playbooks are not read
                words = "register the same text again and resume it, or cancel it"
                return Unloadable(f"its playbook is lost ({plan.reason}): {words}", state)
            raise NotReady(
                f"execution {state.execution_id} uses a playbook that does not compile on this server: {plan.reason}",
                hint="install the tool kinds it was accepted with",
            )
        return LoadedState(state, plan, base.size, base.snapshot_due)
