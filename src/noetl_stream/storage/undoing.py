"""The execution that has undone another one (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

from typing import Final

from noetl_stream.model.ids import undoing_of
from noetl_stream.ports.stores.store import ExecutionRow, Store

MOST_RERUNS: Final = 100
"""The most reruns of reruns that are followed to the first run of a step."""


async def find_undoing(store: Store, original: ExecutionRow) -> str:
    """The id of the execution that has undone the original, or the original of a rerun of it; else empty."""
    row: ExecutionRow | None = original
    for _ in range(MOST_RERUNS):
        if row is None:
            break
        undoing = undoing_of(row.execution_id)
        if await store.execution(undoing) is not None:
            return undoing
        row = await store.execution(row.rerun_of) if row.rerun_of else None
    return ""


async def last_undoing(store: Store, execution_id: str) -> ExecutionRow | None:
    """The last execution of the chain from this one, in which each undoes what the previous one has left."""
    last: ExecutionRow | None = None
    for _ in range(MOST_RERUNS):
        row = await store.execution(execution_id)
        if row is None:
            break
        last, execution_id = row, undoing_of(row.execution_id)
    return last
