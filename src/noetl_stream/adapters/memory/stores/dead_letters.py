"""Dead letters in memory."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from noetl_stream.ports.stores.dead_letters import DeadLetter, DeadLetterRow, HeldLetters, LetterBounds
from noetl_stream.ports.stores.store import InboxRow


class MemoryDeadLetters:
    """:class:`~noetl_stream.ports.stores.dead_letters.DeadLetters` in memory; the port documents each method.

    ``requeue`` receives letters requeued into the inbox.
    """

    def __init__(self, requeue: Callable[[InboxRow], None]) -> None:
        self._requeue = requeue
        self.letters: dict[str, DeadLetter] = {}

    def __contains__(self, letter_id: object) -> bool:
        return letter_id in self.letters

    def write(self, row: DeadLetterRow) -> None:
        """Stores a dead letter, as the tick that skips its message does."""
        known = (letter.number for letter in self.letters.values())
        self.letters[row.id] = DeadLetter(max(known, default=0) + 1, row, "waiting", None, None)

    def forget(self, execution_id: str) -> None:
        """Removes the dead letters of a deleted execution."""
        self.letters = {id: one for id, one in self.letters.items() if one.row.execution_id != execution_id}

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        waiting = [
            replace(letter, row=replace(letter.row, body=b""))
            for letter in reversed(self.letters.values())
            if letter.state == "waiting" and (before is None or letter.number < before)
        ]
        return waiting[:limit]

    async def get(self, letter_id: str) -> DeadLetter | None:
        return self.letters.get(letter_id)

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        letter = self._waiting(letter_id)
        if letter is None:
            return False
        self.letters[letter_id] = replace(letter, state="requeued", settled_ms=at_ms, settled_by=by)
        if letter.row.source == "inbox":
            row = letter.row
            self._requeue(
                InboxRow(id=f"requeue-{row.id}", partition=row.partition, execution_id=row.execution_id, body=row.body)
            )
        return True

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        letter = self._waiting(letter_id)
        if letter is None:
            return False
        row = replace(letter.row, body=b"")
        self.letters[letter_id] = replace(letter, row=row, state="discarded", settled_ms=at_ms, settled_by=by)
        return True

    async def held(self) -> HeldLetters:
        return HeldLetters(len(self.letters), sum(len(letter.row.body) for letter in self.letters.values()))

    async def trim(self, bounds: LetterBounds, now_ms: int, limit: int) -> int:
        held_bytes, gone = 0, list[str]()
        for place, (letter_id, letter) in enumerate(reversed(self.letters.items()), start=1):
            held_bytes += len(letter.row.body)
            too_old = letter.row.at_ms < now_ms - bounds.age_s * 1000
            if place > bounds.letters or held_bytes > bounds.bytes or too_old:
                gone.append(letter_id)
        for letter_id in (oldest := gone[::-1][:limit]):
            del self.letters[letter_id]
        return len(oldest)

    def _waiting(self, letter_id: str) -> DeadLetter | None:
        letter = self.letters.get(letter_id)
        return letter if letter is not None and letter.state == "waiting" else None
