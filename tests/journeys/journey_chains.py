"""Executions of a chain of steps, submitted as a client does."""

from __future__ import annotations

import json

from noetl_stream.client.executions.submit import Submission
from noetl_stream.concurrency import set_within
from noetl_stream.wiring import Connected, make_client

PATIENCE_S = 120.0


def chain(steps: int) -> str:
    """A playbook of this many Python steps, each of which passes a number on."""
    workflow = [
        {
            "step": f"s{n}",
            "tool": {"kind": "python", "args": {"n": f"{{{{ s{n - 1} }}}}" if n else 0}, "code": "result = n + 1"},
            **({"next": {"arcs": [{"step": f"s{n + 1}"}]}} if n + 1 < steps else {}),
        }
        for n in range(steps)
    ]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "chain", "path": "tests/chain"}}
    return json.dumps({**head, "workflow": workflow})


async def submit_and_end(connected: Connected, source: str) -> str:
    client = make_client(connected)
    submission = Submission.new(source, "tests/chain", {}, connected.clock)
    follower = await client.follow(submission.execution_id).open()
    try:
        await client.submit(submission, follower)
        assert await set_within(follower.finished, PATIENCE_S)
    finally:
        await follower.close()
    return submission.execution_id
