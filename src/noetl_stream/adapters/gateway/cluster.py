"""Workers, pools, partitions and dead letters, asked of a gateway."""

from __future__ import annotations

from noetl_stream.adapters.gateway.connection import GatewayConnection
from noetl_stream.ports.operations.documents import Document, Page


class GatewayCluster:
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def workers(self) -> list[Document]:
        return await self._connection.items("workers")

    async def pools(self) -> list[Document]:
        return await self._connection.items("pools")

    async def partitions(self) -> list[Document]:
        return await self._connection.items("partitions")

    async def dead_letters(self, limit: int, cursor: str | None) -> Page:
        return await self._connection.page("dead-letters", limit=limit, cursor=cursor)

    async def dead_letter(self, letter_id: str) -> Document:
        return await self._connection.get("dead-letters", letter_id)

    async def requeue(self, letter_id: str, by: str) -> Document:
        return await self._connection.post("dead-letters", letter_id, "requeue")

    async def discard(self, letter_id: str, by: str) -> None:
        await self._connection.delete("dead-letters", letter_id)
