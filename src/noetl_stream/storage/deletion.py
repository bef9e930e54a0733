"""The deletion of an execution, its logs, and the objects that only it uses (PROTOCOL §3 *Object keys*)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from noetl_stream.errors import Conflict
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import Store, StoredEvent
from noetl_stream.protocol.subjects import logs_key
from noetl_stream.storage.journal import pieces

DeleteObjects = Callable[[Sequence[str]], Awaitable[None]]
"""Deletes the objects with these keys, and the logs that :func:`~.subjects.logs_key` names; missing ones are ignored.
"""


async def delete_execution(
    store: Store, delete_objects: DeleteObjects, execution_id: str, *, keep_journal: bool = False
) -> None:
    """Deletes an ended execution. An interrupted deletion can be repeated.

    Objects are deleted first, and the row that leads to them last. Objects that other executions use stay until those
    are deleted too. Their users are read once no new ones can appear: a rerun that has read the journal by then is
    among them.

    Args:
        keep_journal: Leaves the journal, which is about to be dropped with its month.

    Raises:
        Conflict: others need its journal, or may need its result.
    """
    await require_deletable(store, execution_id)
    await store.begin_deleting(execution_id)
    kept = await _keys_used_elsewhere(store, execution_id)
    async for piece in pieces(store, execution_id):
        await delete_objects(sorted(key for key in keys_of(execution_id, piece) if _place(key) not in kept))
    await delete_objects([*(use.key for use in await store.objects_kept_for(execution_id)), logs_key(execution_id)])
    await store.delete_execution(execution_id, keep_journal=keep_journal)


async def require_deletable(store: Store, execution_id: str) -> None:
    """Raises :class:`~noetl_stream.errors.Conflict` if others need its journal, or may need its result."""
    await _refuse_if_called(store, execution_id)
    await _keys_used_elsewhere(store, execution_id)


def keys_of(execution_id: str, journal: Iterable[StoredEvent]) -> set[str]:
    """The keys of the execution's own objects in these entries, of its files and tables, and of its gathered loops."""
    named = re.compile(rb'"key":"(' + re.escape(execution_id.encode()) + rb'/[^"\\]+)"')
    found: set[str] = set()
    for row in journal:
        found.update(key.decode() for key in named.findall(row.data))
        if row.name == "loop.done" and row.step_run_id is not None:
            found.add(f"{execution_id}/{row.step_run_id}/loop")
    return found


async def _keys_used_elsewhere(store: Store, execution_id: str) -> set[str]:
    # In this order: a rerun that stops reading the journal in between is found by its used objects.
    for rerun in await store.looked_into_by(execution_id):
        text = f"execution {rerun}, a rerun of {execution_id}, is reading its journal"
        raise Conflict(text, hint="try again in a moment")
    uses = await store.objects_used_elsewhere(execution_id)
    for use in uses:
        if use.store != "nats":
            text = f"execution {use.execution_id} uses results in the journal of {execution_id}"
            raise Conflict(text, hint=f"delete {use.execution_id} first")
    return {_place(use.key) for use in uses}


def _place(key: str) -> str:
    """The unit of deletion: an object, or the parts of a file or table, by any key that names them."""
    return "/".join(key.split("/")[:4])


async def _refuse_if_called(store: Store, execution_id: str) -> None:
    journal = await store.journal(execution_id, 0, 1)
    requested = codec.decode_fact(journal[0].data) if journal else None
    parent = requested.parent if isinstance(requested, ExecutionRequested) else None
    row = await store.execution(parent.execution_id) if parent is not None else None
    if row is not None and row.finished_ms is None:
        text = f"execution {row.execution_id}, which called {execution_id}, has not ended"
        raise Conflict(text, hint=f"delete {execution_id} after {row.execution_id} has ended")
