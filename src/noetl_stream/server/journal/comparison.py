"""Compares the ticks that Postgres has committed with the records in EVENTS (PROTOCOL §5)."""

from __future__ import annotations

from typing import Final

from noetl_stream.ports.stores.cursors import Cursors
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal.lost_stream import StreamExtent, behind_events, lost_cursors

STUCK_SHOWN: Final = 20


async def disagreements(log: EventLog, store: Store, cursors: Cursors) -> list[str]:
    """Returns the disagreements between Postgres and EVENTS, a line each. Servers may run meanwhile.

    Raises:
        NotReady: the stream does not exist.
        Unreachable: a store is away.
    """
    found = [
        f"partition {view.id}: Postgres has committed {view.tick} ticks, and EVENTS holds a record of tick {tick}: "
        "Postgres was restored from an older state, or failed over without its last commits"
        for view, tick in await behind_events(log, store)
    ]
    extent = await StreamExtent.of(log)
    for cursor in await lost_cursors(log, await cursors.all(), extent):
        held = f"EVENTS holds {extent.first} to {extent.last}"
        text = f"partition {cursor.partition}: message {cursor.last_seq}, the last that was folded, is lost ({held})"
        found.append(f"{text}: stop the servers and run `noetl-stream stream reconcile`")
    found += await _lost_head(extent, cursors)
    stuck = await store.stuck(STUCK_SHOWN)
    return found + [f"execution {execution_id}: waits for nothing, a defect of the engine" for execution_id in stuck]


async def _lost_head(extent: StreamExtent, cursors: Cursors) -> list[str]:
    floor = await cursors.floor()
    if extent.last < floor:
        text = f"EVENTS ends at {extent.last}, and servers have trimmed it up to {floor}: it is a different stream"
    elif extent.first > floor + 1:
        text = f"EVENTS begins at {extent.first}, and servers have trimmed it up to {floor}: others have purged it"
    else:
        return []
    return [f"{text}: stop the servers and run `noetl-stream stream reconcile`"]
