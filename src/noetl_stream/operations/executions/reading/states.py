"""The state of an execution at any position of its journal (PROTOCOL §5 *Snapshots*)."""

from __future__ import annotations

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SnapshotUnusable, read_snapshot
from noetl_stream.engine.state import Execution
from noetl_stream.ports.stores.store import Store
from noetl_stream.storage.journal import EVENTS_AT_ONCE


async def state_at(store: Store, execution_id: str, position: int, most: int | None = None) -> Execution | None:
    """The state after the event at ``position``, or after the last one below it; ``None`` before the first.

    It is replayed from the nearest snapshot below that can be used.

    Args:
        most: The answer is also ``None`` if more events would have to be replayed.

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
