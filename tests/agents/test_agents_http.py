"""Agents over HTTP, by the SDK's own client: what each role is offered, what it may, and what is recorded of it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from agent import CHANGING, READING, agent_over_http, token_of
from aiohttp import ClientSession
from gateway_playbooks import HELD, LOOP
from gateway_stage import AS_ADMIN, GatewayStage

from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.mcp.protocol import TOOLS
from noetl_stream.ports.stores.identities import AuditEntry, Caller
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def audited(stage: GatewayStage) -> list[AuditEntry]:
    """The calls of tools in the audit, oldest first."""
    entries = await stage.audit.page(100, None, None)
    return [entry for entry in reversed(entries) if entry.attempt.method == "MCP"]


async def register(stage: GatewayStage, text: str) -> None:
    await stage.operations.playbooks.register(text.encode(), "playbook", "ann")


async def count(stage: GatewayStage) -> int:
    async with agent_over_http(stage.url) as agent:
        return len((await agent.data("list_executions"))["items"])


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_of_either_protocol_lists_executions(reading_stage: GatewayStage, mode: str) -> None:
    async with agent_over_http(reading_stage.url, mode=mode) as agent:
        assert await agent.data("list_executions") == {"items": []}


def test_a_tool_takes_the_role_of_its_operation() -> None:
    routes = {route.operation: route for route in RESOURCES}
    for tool in TOOLS:
        route = routes[tool.operation]
        assert (tool.role, tool.changes, tool.adds_work) == (route.role, route.changes, route.adds_work), tool.name
    assert {tool.name for tool in TOOLS} == READING | CHANGING


async def test_a_gateway_without_a_setting_offers_nothing_that_changes(reading_stage: GatewayStage) -> None:
    async with agent_over_http(reading_stage.url) as agent:
        assert await agent.tools() == READING
        refused = await agent.refused("cancel", execution_id="one", request_id="1")
    assert refused["kind"] == "forbidden"
    assert "NOETL_GATEWAY_MCP=changes" in refused["hint"]
    (entry,) = await audited(reading_stage)
    assert (entry.attempt.operation, entry.attempt.target) == ("cancelExecution", "one")
    assert entry.answer is not None
    assert entry.answer.status == 403


async def test_a_tool_that_the_role_forbids_is_neither_listed_nor_run(stage: GatewayStage) -> None:
    await register(stage, LOOP)
    async with agent_over_http(stage.url, await token_of(stage, "viewer")) as agent:
        assert await agent.tools() == READING
        refused = await agent.refused("start", path="tests/loop", request_id="1")
    assert (refused["kind"], refused["error"]) == ("forbidden", "start needs the role operator; you have viewer")
    async with agent_over_http(stage.url, await token_of(stage, "operator")) as agent:
        assert await agent.tools() == READING | CHANGING
        refused = await agent.refused("start", playbook=LOOP, request_id="1")
    assert (refused["kind"], refused["hint"]) == ("forbidden", "this needs the role author or a higher one")
    assert await count(stage) == 0
    assert [entry.answer.status for entry in await audited(stage) if entry.answer] == [403, 403]


async def test_a_token_with_paths_sees_and_starts_nothing_outside_them(stage: GatewayStage) -> None:
    await register(stage, LOOP)
    await register(stage, HELD)
    async with agent_over_http(stage.url, await token_of(stage, "operator", "tests/held")) as agent:
        assert [one["path"] for one in (await agent.data("list_playbooks"))["items"]] == ["tests/held"]
        assert (await agent.refused("explain_playbook", path="tests/loop"))["kind"] == "forbidden"
        assert (await agent.refused("start", path="tests/loop", request_id="1"))["kind"] == "forbidden"


async def test_a_repeated_change_is_done_once_and_recorded_each_time(stage: GatewayStage) -> None:
    await register(stage, LOOP)
    wanted: dict[str, Any] = {"path": "tests/loop", "request_id": "mine-1", "reason": "tried", "wait_s": 20}
    async with agent_over_http(stage.url, await token_of(stage, "operator")) as agent:
        first = await agent.data("start", **wanted)
        assert first["status"] == "completed"
        assert await agent.data("start", **wanted) == first
        again = await asyncio.gather(*(agent.data("start", **wanted) for _ in range(5)))
        assert again == [first] * 5
        refused = await agent.refused("start", **{**wanted, "workload": {"other": 1}})
    assert refused["error"] == "request_id 'mine-1' was used for another call"
    assert await count(stage) == 1
    *seven, other = await audited(stage)
    assert len(seven) == 7
    for entry in seven:
        assert (entry.attempt.operation, entry.attempt.target) == ("startExecution", "tests/loop")
        assert (entry.attempt.principal, entry.attempt.idempotency_key) == ("token:operator-agent", "mine-1")
        assert entry.answer is not None
        assert (entry.answer.status, entry.answer.reason) == (200, "tried")
        assert entry.answer.made == first["execution_id"]
    assert other.answer is not None
    assert other.answer.status == 422


async def test_a_held_execution_is_moved_and_another_cancelled(stage: GatewayStage) -> None:
    await register(stage, HELD)
    async with agent_over_http(stage.url, await token_of(stage, "operator")) as agent:
        held = (await agent.data("start", path="tests/held", request_id="1"))["execution_id"]
        other = (await agent.data("start", path="tests/held", request_id="2"))["execution_id"]
        accepted = await agent.data("patch", execution_id=held, keys={"go": True}, request_id="3", reason="agreed")
        assert accepted["execution_id"] == held
        ended = await stage.operations.executions.wait(held, TIMEOUT_S)
        assert (ended.status, ended.ctx) == ("completed", {"go": True})
        (change,) = (await stage.operations.executions.ctx(held)).history
        assert (change.principal, change.reason) == ("token:operator-agent", "agreed")
        await agent.data("cancel", execution_id=other, request_id="4")
        assert (await stage.operations.executions.wait(other, TIMEOUT_S)).status == "cancelled"
        refused = await agent.refused("patch", execution_id=other, keys={"go": True}, request_id="5")
        assert refused["kind"] == "conflict"
        assert await agent.refused("patch", execution_id=other, keys={"go": True}, request_id="5") == refused
        rerun = await agent.data("rerun", execution_id=held, step="start", request_id="6", wait_s=50)
        assert (rerun["status"], rerun["rerun_of"]) == ("completed", held)


async def test_wrong_arguments_are_named(stage: GatewayStage) -> None:
    async with agent_over_http(stage.url) as agent:
        refused = await agent.refused("list_executions", limit=1000, stauts=["failed"])
        assert refused["kind"] == "invalid"
        assert "limit: Input should be less than or equal to 100" in refused["error"]
        assert "stauts: Extra inputs are not permitted" in refused["error"]
        assert "started_from" in refused["hint"]
        assert (await agent.refused("list_everything"))["error"] == "there is no tool 'list_everything'"
        assert (await agent.refused("why", execution_id="nobody"))["kind"] == "not-found"
        assert "request_id: Field required" in (await agent.refused("cancel", execution_id="one"))["error"]


async def test_an_internal_error_reveals_nothing() -> None:
    async def why(_execution_id: str) -> None:
        raise RuntimeError("a password")

    broken = GatewayStage(GatewayLimits())
    broken.replace(why=why)
    async with broken.open(), agent_over_http(broken.url) as agent:
        refused = await agent.refused("why", execution_id="one")
    assert refused == {"kind": "internal", "error": "it failed; the log has the details"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "attacker.example"}, 403),
        ({"Authorization": "Bearer noetl_wrong"}, 401),
        ({"Content-Type": "text/plain"}, 415),
        ({"Accept": "text/html"}, 406),
    ],
)
async def test_the_door_is_as_narrow_as_that_of_the_api(
    stage: GatewayStage, headers: dict[str, str], status: int
) -> None:
    given = {**AS_ADMIN, "Content-Type": "application/json", **headers}
    async with ClientSession(stage.url) as client, client.post("/mcp", json=PING, headers=given) as answer:
        assert answer.status == status, await answer.text()


async def test_a_browser_session_calls_no_tools(stage: GatewayStage) -> None:
    origin = {"Origin": stage.url}
    async with ClientSession(stage.url) as client:
        async with client.post("/api/v1/session/codes", headers=AS_ADMIN) as made:
            code = (await made.json())["code"]
        async with client.post("/api/v1/session", json={"code": code}, headers=origin) as opened:
            cookie = opened.headers["Set-Cookie"].partition(";")[0]
            csrf = (await opened.json())["csrf_token"]
        own = {**origin, "Cookie": cookie, "X-CSRF-Token": csrf}
        async with client.post("/mcp", json=PING, headers=own) as answer:
            assert (answer.status, (await answer.json())["detail"]) == (403, "a browser session cannot call tools")


async def test_a_body_over_the_limit_is_not_read() -> None:
    async with GatewayStage(GatewayLimits(max_body_bytes=2000)).open() as small:
        wanted = {**PING, "params": {"long": "x" * 3000}}
        async with small.client.post("/mcp", json=wanted) as answer:
            assert answer.status == 413


async def test_checks_in_progress_have_a_bound() -> None:
    async with GatewayStage(GatewayLimits(max_checks=1)).open() as narrow:
        with narrow.gateway.pressure.checks.entered(Caller("token:other", "admin"), "elsewhere"):
            async with agent_over_http(narrow.url) as agent:
                assert (await agent.refused("check_playbook", playbook=LOOP))["kind"] == "too-busy"


async def test_agents_can_be_switched_off() -> None:
    off = GatewayStage(GatewayLimits(), agents="off")
    async with off.open(), off.client.post("/mcp", json=PING) as answer:
        assert (answer.status, (await answer.json())["hint"]) == (404, "set it to read, or to changes")


async def test_only_posts_are_answered(stage: GatewayStage) -> None:
    async with stage.client.get("/mcp") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_a_gateway_without_the_extra_says_what_to_install(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("noetl_stream.mcp.protocol")
    monkeypatch.delitem(sys.modules, "noetl_stream.mcp.protocol")
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    async with stage.client.post("/mcp", json=PING) as answer:
        assert (answer.status, (await answer.json())["hint"]) == (404, "install noetl-stream[mcp]")


async def test_while_the_servers_are_behind_nothing_is_started_and_a_cancel_is_let_in() -> None:
    async with GatewayStage(GatewayLimits(max_behind=-1), agents="changes").open() as behind:
        await register(behind, LOOP)
        async with agent_over_http(behind.url) as agent:
            refused = await agent.refused("start", path="tests/loop", request_id="1")
            assert refused["kind"] == "too-busy"
            assert "servers are 0 messages behind" in refused["error"]
            assert (await agent.refused("cancel", execution_id="nobody", request_id="2"))["kind"] == "not-found"
        assert [entry.answer.status for entry in await audited(behind) if entry.answer] == [429, 404]
