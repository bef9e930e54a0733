"""Dead letters: messages that could not be folded, and given-up commands (PROTOCOL §1 *Partition row*, §3).

The tick that skips a message writes its letter, so there is exactly one. Messages that EVENTS has lost have one without
a body, written by their finder (PROTOCOL §5 *Holes*). A settled letter stays, with the person, the way and the time of
its settlement; it is deleted with its execution, or as the oldest when there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from noetl_stream.protocol.rows import Row

LetterSource = Literal["events", "inbox", "command"]
LetterState = Literal["waiting", "requeued", "discarded"]

ALL_EVENTS: Final = "noetl.events.>"
"""The subject of a letter for messages that EVENTS has lost, whose own subjects are unknown."""

MAX_LETTER_BYTES: Final = 1024 * 1024
"""The bytes of a body that are stored; only a complete one can be requeued."""

MAX_LETTER_CHARACTERS: Final = 1_000
"""The characters of a subject, an id or a reason that are stored: all three may come from the sender."""

MAX_LETTERS: Final = 100_000
MAX_LETTERS_BYTES: Final = 256 * 1024 * 1024
MAX_LETTER_AGE_S: Final = 90 * 86_400
"""The most letters that are kept, settled ones included, the most bytes of their bodies, and the longest time."""


class LetterBounds(msgspec.Struct, frozen=True, gc=False):
    """The bounds of letters, above which the oldest are deleted. ``bytes`` are those of their bodies."""

    letters: int = MAX_LETTERS
    bytes: int = MAX_LETTERS_BYTES
    age_s: float = MAX_LETTER_AGE_S


class HeldLetters(msgspec.Struct, frozen=True, gc=False):
    """The number of stored letters, settled ones included, and the bytes of their bodies."""

    letters: int
    bytes: int


class DeadLetterRow(Row, frozen=True, kw_only=True):
    """A letter to be written, made :func:`storable` first.

    Attributes:
        id: Its origin: source, with sequence and stored time in EVENTS, sequence in the inbox, or command and issue;
            for a loss, its sequences and the stored time of the message before them.
        at_ms: The time when the message was stored, the command given up, or the loss found.
        execution_id: From the message's subject or row; not always valid.
        subject: The subject of the message.
        body: Its first :data:`MAX_LETTER_BYTES`.
        size: The size of the whole body in bytes.
        source_seq: In EVENTS, or in the inbox.
    """

    id: str
    at_ms: int
    source: LetterSource
    partition: int
    execution_id: str
    subject: str
    reason: str
    body: bytes
    size: int = 0
    source_seq: int | None = None


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A stored letter. ``number`` orders letters by the time of writing."""

    number: int
    row: DeadLetterRow
    state: LetterState
    settled_ms: int | None
    settled_by: str | None


def storable(row: DeadLetterRow) -> DeadLetterRow:
    """The letter in a form that any store accepts: bounded, with its size, without NUL and lone surrogates."""
    return replace(
        row,
        execution_id=storable_text(row.execution_id),
        subject=storable_text(row.subject),
        reason=storable_text(row.reason),
        body=row.body[:MAX_LETTER_BYTES],
        size=len(row.body),
    )


def storable_text(text: str) -> str:
    """``text`` in a form that any store accepts: bounded, without NUL and lone surrogates."""
    return text[:MAX_LETTER_CHARACTERS].replace("\0", "\\0").encode(errors="backslashreplace").decode()


class DeadLetters(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        """Unsettled letters with a number below ``before``, newest first, without bodies."""

    async def get(self, letter_id: str) -> DeadLetter | None:
        """A letter, settled or not."""

    async def known(self, letter_ids: Sequence[str]) -> set[str]:
        """The stored ones of these letters, settled or not."""

    async def add(self, row: DeadLetterRow) -> None:
        """Stores a letter that no tick writes, unless it is already stored."""

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Settles a letter as requeued, and resends one from the inbox in the same transaction; ``False`` if already
        settled.
        """

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Settles a letter as discarded and deletes its body. ``False`` if it is already settled."""

    async def held(self) -> HeldLetters: ...

    async def trim(self, bounds: LetterBounds, now_ms: int, limit: int) -> int:
        """Deletes the oldest letters above a bound, ``limit`` at most; returns their number."""
