"""The whole feed in the table ``noetl.feed``, its events in the journals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.ports.feed import FedEvent
from noetl_stream.ports.store import StoredEvent


class PostgresFeed:
    """A :class:`~noetl_stream.ports.feed.FeedStore`. ``database`` stays its owner's to close."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> dict[int, int]:
        return {row[0]: row[1] for row in await self._database.fetch("feed_now")}

    async def floor(self) -> dict[int, int]:
        return {row[0]: row[1] for row in await self._database.fetch("feed_floor")}

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        """See :meth:`noetl_stream.ports.feed.FeedStore.read`."""
        rows = await self._database.fetch("feed", partition_ids=list(after), ticks=list(after.values()), limit=limit)
        return [_fed(*row) for row in rows]

    async def trim(self, keep_ms: int, limit: int) -> int:
        return int((await self._database.fetch("feed_trim", keep_ms=keep_ms, limit=limit))[0][0])


def _fed(
    partition: int,
    tick: int,
    number: int,
    execution_id: str,
    trace_id: str,
    digest: str,
    path: str,
    *event: Any,
) -> FedEvent:
    stored = StoredEvent._make(event) if event[0] is not None else None
    return FedEvent(
        partition=partition,
        tick=tick,
        number=number,
        execution_id=execution_id,
        trace_id=trace_id,
        digest=digest,
        path=path,
        event=stored,
    )
