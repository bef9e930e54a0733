"""Reading journals that may be long: piece by piece, so that nobody else has to wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import Execution
from noetl_stream.ports.store import Store, StoredEvent

EVENTS_AT_ONCE: Final = 500


async def pieces(store: Store, execution_id: str) -> AsyncIterator[list[StoredEvent]]:
    """The whole journal by position, at most :data:`EVENTS_AT_ONCE` entries at a time."""
    after = 0
    while piece := await store.journal(execution_id, after, EVENTS_AT_ONCE):
        yield piece
        after = piece[-1].position


class Folded(NamedTuple):
    """An entry, and the states before and after it."""

    row: StoredEvent
    before: Execution | None
    after: Execution


async def folded(store: Store, execution_id: str) -> AsyncIterator[Folded]:
    """The whole journal, entry by entry, with what it folds to."""
    state: Execution | None = None
    async for piece in pieces(store, execution_id):
        for row in piece:
            before, state = state, replay(execution_id, [row], state)
            if state is not None:
                yield Folded(row, before, state)
