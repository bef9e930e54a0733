"""Workers, pools, partitions and dead letters, asked of a gateway."""

from __future__ import annotations

from noetl_stream.adapters.gateway.connection import GatewayConnection
from noetl_stream.ports.operations.cluster import (
    DeadLetterDocument,
    DeadLetterPage,
    DeadLetterWithBodyDocument,
    PartitionDocument,
    PartitionsDocument,
    PoolDocument,
    PoolsDocument,
    WorkerDocument,
    WorkersDocument,
)


class GatewayCluster:
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def workers(self) -> list[WorkerDocument]:
        return (await self._connection.get(WorkersDocument, "workers")).items

    async def pools(self) -> list[PoolDocument]:
        return (await self._connection.get(PoolsDocument, "pools")).items

    async def partitions(self) -> list[PartitionDocument]:
        return (await self._connection.get(PartitionsDocument, "partitions")).items

    async def dead_letters(self, limit: int, cursor: str | None) -> DeadLetterPage:
        return await self._connection.page(DeadLetterPage, "dead-letters", limit=limit, cursor=cursor)

    async def dead_letter(self, letter_id: str) -> DeadLetterWithBodyDocument:
        return await self._connection.get(DeadLetterWithBodyDocument, "dead-letters", letter_id)

    async def requeue(self, letter_id: str, by: str) -> DeadLetterDocument:
        return await self._connection.post(DeadLetterDocument, "dead-letters", letter_id, "requeue")

    async def discard(self, letter_id: str, by: str) -> None:
        await self._connection.delete("dead-letters", letter_id)
