"""Dead letters in the schema ``noetl``; the tick writes them."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.ports.dead_letters import DeadLetter, DeadLetterRow


class PostgresDeadLetters:
    """:class:`~noetl_stream.ports.dead_letters.DeadLetters`, where each method is described."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        return [_letter(row) for row in await self._database.fetch("dead_letters", limit=limit, before=before)]

    async def get(self, letter_id: str) -> DeadLetter | None:
        rows = await self._database.fetch("dead_letter", id=letter_id)
        return _letter(rows[0]) if rows else None

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        return bool(await self._database.fetch("requeue_dead_letter", id=letter_id, by=by, at_ms=at_ms))

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        return bool(await self._database.fetch("discard_dead_letter", id=letter_id, by=by, at_ms=at_ms))


def _letter(row: Any) -> DeadLetter:
    return DeadLetter(row["number"], row_of(DeadLetterRow, row), row["state"], row["settled_ms"], row["settled_by"])
