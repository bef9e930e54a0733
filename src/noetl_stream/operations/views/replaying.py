"""States of one journal at ascending positions, each from the one before or from a snapshot, whichever is nearer."""

from __future__ import annotations

from typing import Final

from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import Execution
from noetl_stream.operations.executions.reading.states import state_at
from noetl_stream.ports.stores.store import Store, StoredEvent

NEAR: Final = 1_000
"""A state is replayed from the last one, unless that is farther away: snapshots are as far apart."""

READ_AHEAD: Final = 100
"""How many events are read at once: the next position is mostly near."""


class AscendingStates:
    """
    Args:
        most: How many events are replayed in all, about.
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
        """The next event, which :attr:`state` has then taken; ``None`` at the end."""
        events = await self._read(1)
        self.state = replay(self._execution_id, events, self.state)
        return events[0] if events else None

    async def _read(self, count: int) -> list[StoredEvent]:
        """The next events."""
        if len(self._ahead) < count:
            self._ahead = await self._store.journal(self._execution_id, self.position, max(count, READ_AHEAD))
        events, self._ahead = self._ahead[:count], self._ahead[count:]
        return events
