"""The catalog, asked of a gateway."""

from __future__ import annotations

from collections.abc import Mapping

from noetl_stream.adapters.gateway.connection import GatewayConnection, GatewayRequest, Query
from noetl_stream.ports.operations.documents import Document, Page

YAML = "application/yaml"


class GatewayPlaybooks:
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def check(self, source: bytes, name: str) -> Document:
        return await self._send(source, name, "playbooks", "check")

    async def register(self, source: bytes, name: str, by: str) -> Document:
        return await self._send(source, name, "playbooks")

    async def page(self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None) -> Page:
        query = [("prefix", prefix), *(("label", f"{name}={value}") for name, value in labels.items())]
        return await self._connection.page("playbooks", limit=limit, cursor=cursor, query=query)

    async def get(self, path: str, version: str | None) -> Document:
        return await self._connection.get("playbooks", path, query=_version(version))

    async def versions(self, path: str) -> list[Document]:
        return await self._connection.items("playbooks", path, "versions")

    async def plan(self, path: str, version: str | None) -> Document:
        return await self._connection.get("playbooks", path, "plan", query=_version(version))

    async def graph(self, path: str, version: str | None) -> Document:
        return await self._connection.get("playbooks", path, "graph", query=_version(version))

    async def delete(self, path: str, version: str | None, by: str) -> None:
        await self._connection.delete("playbooks", path, query=_version(version))

    async def _send(self, source: bytes, name: str, *parts: str) -> Document:
        key = self._connection.new_key()
        found: Document = await self._connection.ask(
            GatewayRequest("POST", parts, [("name", name)], source, YAML, key=key)
        )
        return found


def _version(version: str | None) -> Query:
    return () if version is None else [("version", version)]
