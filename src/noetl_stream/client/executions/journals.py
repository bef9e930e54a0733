"""Reads journals in pieces, so that a long one does not block others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from noetl_stream.ports.store import Store, StoredEvent

EVENTS_AT_ONCE: Final = 500


async def pieces(store: Store, execution_id: str) -> AsyncIterator[list[StoredEvent]]:
    """The whole journal by position, at most :data:`EVENTS_AT_ONCE` entries at a time."""
    after = 0
    while piece := await store.journal(execution_id, after, EVENTS_AT_ONCE):
        yield piece
        after = piece[-1].position
