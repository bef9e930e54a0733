"""The states of an execution over its journal (PROTOCOL §5 *Snapshots*), and the history of its ``ctx``."""

from __future__ import annotations

from collections import deque
from typing import Final

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SnapshotUnusable, read_snapshot
from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CtxPatched, ExecutionRequested, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.executions import CtxChangeDocument
from noetl_stream.ports.stores.store import Store, StoredEvent
from noetl_stream.storage.journal import EVENTS_AT_ONCE, pieces


async def state_at(store: Store, execution_id: str, position: int, most: int | None = None) -> Execution | None:
    """The state after the event at ``position``, or after the last one below it; ``None`` before the first.

    It is replayed from the nearest usable snapshot below.

    Args:
        most: The most events to replay; beyond, the answer is ``None``.

    Raises:
        NotReady: a newer version has written the journal.
        Unreachable: the database is away.
    """
    state = await _nearest_snapshot(store, execution_id, position)
    after = state.position if state is not None else 0
    if most is not None and position - after > most:
        return None
    while after < position:
        piece = await store.journal(execution_id, after, min(EVENTS_AT_ONCE, position - after))
        if not piece:
            break
        state, after = replay(execution_id, piece, state), piece[-1].position
    return state


async def _nearest_snapshot(store: Store, execution_id: str, position: int) -> Execution | None:
    while row := (await store.snapshots([execution_id], position)).get(execution_id):
        try:
            return read_snapshot(row)
        except SnapshotUnusable:  # its server will find out, and delete it
            position = row.position - 1
    return None


NEAR: Final = 1_000
"""The distance up to which a state is replayed from the last one: snapshots are as far apart."""

READ_AHEAD: Final = 100
"""The events that are read at once: the next position is mostly near."""


class AscendingStates:
    """
    Args:
        most: The approximate number of events to replay in total.
    """

    def __init__(self, store: Store, execution_id: str, most: int) -> None:
        self._store = store
        self._execution_id = execution_id
        self._left = most
        self.state: Execution | None = None
        self._ahead: list[StoredEvent] = []

    @property
    def position(self) -> int:
        return 0 if self.state is None else self.state.position

    async def reach(self, position: int) -> bool:
        """Moves :attr:`state` to after ``position``; false if that is below the last one, or too far away."""
        missing = position - self.position
        if missing <= 0:
            return not missing
        if missing <= min(NEAR, self._left):
            self.state = replay(self._execution_id, await self._read(missing), self.state)
        elif (reached := await state_at(self._store, self._execution_id, position, self._left)) is not None:
            missing, self.state, self._ahead = NEAR, reached, []
        else:
            return False
        self._left -= missing
        return self.position == position

    async def step(self) -> StoredEvent | None:
        """The next event, applied to :attr:`state`; ``None`` at the end."""
        events = await self._read(1)
        self.state = replay(self._execution_id, events, self.state)
        return events[0] if events else None

    async def _read(self, count: int) -> list[StoredEvent]:
        if len(self._ahead) < count:
            self._ahead = await self._store.journal(self._execution_id, self.position, max(count, READ_AHEAD))
        events, self._ahead = self._ahead[:count], self._ahead[count:]
        return events


MAX_CHANGES: Final = 10_000
"""The most changes that are kept: a loop may change ``ctx`` in each iteration."""


async def ctx_history(store: Store, execution_id: str) -> list[CtxChangeDocument]:
    """Every change of ``ctx`` by position: its author, reason and keys (LANGUAGE §9).

    ``step``, ``step_run_id`` and ``task`` belong to changes from within, ``principal``, ``reason`` and
    ``correlation_id`` to those from outside.
    """
    changes: deque[CtxChangeDocument] = deque(maxlen=MAX_CHANGES)
    state: Execution | None = None
    async for piece in pieces(store, execution_id):
        for row in piece:
            before, state = state, replay(execution_id, [row], state)
            if state is not None and (before is None or state.ctx_version != before.ctx_version):
                keys = _written_keys(before, state)
                if keys:
                    changes.append(_change(row, before, keys))
    return list(changes)


def _written_keys(before: Execution | None, after: Execution) -> list[str]:
    """The keys that an entry wrote; for the first entry, all of the initial ``ctx``."""
    if before is None:
        return sorted(after.ctx)
    return sorted(key for key, (_, at) in after.writers.items() if at == after.ctx_version)


def _change(row: StoredEvent, before: Execution | None, keys: list[str]) -> CtxChangeDocument:
    fact = codec.decode_fact(row.data)
    patch = fact if isinstance(fact, CtxPatched) else None
    step_run_id = row.step_run_id or getattr(fact, "step_run_id", None)
    run = before.runs.get(step_run_id) if before is not None and step_run_id else None
    return CtxChangeDocument(
        position=row.position,
        at=iso(row.at_ms),
        event=row.name,
        keys=keys,
        principal=fact.principal if isinstance(fact, CtxPatched | ExecutionRequested) else "",
        reason=patch.reason if patch else "",
        correlation_id=patch.correlation_id if patch else "",
        step=run.step if run else None,
        step_run_id=step_run_id,
        task=fact.task if isinstance(fact, TaskProcessed) else None,
    )
