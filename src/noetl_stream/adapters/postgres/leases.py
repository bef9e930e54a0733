"""Leases of partitions after they were taken: renewing, giving back, looking (PROTOCOL §2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.ports.store import PartitionView


class Leases:
    """The part of :class:`~noetl_stream.ports.store.Store` about leases that any connection may do."""

    _database: Database

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float) -> set[int]:
        """See :meth:`noetl_stream.ports.store.Store.renew`."""
        ids, numbers = [id for id, _ in epochs], [epoch for _, epoch in epochs]
        rows = await self._database.fetch("renew", owner=owner, partition_ids=ids, epochs=numbers, lease_s=lease_s)
        return {row[0] for row in rows}

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        """See :meth:`noetl_stream.ports.store.Store.give_back`."""
        ids, numbers = [id for id, _ in epochs], [epoch for _, epoch in epochs]
        await self._database.fetch(
            "give_back", owner=owner, partition_ids=ids, epochs=numbers, published_ticks=published
        )

    async def read_partitions(self, ids: Collection[int] | None = None) -> list[PartitionView]:
        """See :meth:`noetl_stream.ports.store.Store.read_partitions`."""
        rows = await self._database.fetch("read_partitions", ids=None if ids is None else list(ids))
        return [PartitionView._make(row) for row in rows]

    async def owner_count(self) -> int:
        """See :meth:`noetl_stream.ports.store.Store.owner_count`."""
        count: int = (await self._database.fetch("owner_count"))[0][0]
        return count
