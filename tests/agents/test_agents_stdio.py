"""Agents at stdin and stdout of ``noetl-stream mcp``, by the SDK's own client, on a real stack."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent import CHANGING, READING, agent_over_stdio

from cli_program import FAILING, NOETL, ONE_STEP, PATIENCE_S, environment, noetl, one_clear_line, only_json
from effort import first_in_gate

SECRET = "Kanari-4711-of-agents"
TELLS = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tells, path: tests/tells}
keychain: [{name: agents_secret, kind: credential}]
workflow:
  - step: tell
    tool:
      kind: python
      args: {key: "{{ keychain.agents_secret.key }}", given: "{{ workload.given }}"}
      code: |
        result = {"same": key == given, "key": key, "given": given}
"""

pytestmark = pytest.mark.xdist_group("stack")


def gateway_of(home: Path) -> str:
    found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", (home / "dev.log").read_text())
    assert found is not None
    return found[1]


def token(home: Path, role: str) -> str:
    made = noetl("token", "create", f"stdio-{role}", "--role", role, "-o", "json", "--home", home)
    return str(only_json(made)["secret"])


def revoke(home: Path, secret: str) -> None:
    assert noetl("token", "revoke", secret.split("_")[1], "--home", home).returncode == 0


@pytest.mark.parametrize("mode", first_in_gate(["auto", "legacy"]))
async def test_an_agent_of_either_protocol_reads_at_stdin(shared_home: Path, mode: str) -> None:
    async with agent_over_stdio("--home", shared_home, mode=mode) as agent:
        assert await agent.tools() == READING
        assert isinstance((await agent.data("list_executions"))["items"], list)
        refused = await agent.refused("start", playbook=ONE_STEP, request_id="1")
        assert (refused["kind"], "--allow-changes" in refused["hint"]) == ("forbidden", True)


@pytest.mark.verify
async def test_a_start_that_is_repeated_by_another_process_is_done_once(shared_home: Path) -> None:
    wanted: dict[str, Any] = {
        "playbook": ONE_STEP,
        "workload": {"who": "agent"},
        "request_id": "stdio-once",
        "reason": "tried",
        "wait_s": 50,
    }
    async with agent_over_stdio("--home", shared_home, "--allow-changes") as agent:
        assert await agent.tools() == READING | CHANGING
        ended = await agent.data("start", **wanted)
        assert ended["status"] == "completed", ended
        one = ended["execution_id"]
        assert (await agent.data("get_result", execution_id=one, pointer="/result/hello")) == "agent"
        assert (await agent.data("get_result", execution_id=one, step="greet", pointer="/result/deep/left")) == 1
        assert "has not run" in (await agent.refused("get_result", execution_id=one, step="nothing"))["error"]
    async with agent_over_stdio("--home", shared_home, "--allow-changes") as agent:
        assert (await agent.data("start", **wanted))["execution_id"] == one
        refused = await agent.refused("start", **{**wanted, "workload": {}})
        assert refused["error"] == "request_id 'stdio-once' was used for another call"


async def test_a_failed_run_is_debugged_through_a_gateway(shared_home: Path) -> None:
    secret = token(shared_home, "author")
    target = ("--url", gateway_of(shared_home))
    wanted: dict[str, Any] = {"playbook": FAILING, "request_id": "stdio-fails", "wait_s": 50}
    async with agent_over_stdio(*target, "--allow-changes", NOETL_TOKEN=secret) as agent:
        failed = await agent.data("start", **wanted)
        one = failed["execution_id"]
        assert (failed["status"], failed["principal"]) == ("failed", "token:stdio-author")
        assert "it is broken" in str(await agent.data("why", execution_id=one))
        listed = await agent.data("list_events", execution_id=one)
        last = next(event for event in listed["items"] if event["name"].startswith("task."))
        whole = await agent.data("get_event", execution_id=one, position=last["position"])
        assert whole["position"] == last["position"]
        assert (await agent.data("start", **wanted))["execution_id"] == one
        assert (await agent.refused("start", **{**wanted, "ctx": {"a": 1}}))["kind"]
        absent = await agent.refused("get_event", execution_id=one, position=9999)
        assert (absent["kind"], absent["hint"]) == ("not-found", "list_events shows the positions")
    revoke(shared_home, secret)


@pytest.mark.verify
async def test_through_a_gateway_the_role_of_the_token_decides(shared_home: Path) -> None:
    secret = token(shared_home, "viewer")
    target = ("--url", gateway_of(shared_home))
    async with agent_over_stdio(*target, "--allow-changes", NOETL_TOKEN=secret) as agent:
        assert await agent.tools() == READING
        refused = await agent.refused("cancel", execution_id="one", request_id="1")
        assert refused["error"] == "cancel needs the role operator; you have viewer"
    revoke(shared_home, secret)


async def test_no_answer_has_a_secret(shared_home: Path) -> None:
    stored = noetl("credential", "set", "agents_secret", "--set", f"key={SECRET}", "--home", shared_home)
    assert stored.returncode == 0, stored.stderr
    wanted: dict[str, Any] = {"playbook": TELLS, "workload": {"given": SECRET}, "request_id": "tells", "wait_s": 50}
    async with agent_over_stdio("--home", shared_home, "--allow-changes") as agent:
        ended = await agent.data("start", **wanted)
        one = ended["execution_id"]
        result = await agent.data("get_result", execution_id=one)
        assert result["result"] == {"same": True, "key": "***", "given": "***"}, ended
        listed = (await agent.data("list_events", execution_id=one, limit=200))["items"]
        found = [ended, result, await agent.data("why", execution_id=one)]
        for at in (event["position"] for event in listed):
            found += [await agent.data("get_event", execution_id=one, position=at)]
        found.append(await agent.data("diff_executions", execution_id=one, other=one))
    assert SECRET not in str(found)
    assert str(found).count("***") >= 4
    assert noetl("credential", "delete", "agents_secret", "--home", shared_home).returncode == 0


def test_a_signal_ends_the_server_of_agents_while_its_client_is_silent(shared_home: Path) -> None:
    process = subprocess.Popen(
        [*NOETL, "mcp", "--home", str(shared_home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "noetl-stream"
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.communicate()


def test_an_unreachable_gateway_is_reported(tmp_path: Path) -> None:
    ended = noetl("mcp", "--url", "http://127.0.0.1:1", NOETL_TOKEN="none")
    assert ended.returncode == 3
    assert "127.0.0.1:1" in one_clear_line(ended)


def test_without_the_extra_the_command_says_what_to_install() -> None:
    program = "import sys; sys.modules['mcp_types'] = None; from noetl_stream.cli.main import main; main(['mcp'])"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
        check=False,
    )
    assert ended.returncode == 2
    assert "install noetl-stream[mcp]" in one_clear_line(ended)
