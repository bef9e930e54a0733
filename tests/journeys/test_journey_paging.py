"""Loops over a result that is larger than the server reads, on real NATS and Postgres (LANGUAGE §6)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.model.limits import Limits
from noetl_stream.operations.executions.reading.documents import result_of
from noetl_stream.protocol.nats_permissions import GATEWAY
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import connect
from noetl_testkit.following import Submission, Watcher, submit

pytestmark = pytest.mark.xdist_group("stack")

ROWS, TEXT = 45, 100_000
PATIENCE_S = 60.0
FETCH = f"result = {{'rows': [{{'n': n, 'cells': [n, -n], 'text': 'x' * {TEXT}}} for n in range({ROWS})]}}"


def playbook() -> str:
    """A nested distributed loop, then one in one worker, over the same rows."""

    def then(step: str) -> dict[str, Any]:
        return {"arcs": [{"step": step}]}

    cells = {"in": "{{ row.cells }}", "iterator": "cell", "spec": {"mode": "parallel"}}
    each = {"in": "{{ fetch.rows }}", "iterator": "row", "spec": {"mode": "parallel"}, "loop": cells}
    walk = {"in": "{{ fetch.rows }}", "iterator": "row"}
    seen = {"n": "{{ row.n }}", "length": "{{ row.text | length }}", "of": "{{ iter.count }}"}
    workflow = [
        {"step": "fetch", "tool": {"kind": "python", "code": FETCH}, "next": then("each")},
        {"step": "each", "loop": each, "tool": {"kind": "noop", "args": {"cell": "{{ cell }}"}}, "next": then("walk")},
        {"step": "walk", "loop": walk, "tool": {"kind": "noop", "args": seen}, "next": then("all")},
        {"step": "all", "tool": {"kind": "noop", "args": {"each": "{{ each }}", "walk": "{{ walk }}"}}},
    ]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "paging", "path": "tests/paging"}}
    return json.dumps({**head, "workflow": workflow})


async def test_loops_of_every_shape_run_over_a_result_larger_than_the_server_reads(shared_home: Path) -> None:
    assert Limits().max_resolve_bytes < ROWS * TEXT
    with EmbeddedStack.join(shared_home) as embedded:
        endpoint = embedded_endpoint(embedded, Settings(), GATEWAY)
        connected = await connect(endpoint, name="journey")
        try:
            client = make_client(connected)
            submission = Submission.new(playbook(), "tests/paging", {}, connected.clock)
            follower = await Watcher(connected.bus, submission.execution_id).open()
            async with asyncio.timeout(PATIENCE_S):
                await submit(client, submission, follower)
                await follower.finished.wait()
            await follower.close()
            row = await connected.store.execution(submission.execution_id)
            journal = await connected.store.journal(submission.execution_id)
        finally:
            await connected.close()
    assert row is not None
    assert result_of(row) == {
        "each": [[{"cell": n}, {"cell": -n}] for n in range(ROWS)],
        "walk": [{"n": n, "length": TEXT, "of": ROWS} for n in range(ROWS)],
    }
    names = Counter(entry.name for entry in journal)
    assert (names["loop.paged_out"], names["loop.paged"]) == (2, 0)
    assert names["reference.awaited"] >= ROWS // 2, "the server looks into the pages of the level around"
    assert sum(len(entry.data) for entry in journal) < ROWS * TEXT / 8, "the journal holds no item"
