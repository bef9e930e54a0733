"""The catalog, asked of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from noetl_stream.adapters.gateway.connection import GatewayConnection, GatewayRequest, Query
from noetl_stream.ports.operations.playbooks import (
    CheckedDocument,
    GraphDocument,
    PlaybookDocument,
    PlaybookPage,
    PlaybookVersionsDocument,
    PlaybookWithSourceDocument,
    RegisteredDocument,
)

Answer = TypeVar("Answer")

YAML = "application/yaml"


class GatewayPlaybooks:
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def check(self, source: bytes, name: str) -> CheckedDocument:
        return await self._send(CheckedDocument, source, name, "playbooks", "check")

    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        return await self._send(RegisteredDocument, source, name, "playbooks")

    async def page(self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None) -> PlaybookPage:
        query = [("prefix", prefix), *(("label", f"{name}={value}") for name, value in labels.items())]
        return await self._connection.page(PlaybookPage, "playbooks", limit=limit, cursor=cursor, query=query)

    async def get(self, path: str, version: str | None) -> PlaybookWithSourceDocument:
        return await self._connection.get(PlaybookWithSourceDocument, "playbooks", path, query=_version(version))

    async def versions(self, path: str) -> list[PlaybookDocument]:
        return (await self._connection.get(PlaybookVersionsDocument, "playbooks", path, "versions")).items

    async def plan(self, path: str, version: str | None) -> dict[str, Any]:
        return await self._connection.get(dict[str, Any], "playbooks", path, "plan", query=_version(version))

    async def graph(self, path: str, version: str | None) -> GraphDocument:
        return await self._connection.get(GraphDocument, "playbooks", path, "graph", query=_version(version))

    async def delete(self, path: str, version: str | None, by: str) -> None:
        await self._connection.delete("playbooks", path, query=_version(version))

    async def _send(self, kind: type[Answer], source: bytes, name: str, *parts: str) -> Answer:
        key = self._connection.new_key()
        return await self._connection.ask(GatewayRequest("POST", parts, [("name", name)], source, YAML, key=key), kind)


def _version(version: str | None) -> Query:
    return () if version is None else [("version", version)]
