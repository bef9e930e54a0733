"""Dead letters: looking at them, putting them back where they came from, dropping them."""

from __future__ import annotations

import base64
from typing import Final

from msgspec.structs import asdict

from noetl_stream.client.cursors import cursor_of, read_cursor
from noetl_stream.errors import Conflict, NotFound
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.dead_letters import MAX_LETTER_BYTES, DeadLetter, DeadLetterRow, DeadLetters
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.operations.cluster import DeadLetterDocument, DeadLetterPage, DeadLetterWithBodyDocument

MAX_PAGE: Final = 1_000


class DirectDeadLetters:
    """The part of :class:`~noetl_stream.ports.operations.cluster.Cluster` that is about dead letters."""

    def __init__(self, letters: DeadLetters, log: EventLog, bus: Bus, clock: Clock) -> None:
        self._letters = letters
        self._log = log
        self._bus = bus
        self._clock = clock

    async def page(self, limit: int, cursor: str | None) -> DeadLetterPage:
        """See :meth:`noetl_stream.ports.operations.cluster.Cluster.dead_letters`."""
        at_most = max(1, min(limit, MAX_PAGE))
        found = await self._letters.page(at_most + 1, read_cursor(cursor, int))
        following = cursor_of(found[at_most - 1].number) if len(found) > at_most else None
        return DeadLetterPage([_document(letter) for letter in found[:at_most]], following)

    async def get(self, letter_id: str) -> DeadLetterWithBodyDocument:
        """See :meth:`noetl_stream.ports.operations.cluster.Cluster.dead_letter`."""
        letter = await self._find(letter_id)
        shown, body = asdict(_document(letter)), letter.row.body
        try:
            return DeadLetterWithBodyDocument(**shown, body=body.decode(), encoding="text")
        except UnicodeDecodeError:
            return DeadLetterWithBodyDocument(**shown, body=base64.b64encode(body).decode(), encoding="base64")

    async def requeue(self, letter_id: str, by: str) -> DeadLetterDocument:
        """See :meth:`noetl_stream.ports.operations.cluster.Cluster.requeue`.

        A message of EVENTS is published before its letter is settled, under an id that is the letter's own: whoever
        dies in between, or comes second, publishes nothing twice.
        """
        letter = await self._find(letter_id)
        _check(letter)
        row = letter.row
        if row.source == "events":
            await self._log.publish_reported(row.execution_id, f"requeue-{row.id}", row.body)
        if not await self._letters.requeue(letter_id, by, self._clock.now_ms()):
            raise _settled(await self._find(letter_id))
        if row.source == "inbox":
            self._bus.send(subjects.INBOX, codec.encode([row.partition]))
        return _document(await self._find(letter_id))

    async def discard(self, letter_id: str, by: str) -> None:
        """See :meth:`noetl_stream.ports.operations.cluster.Cluster.discard`."""
        if not await self._letters.discard(letter_id, by, self._clock.now_ms()):
            raise _settled(await self._find(letter_id))

    async def _find(self, letter_id: str) -> DeadLetter:
        letter = await self._letters.get(letter_id)
        if letter is None:
            raise NotFound(f"no dead letter {letter_id}", hint="`noetl-stream dead-letter list` shows those there are")
        return letter


def _check(letter: DeadLetter) -> None:
    """Raises :class:`~noetl_stream.errors.Conflict` for a letter that cannot go back where it came from."""
    row = letter.row
    if letter.state != "waiting":
        raise _settled(letter)
    if row.source == "command":
        raise Conflict(
            f"the step run of command {row.id} has failed with it: a copy would be dropped",
            hint=f"`noetl-stream execution retry {row.execution_id}` runs the step again, once the execution has ended",
        )
    if row.size > len(row.body):
        raise Conflict(
            f"the body of dead letter {row.id} has {row.size} bytes, of which {len(row.body)} were kept",
            hint=f"what is larger than {MAX_LETTER_BYTES} bytes can only be discarded",
        )
    if row.source == "events" and not is_valid_id(row.execution_id):
        raise Conflict(f"the message of dead letter {row.id} has no execution to go to: {row.subject}")


def _settled(letter: DeadLetter) -> Conflict:
    at = f" at {iso(letter.settled_ms)}" if letter.settled_ms is not None else ""
    return Conflict(f"dead letter {letter.row.id} was {letter.state} by {letter.settled_by}{at}")


def _document(letter: DeadLetter) -> DeadLetterDocument:
    row: DeadLetterRow = letter.row
    return DeadLetterDocument(
        id=row.id,
        at=iso(row.at_ms),
        source=row.source,
        partition=row.partition,
        execution_id=row.execution_id,
        subject=row.subject,
        reason=row.reason,
        size=row.size,
        sequence=row.source_seq,
        state=letter.state,
        settled_at=iso_or_none(letter.settled_ms),
        settled_by=letter.settled_by,
    )
