"""Forgetting executions that have ended."""

from __future__ import annotations

from typing import Any, Final

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.model import codec
from noetl_stream.model.search_terms import error_terms, label_terms

EVENTS_AT_ONCE: Final = 5_000
"""How much of a journal one transaction deletes: none should be long."""


class Deleting:
    """The part of :class:`~noetl_stream.ports.store.Store` that forgets."""

    _database: Database

    async def looked_into_by(self, execution_id: str) -> list[str]:
        return [row[0] for row in await self._database.fetch("looked_into_by", execution_id=execution_id)]

    async def begin_deleting(self, execution_id: str) -> None:
        await self._database.fetch("begin_deleting", execution_id=execution_id)

    async def delete_execution(self, execution_id: str) -> bool:
        """See :meth:`noetl_stream.ports.store.Store.delete_execution`."""
        rows = await self._database.fetch("executions", execution_ids=[execution_id])
        if not rows:
            return False
        while await self._database.fetch("delete_events", execution_id=execution_id, limit=EVENTS_AT_ONCE):
            pass
        terms = sorted(label_terms(_json(rows[0]["labels"])) | error_terms(_json(rows[0]["error"])))
        return bool(await self._database.fetch("delete_execution", execution_id=execution_id, terms=terms))


def _json(column: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = codec.decode_json(column) if column is not None else {}
    return found
