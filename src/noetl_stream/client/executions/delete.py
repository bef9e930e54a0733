"""Deleting an execution and the objects that only it uses (PROTOCOL §3 *Object keys*)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from noetl_stream.client.executions.journals import pieces
from noetl_stream.errors import Conflict, Unreachable
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.store import Store, StoredEvent

KEYS_AT_ONCE: Final = 100
PURGE_WAIT_S: Final = 30.0
"""How long a server may take to delete these objects."""


async def delete_execution(store: Store, bus: Bus, execution_id: str) -> None:
    """Deletes an ended execution. An interrupted deletion can be repeated.

    Objects are deleted first, and the row that leads to them last. Objects that other executions use stay until those
    are deleted, too. Their users are read once no new ones can appear: a rerun that has read the journal by then is
    among them.

    Raises:
        Conflict: others need its journal, or may need its result.
    """
    await _refuse_if_called(store, execution_id)
    await _keys_used_elsewhere(store, execution_id)
    await store.begin_deleting(execution_id)
    kept = await _keys_used_elsewhere(store, execution_id)
    async for piece in pieces(store, execution_id):
        await _purge(bus, sorted(keys_of(execution_id, piece) - kept))
    await _purge(bus, [use.key for use in await store.objects_kept_for(execution_id)])
    await store.delete_execution(execution_id)


async def _purge(bus: Bus, keys: Sequence[str]) -> None:
    """Has a server delete these objects: deleting purges a stream, which nobody else may.

    Raises:
        Unreachable: no server has done it; objects that were deleted are simply missing the next time.
    """
    for at in range(0, len(keys), KEYS_AT_ONCE):
        answer = await bus.ask(subjects.PURGE, codec.encode(keys[at : at + KEYS_AT_ONCE]), PURGE_WAIT_S)
        if answer is None or codec.decode_json(answer) is None:
            raise Unreachable("no server has deleted the objects of this execution", hint="try again with a server")


def keys_of(execution_id: str, journal: Iterable[StoredEvent]) -> set[str]:
    """The keys of the execution's own objects in these entries, and of its gathered loops."""
    named = re.compile(rb'"key":"(' + re.escape(execution_id.encode()) + rb'/[^"\\]+)"')
    found: set[str] = set()
    for row in journal:
        found.update(key.decode() for key in named.findall(row.data))
        if row.name == "loop.done" and row.step_run_id is not None:
            found.add(f"{execution_id}/{row.step_run_id}/loop")
    return found


async def _keys_used_elsewhere(store: Store, execution_id: str) -> set[str]:
    # In this order: a rerun that stops reading the journal in between is found by the objects it uses.
    for rerun in await store.looked_into_by(execution_id):
        text = f"execution {rerun}, a rerun of {execution_id}, is reading its journal"
        raise Conflict(text, hint="try again in a moment")
    uses = await store.objects_used_elsewhere(execution_id)
    for use in uses:
        if use.store != "nats":
            text = f"execution {use.execution_id} uses results in the journal of {execution_id}"
            raise Conflict(text, hint=f"delete {use.execution_id} first")
    return {use.key for use in uses}


async def _refuse_if_called(store: Store, execution_id: str) -> None:
    journal = await store.journal(execution_id, 0, 1)
    requested = codec.decode_fact(journal[0].data) if journal else None
    parent = requested.parent if isinstance(requested, ExecutionRequested) else None
    row = await store.execution(parent.execution_id) if parent is not None else None
    if row is not None and row.finished_ms is None:
        text = f"execution {row.execution_id}, which called {execution_id}, has not ended"
        raise Conflict(text, hint=f"delete {execution_id} after {row.execution_id} has ended")
