"""The rows of limits in memory, as a server holds them while it folds: some are loaded, and more may wait."""

from __future__ import annotations

from collections.abc import Iterator

from noetl_stream.engine.aggregates.contract import Folded, LimitSlots
from noetl_stream.engine.aggregates.key_limits import fold_limit
from noetl_stream.model import events
from noetl_stream.model.aggregates import LimitFact, LimitSlot, LimitState


class StoredLimit(LimitSlots):
    """A limit with its rows. Each input sees at most ``window`` of those that wait."""

    def __init__(self, window: int = 64) -> None:
        super().__init__()
        self.window = window
        self.state: LimitState | None = None
        self.rows: dict[str, LimitSlot] = {}
        self.written = 0
        self._seen: list[LimitSlot] = []
        self.has_more = False
        self.is_catching_up = False

    def of(self, holder: str) -> LimitSlot | None:
        return self.rows.get(holder)

    def waiting(self) -> Iterator[LimitSlot]:
        return iter(self._seen)

    def may_be_ended(self) -> Iterator[LimitSlot]:
        return iter(sorted((row for row in self.rows.values() if row.may_be_ended), key=lambda row: row.number))

    @property
    def holding(self) -> list[LimitSlot]:
        return [row for row in self.rows.values() if row.granted_ms]

    @property
    def queue(self) -> list[LimitSlot]:
        return sorted((row for row in self.rows.values() if not row.granted_ms), key=lambda row: row.number)

    def fold(self, fact: LimitFact | None, at_ms: int) -> Folded[LimitState]:
        queue = self.queue
        self._seen, self.has_more = queue[: self.window], len(queue) > self.window
        folded = fold_limit(self.state, self, fact, at_ms, is_catching_up=self.is_catching_up)
        for holder, row in folded.slots.items():
            self.written += 1
            if row is None:
                self.rows.pop(holder, None)
            else:
                self.rows[holder] = row
        self.state = folded.state
        return folded

    def wake(self, until_ms: int) -> list[tuple[int, Folded[LimitState]]]:
        """Wakes the limit whenever it wants to be, up to a time."""
        found = []
        while self.state is not None and self.state.timer_ms and self.state.timer_ms <= until_ms:
            at_ms = max(self.state.timer_ms, self.state.at_ms)
            found.append((at_ms, self.fold(None, at_ms)))
        return found


def granted(folded: Folded[LimitState]) -> list[str]:
    """Who is given a slot."""
    return [
        one.fact.step_run_id or one.execution_id for one in folded.messages if isinstance(one.fact, events.SlotGranted)
    ]
