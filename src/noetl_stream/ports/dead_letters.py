"""Messages that could not be folded and commands that were given up: kept for people (PROTOCOL §1 *Partition row*, §3).

The tick that passes a message over writes its letter, so there is exactly one. A letter stays for good: settled ones,
too, say who did what with them, and when.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from noetl_stream.ports.rows import Row

LetterSource = Literal["events", "inbox", "command"]
LetterState = Literal["waiting", "requeued", "discarded"]

MAX_LETTER_BYTES: Final = 1024 * 1024
"""How much of a body is kept; only a whole one can be requeued."""

MAX_LETTER_WORDS: Final = 1_000
"""How many characters are kept of a subject, an id or a reason: all three may come from whoever sent the message."""


class DeadLetterRow(Row, frozen=True, kw_only=True):
    """A letter as it is written; :func:`dead_letter` makes one.

    Attributes:
        id: Says where it comes from: source, generation of the partition and sequence in EVENTS; sequence in the inbox;
            command and issue.
        at_ms: When the message was stored, or the command given up.
        execution_id: As the message's subject or row has it; not always a valid one.
        subject: Where the message stood.
        body: Its first :data:`MAX_LETTER_BYTES`.
        size: How many bytes it had.
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
    size: int
    source_seq: int | None


class DeadLetter(NamedTuple):
    """A letter as it is read. ``number`` orders letters by when they were written."""

    number: int
    row: DeadLetterRow
    state: LetterState
    settled_ms: int | None
    settled_by: str | None


def dead_letter(
    *,
    id: str,
    at_ms: int,
    source: LetterSource,
    partition: int,
    execution_id: str,
    subject: str,
    reason: str,
    body: bytes,
    source_seq: int | None = None,
) -> DeadLetterRow:
    """A letter that any store takes: bounded, its texts without NUL and lone surrogates."""
    return DeadLetterRow(
        id=id,
        at_ms=at_ms,
        source=source,
        partition=partition,
        execution_id=_storable(execution_id),
        subject=_storable(subject),
        reason=_storable(reason),
        body=bytes(body[:MAX_LETTER_BYTES]),
        size=len(body),
        source_seq=source_seq,
    )


def _storable(text: str) -> str:
    return text[:MAX_LETTER_WORDS].replace("\0", "\\0").encode(errors="backslashreplace").decode()


class DeadLetters(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        """Those that wait, the latest first, without their bodies.

        Args:
            before: A letter's number to page on from.
        """
        ...

    async def get(self, letter_id: str) -> DeadLetter | None:
        """Any letter, settled or not."""
        ...

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Takes one that waits off the list; one from the inbox is put there again in the same transaction.

        Returns:
            Whether it waited.
        """
        ...

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Takes one that waits off the list and forgets its body.

        Returns:
            Whether it waited.
        """
        ...
