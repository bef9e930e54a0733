"""Triggers on a stream of NATS, on real processes: messages come while servers are killed, and start once, in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import nats
import pytest
from journey_stack import NOETL, ROOT, LiveStack
from nats.js import JetStreamContext

from noetl_stream.protocol.nats_permissions import PUBLISHER

pytestmark = pytest.mark.xdist_group("journeys")

PATH = "examples/greet_from_nats"
TRIGGER = ROOT / "playbooks" / "greet_from_nats.trigger.yaml"
MESSAGES = 80
KILLED_AT = (20, 50)
"""So many messages are published when all servers are killed."""

UNREAD = 10
"""About so many of them are not taken yet."""

PATIENCE_S = 180.0


async def noetl(stack: LiveStack, *words: str) -> str:
    command = [*NOETL, *words, "--home", str(stack.home)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE_S):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed
    return printed.decode()


async def until_taken(stack: LiveStack, count: int, running: int = MESSAGES) -> dict[str, Any]:
    """The trigger, once it has taken so many messages, and so few of their executions run."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            state: dict[str, Any] = json.loads(await noetl(stack, "trigger", "get", PATH, "-o", "json"))
            if state["events"] >= count and state["stream"]["running"] <= running:
                return state


async def published(jetstream: JetStreamContext, number: int) -> None:
    body = json.dumps({"id": number, "name": f"ada {number}"}).encode()
    async with asyncio.timeout(PATIENCE_S):
        await jetstream.publish(f"visits.{number % 3}", body)


@pytest.mark.verify
async def test_messages_start_once_each_in_order_though_servers_are_killed(
    start_stack: Callable[[int, int], LiveStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_TRIGGER_STREAMS", "VISITS")
    stack = await asyncio.to_thread(start_stack, 2, 1)
    address = stack.embedded.address
    client = await nats.connect(address.nats_url, nkeys_seed_str=address.seeds[PUBLISHER])
    jetstream = client.jetstream()
    await jetstream.add_stream(name="VISITS", subjects=["visits.>"])
    await noetl(stack, "playbook", "register", str(ROOT / "playbooks" / "hello.yaml"))
    await noetl(stack, "trigger", "create", str(TRIGGER))
    for number in range(1, MESSAGES + 1):
        await published(jetstream, number)
        if number in KILLED_AT:
            await until_taken(stack, number - UNREAD)
            for server in stack.roles("server"):
                os.kill(server, signal.SIGKILL)
            await published(jetstream, number)  # a key that has started before
    wanted = MESSAGES + len(KILLED_AT)
    state = await until_taken(stack, wanted, running=0)
    assert (state["events"], state["stream"]["sequence"], state["stream"]["pending"]) == (wanted, wanted, 0)
    history = ["trigger", "history", PATH, "--limit", "1000", "-o", "json"]
    listed = sorted(json.loads(await noetl(stack, *history)), key=lambda one: one["number"])
    assert [one["number"] for one in listed] == list(range(1, wanted + 1))
    started = [one for one in listed if one["status"] == "started"]
    assert [int(one["key"]) for one in started] == list(range(1, MESSAGES + 1)), "in the order of the stream"
    assert [one["status"] for one in listed].count("repeated") == len(KILLED_AT)
    executions = json.loads(await noetl(stack, "execution", "list", "--limit", "1000", "-o", "json"))
    assert {one["execution_id"] for one in executions} == {one["execution_id"] for one in started}
    assert {one["status"] for one in executions} == {"completed"}
    await client.close()
