"""Webhooks on real processes: signed events come through the gateway while the server is killed, and start once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import subprocess
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
from journey_stack import NOETL, ROOT, LiveStack
from yarl import URL

pytestmark = pytest.mark.xdist_group("journeys")

TRIGGER = ROOT / "playbooks" / "greet_on_push.trigger.yaml"
SECRET = "It's a Secret to Everybody"
EVENTS = 30
KILLED_AFTER = 8
"""So many events are answered when the server is killed."""

PATIENCE_S = 120.0


def noetl(stack: LiveStack, *words: str, given: str | None = None) -> str:
    command = [*NOETL, *words, "--home", str(stack.home)]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def gateway_of(stack: LiveStack) -> str:
    arguments = stack.process.args
    assert isinstance(arguments, list)
    return f"http://127.0.0.1:{arguments[arguments.index('--gateway-port') + 1]}"


def signed(body: bytes) -> dict[str, str]:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json"}


async def delivered(client: aiohttp.ClientSession, number: int) -> dict[str, Any]:
    """The answer to an event, which is sent again until there is one, as providers do."""
    body = json.dumps({"ref": "refs/heads/main", "pusher": {"name": f"ada {number}"}}).encode()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with client.post("/api/v1/hooks/examples/greet_on_push", data=body, headers=signed(body)) as answer:
                if answer.status < 500 and answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                    assert answer.status == 202, await answer.text()
                    found: dict[str, Any] = await answer.json()
                    return found


async def read(client: aiohttp.ClientSession, address: str, token: dict[str, str]) -> dict[str, Any]:
    async with client.get(URL(address, encoded=True), headers=token) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


@pytest.mark.verify
async def test_signed_events_start_once_each_though_the_server_is_killed(
    start_stack: Callable[[int, int], LiveStack],
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 1)
    await asyncio.to_thread(noetl, stack, "credential", "set", "examples.github_webhook", "--value-stdin", given=SECRET)
    await asyncio.to_thread(noetl, stack, "playbook", "register", str(ROOT / "playbooks" / "hello.yaml"))
    await asyncio.to_thread(noetl, stack, "trigger", "create", str(TRIGGER))
    async with aiohttp.ClientSession(gateway_of(stack)) as client:
        sending = [asyncio.create_task(delivered(client, number)) for number in range(EVENTS)]
        answers = []
        for number, one in enumerate(asyncio.as_completed(sending)):
            answers.append(await one)
            if number == KILLED_AFTER:
                stack.kill("server")
        assert {one["status"] for one in answers} == {"started"}
        assert await delivered(client, 0) in answers, "an event that is sent again is answered alike"
        forged = {**signed(b"{}"), "X-Hub-Signature-256": "sha256=" + "0" * 64}
        async with client.post("/api/v1/hooks/examples/greet_on_push", data=b"{}", headers=forged) as refused:
            assert refused.status == 404
        token = {"Authorization": f"Bearer {(stack.home / 'gateway.token').read_text().strip()}"}
        history = "/api/v1/triggers/examples%2Fgreet_on_push/events?limit=1000"
        listed = await read(client, history, token)
        ids = {one["execution_id"] for one in answers}
        assert sorted(one["number"] for one in listed["items"]) == list(range(1, EVENTS + 1))
        assert {one["execution_id"] for one in listed["items"]} == ids
        ended = [await read(client, f"/api/v1/executions/{one}?wait=60s", token) for one in ids]
        assert {one["status"] for one in ended} == {"completed"}
        executions = await read(client, "/api/v1/executions?limit=1000", token)
        assert {one["execution_id"] for one in executions["items"]} == ids
