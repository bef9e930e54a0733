"""An agent's program: the official SDK's own client, over HTTP or over stdin and stdout."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from gateway_stage import TOKEN, GatewayStage
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from cli_program import NOETL, environment
from noetl_stream.mcp.answers import MAX_BYTES
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.access import NewToken

READING = {
    "get_schema", "list_playbooks", "check_playbook", "explain_playbook", "list_executions", "why", "list_events",
    "get_event", "get_result", "diff_executions",
}  # fmt: skip
CHANGING = {"start", "rerun", "compensate", "patch", "signal", "cancel"}


class ToolRefused(Exception):
    """The error that a tool has answered with."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(str(document))
        self.document = document


class Agent(NamedTuple):
    """What a model sees of a server."""

    client: Client

    async def tools(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def ask(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """What a tool answers: a model can hold it, and it is the same as text and as structured content.

        Raises:
            ToolRefused: it is an error.
        """
        answer = await self.client.call_tool(name, arguments)
        assert isinstance(answer, CallToolResult)
        (text,) = answer.content
        assert text.type == "text"
        assert len(text.text.encode()) <= MAX_BYTES
        assert json.loads(text.text) == answer.structured_content
        found: dict[str, Any] = answer.structured_content
        if answer.is_error:
            raise ToolRefused(found)
        return found

    async def data(self, name: str, /, **arguments: Any) -> Any:
        """What a tool answers, without what is around it."""
        return (await self.ask(name, **arguments))["data"]

    async def refused(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a tool."""
        try:
            found = await self.ask(name, **arguments)
        except ToolRefused as refused:
            return refused.document
        raise AssertionError(f"{name} was not refused: {found}")


@asynccontextmanager
async def agent_over_http(url: str, token: str = TOKEN, mode: str = "auto") -> AsyncIterator[Agent]:
    """
    Args:
        mode: Of the protocol: ``legacy`` shakes hands first, as clients of 2025 do.
    """
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield Agent(client)


@asynccontextmanager
async def agent_over_stdio(*arguments: object, mode: str = "auto", **settings: str) -> AsyncIterator[Agent]:
    command, *words = (*NOETL, "mcp", *map(str, arguments))
    started = StdioServerParameters(command=command, args=words, env=environment(**settings))
    async with Client(started, mode=mode) as client:
        yield Agent(client)


async def token_of(stage: GatewayStage, role: Role, *paths: str) -> str:
    """A new token's text."""
    made = await stage.operations.access.create_token(NewToken(f"{role}-agent", role, paths), "test")
    assert made.secret is not None
    return made.secret
