"""Stored credentials, asked of a gateway: values go there and never come back."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.adapters.gateway.connection import GatewayConnection, GatewayRequest
from noetl_stream.model.credential import CredentialValue
from noetl_stream.ports.operations.credentials import CredentialDocument, CredentialsDocument, RotatedDocument


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
    ) -> CredentialDocument:
        body = {"value": value, "kind": kind, "description": description, "tags": list(tags)}
        return await self._connection.ask(GatewayRequest("PUT", ("credentials", name), body=body), CredentialDocument)

    async def list_all(self) -> list[CredentialDocument]:
        return (await self._connection.get(CredentialsDocument, "credentials")).items

    async def get(self, name: str) -> CredentialDocument:
        return await self._connection.get(CredentialDocument, "credentials", name)

    async def delete(self, name: str, by: str) -> None:
        await self._connection.delete("credentials", name)

    async def rotate(self, by: str) -> RotatedDocument:
        return await self._connection.post(RotatedDocument, "credentials", "rotate")
