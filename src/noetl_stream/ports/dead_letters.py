"""Dead letters: messages that could not be folded, commands that were given up (PROTOCOL §1 *Partition row*, §3).

The tick that skips a message writes its letter, so there is exactly one. Letters are never deleted: settled ones also
record who settled them, how, and when.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from noetl_stream.ports.rows import Row

LetterSource = Literal["events", "inbox", "command"]
LetterState = Literal["waiting", "requeued", "discarded"]

MAX_LETTER_BYTES: Final = 1024 * 1024
"""How much of a body is stored; only a complete one can be requeued."""

MAX_LETTER_WORDS: Final = 1_000
"""How many characters of a subject, an id or a reason are stored: all three may come from the sender."""


class DeadLetterRow(Row, frozen=True, kw_only=True):
    """A letter to be written; :func:`dead_letter` creates one.

    Attributes:
        id: Its origin: source, generation of the partition and sequence in EVENTS; sequence in the inbox;
            command and issue.
        at_ms: When the message was stored, or the command given up.
        execution_id: From the message's subject or row; not always valid.
        subject: The subject of the message.
        body: Its first :data:`MAX_LETTER_BYTES`.
        size: The size of the body in bytes.
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
    """A stored letter. ``number`` orders letters by when they were written."""

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
    """A letter any store accepts: bounded, without NUL and lone surrogates."""
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
        """Unsettled letters, newest first, without bodies.

        Args:
            before: The letter number to continue before.
        """
        ...

    async def get(self, letter_id: str) -> DeadLetter | None:
        """A letter, settled or not."""
        ...

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Settles a letter as requeued; one from the inbox is put back there in the same transaction.

        Returns:
            Whether it was unsettled.
        """
        ...

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        """Settles a letter as discarded and deletes its body.

        Returns:
            Whether it was unsettled.
        """
        ...
