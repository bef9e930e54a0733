"""A DuckDB tool for tests, and files that its tasks share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_testkit.waiting import TIMEOUT_S


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


@dataclass
class Stage:
    """A DuckDB tool, and the files that its tasks share."""

    tool: DuckdbTool
    data: FilesInMemory

    async def file(self, content: bytes, name: str = "orders.csv", media_type: str = "") -> dict[str, Any]:
        return await self.data.save(pieces(content), name=name, media_type=media_type)

    async def run(self, command: str, *, knobs: dict[str, Any] | None = None, **inputs: Any) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            given = tool_call({"command": command, **inputs}, knobs=knobs, data=self.data)
            return (await self.tool.run(given)).result

    async def rows(self, command: str, **tables: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.run(command, tables=tables))["rows"]
        return rows

    async def failure(self, command: str, **inputs: Any) -> tuple[str, str]:
        with pytest.raises(ToolFailure) as failed:
            await self.run(command, **inputs)
        return failed.value.error.kind, failed.value.error.message

    async def read(self, reference: dict[str, Any]) -> bytes:
        found = self.data.reference(reference)
        assert found is not None
        return b"".join([piece async for piece in self.data.read(found)])
