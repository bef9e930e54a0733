"""Cursors of partitions in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.ports.stores.cursors import Cursor, Repair


class PostgresCursors:
    """:class:`~noetl_stream.ports.stores.cursors.Cursors` in ``noetl.partition``; the port documents each method."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Cursor]:
        return [Cursor(*row) for row in await self._database.fetch("cursors")]

    async def partition_count(self) -> int:
        """Returns P of the database."""
        return int((await self._database.fetch("partition_count"))[0][0])

    async def floor(self) -> int:
        return int((await self._database.fetch("events_floor"))[0][0])

    async def move_floor(self, before: int, after: int) -> bool:
        return bool(await self._database.fetch("move_events_floor", before=before, after=after))

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        rows = await self._database.fetch(
            "repair_partitions",
            partition_ids=[one.partition for one in repairs],
            folded=[one.folded for one in repairs],
            last_seqs=[one.last_seq for one in repairs],
            last_times=[one.last_ms for one in repairs],
            ticks=[one.tick for one in repairs],
            published_ticks=[one.published_tick for one in repairs],
            epochs=[one.epoch for one in repairs],
            owner=owner,
        )
        return {row[0] for row in rows}
