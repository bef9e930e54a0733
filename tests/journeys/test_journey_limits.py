"""A limit by key on a real stack: one at a time, in order, while servers and workers are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from journey_chain import submit_and_end
from journey_stack import LiveStack

from noetl_stream.wiring.stores import connect
from noetl_testkit.waiting import until_it_is

pytestmark = pytest.mark.xdist_group("journeys")

SOURCE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: limited, path: journeys/limited }
executor: { spec: { policy: { concurrency: { key: journey, limit: 1 } } } }
workflow:
  - step: first
    tool: { kind: wait, for_s: 1 }
    next: { arcs: [ { step: then } ] }
  - step: then
    tool: { kind: shell, command: [ "true" ] }
"""
EXECUTIONS = 6


@pytest.mark.verify
async def test_executions_take_turns_although_a_server_and_a_worker_are_killed(
    start_stack: Callable[[int, int], LiveStack],
) -> None:
    stack = await asyncio.to_thread(start_stack, 2, 2)
    connected = await connect(stack.endpoint, name="journey")
    store = connected.store
    try:
        ends = [asyncio.create_task(submit_and_end(connected, SOURCE)) for _ in range(EXECUTIONS)]

        async def are_all_there() -> bool:
            found = [row for held in (True, False) for row in await store.limit_slots_page(await limit_id(), held, 99)]
            return len(found) >= EXECUTIONS - 1

        async def limit_id() -> str:
            rows = await store.list_aggregates("Limit", "journey", 1, None)
            return rows[0].id if rows else ""

        await until_it_is(True, are_all_there)
        stack.kill("server")
        stack.kill("worker")
        ids = await asyncio.gather(*ends)
        held = []
        for execution_id in ids:
            journal = await store.journal(execution_id, -1)
            (granted,) = [event.at_ms for event in journal if event.name == "slot.granted"]
            (finished,) = [event.at_ms for event in journal if event.name == "execution.finished"]
            row = await store.execution(execution_id)
            assert row is not None and row.status == "completed"
            held.append((granted, finished))
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(held))), "one at a time"
        assert not await store.limit_slots_page(await limit_id(), True, 9)
    finally:
        await connected.close()
