"""What the pages about agents say is true: the tools as they are, and configurations that clients can use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from agent import CHANGING, READING, Agent, agent_over_http, agent_over_stdio
from aiohttp import ClientSession
from gateway_stage import TOKEN, GatewayStage

from effort import first_in_gate
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.mcp.answers import BYTES_A_TOKEN, MAX_TOKENS
from noetl_stream.mcp.changing import MAX_WAIT_S
from noetl_stream.mcp.protocol import TOOLS
from noetl_stream.mcp.tools import AnyAgentTool
from noetl_stream.settings.sources.environment import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "agents.md").read_text()
GUIDE = (ROOT / "docs" / "how-to" / "let-an-agent-work.md").read_text()
CONFIGURATIONS = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", GUIDE, re.M | re.S)]
SERVERS = [next(iter(one.get("mcpServers", one.get("servers")).values())) for one in CONFIGURATIONS]


def row(tool: AnyAgentTool) -> str:
    schema = tool.input_schema
    needed = [name for name in schema["properties"] if name in schema.get("required", ())]
    others = [name for name in schema["properties"] if name not in needed]
    parts = [", ".join(f"`{name}`" for name in needed), ", ".join(f"`{name}`" for name in others)]
    arguments = "; optional ".join(part for part in parts if part)
    arguments = arguments if needed else f"optional {arguments}"
    return f"| `{tool.name}` | {tool.role} | `{tool.operation}` | {tool.title} | {arguments} |"


def test_the_page_lists_every_tool() -> None:
    section = PAGE.split("\n## Tools\n")[1].split("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith("| `")]
    assert shown == [row(tool) for tool in TOOLS]


def test_a_tool_needs_the_role_of_its_operation_and_adds_work_as_that_does() -> None:
    routes = {route.operation: route for route in RESOURCES}
    for tool in TOOLS:
        route = routes[tool.operation]
        assert (tool.role, tool.adds_work) == (route.role, route.adds_work), tool.name
        assert tool.changes == (route.method != "GET" and not route.reads), tool.name


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"at most {MAX_TOKENS:,} tokens, at {BYTES_A_TOKEN:g} bytes" in PAGE
    assert f"at most {MAX_WAIT_S:g} seconds" in PAGE
    assert Settings.from_environment({}).gateway_mcp == "read"


async def test_a_model_gets_the_descriptions_it_needs_to_choose_a_tool(stage: GatewayStage) -> None:
    async with agent_over_http(stage.url) as agent:
        listed = (await agent.client.list_tools()).tools
        assert agent.client.server_info.name == "noetl-stream"
        assert "never an instruction" in (agent.client.instructions or "")
    assert len(json.dumps([tool.model_dump(mode="json") for tool in listed])) < 30_000, "it is read each time"
    for tool in listed:
        assert tool.description is not None
        assert 20 < len(tool.description) < 300, tool.name
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (tool.name in READING)
        assert tool.annotations.idempotent_hint
        assert tool.annotations.destructive_hint == (tool.name in {"patch", "cancel", "compensate"})
        assert tool.output_schema is not None
        assert ("request_id" in tool.input_schema.get("required", ())) == (tool.name in CHANGING)
        assert all("title" not in one for one in tool.input_schema["properties"].values())


def test_each_configuration_is_one_that_a_client_reads() -> None:
    assert len(CONFIGURATIONS) == 5
    for server in SERVERS:
        assert set(server) in (
            {"command", "args"},
            {"type", "command", "args"},
            {"command", "args", "env"},
            {"type", "url", "headers"},
        )


@pytest.mark.xdist_group("stack")
@pytest.mark.parametrize(
    "server", first_in_gate(one for one in SERVERS if "command" in one), ids=lambda one: " ".join(one["args"])
)
async def test_a_command_of_the_page_serves_an_agent(stage: GatewayStage, shared_home: Path, server: Any) -> None:
    assert server["command"] == "noetl-stream"
    word, *arguments = [stage.url if one.startswith("http") else one for one in server["args"]]
    assert word == "mcp"
    settings = {"NOETL_TOKEN": TOKEN} if "--url" in arguments else {"NOETL_HOME": str(shared_home)}
    async with agent_over_stdio(*arguments, **settings) as agent:
        await check(agent, changes="--allow-changes" in arguments)


@pytest.mark.parametrize("server", [one for one in SERVERS if "url" in one], ids=lambda one: str(one["headers"]))
async def test_an_address_of_the_page_serves_an_agent(reading_stage: GatewayStage, server: Any) -> None:
    path = server["url"].removeprefix("https://noetl.example.com")
    headers = {name: re.sub(r"\$\{.*\}", TOKEN, value) for name, value in server["headers"].items()}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with ClientSession(reading_stage.url, headers=headers) as client, client.post(path, json=ping) as answer:
        assert (await answer.json())["result"] == {}


async def check(agent: Agent, *, changes: bool) -> None:
    assert await agent.tools() == (READING | CHANGING if changes else READING)
    await agent.data("list_playbooks")
