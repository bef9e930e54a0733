"""Cursors of partitions in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.ports.cursors import Cursor


class PostgresCursors:
    """:class:`~noetl_stream.ports.cursors.Cursors` in ``noetl.partition``; the port documents each method."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Cursor]:
        return [Cursor._make(row) for row in await self._database.fetch("cursors")]

    async def floor(self) -> int:
        return int((await self._database.fetch("events_floor"))[0][0])

    async def move_floor(self, before: int, after: int) -> bool:
        return bool(await self._database.fetch("move_events_floor", before=before, after=after))

    async def move(self, before: Sequence[Cursor], after: Sequence[Cursor]) -> set[int]:
        rows = await self._database.fetch(
            "move_cursors",
            partition_ids=[cursor.partition for cursor in before],
            folded=[cursor.last_seq for cursor in before],
            last_seqs=[cursor.last_seq for cursor in after],
            last_times=[cursor.last_ms for cursor in after],
        )
        return {row[0] for row in rows}
