"""Stored credentials, asked of a gateway: values go there and never come back."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.gateway.connection import GatewayConnection, GatewayRequest
from noetl_stream.model.credential import CredentialValue
from noetl_stream.ports.operations.documents import Document


class GatewayCredentials:
    """:class:`~noetl_stream.ports.operations.credentials.CredentialStore`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
    ) -> Document:
        body = {"value": value, "kind": kind, "description": description, "tags": list(tags)}
        found: Document = await self._connection.ask(GatewayRequest("PUT", ("credentials", name), body=body))
        return found

    async def list_all(self) -> list[Document]:
        return await self._connection.items("credentials")

    async def get(self, name: str) -> Document:
        return await self._connection.get("credentials", name)

    async def delete(self, name: str, by: str) -> None:
        await self._connection.delete("credentials", name)

    async def rotate(self, by: str) -> Document:
        return await self._connection.post("credentials", "rotate")
