"""Several servers and workers at once on one stack: everything completes, every step runs once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from journey_chains import chain, submit_and_end
from journey_stack import LiveStack

from noetl_stream.model import codec
from noetl_stream.ports.journal import events_of
from noetl_stream.ports.store import Store, StoredEvent
from noetl_stream.wiring import connect

pytestmark = pytest.mark.xdist_group("journeys")

EXECUTIONS = 200
STEPS = 5


def runs_by_step(journal: list[StoredEvent]) -> Counter[str]:
    """How often each task was processed."""
    return Counter(codec.decode_json(row.data)["task"] for row in journal if row.name == "task.processed")


async def check_completed(store: Store, execution_ids: list[str]) -> None:
    rows = await store.executions(execution_ids)
    assert Counter(row.status for row in rows.values()) == {"completed": len(execution_ids)}
    assert {bytes(codec.decode_payload(row.result or b"").value) for row in rows.values()} == {str(STEPS).encode()}
    for execution_id, entries in (await store.journals(execution_ids)).items():
        journal = list(events_of(execution_id, entries))
        assert [row.position for row in journal] == list(range(1, len(journal) + 1))
        assert runs_by_step(journal) == {f"s{n}_task": 1 for n in range(STEPS)}
        assert sum(row.name == "step.done" for row in journal) == STEPS


@pytest.mark.verify
async def test_two_servers_and_three_workers_run_each_step_of_200_executions_once(
    start_stack: Callable[[int, int], LiveStack],
) -> None:
    stack = await asyncio.to_thread(start_stack, 2, 3)
    connected = await connect(stack.endpoint, name="journey")
    try:
        source = chain(STEPS)
        ids = await asyncio.gather(*(submit_and_end(connected, source) for _ in range(EXECUTIONS)))
        await check_completed(connected.store, list(ids))
    finally:
        await connected.close()


async def test_a_second_server_takes_over_what_a_dead_one_was_doing(
    start_stack: Callable[[int, int], LiveStack],
) -> None:
    stack = await asyncio.to_thread(start_stack, 2, 1)
    connected = await connect(stack.endpoint, name="journey")
    try:
        source = chain(STEPS)
        first = await asyncio.gather(*(submit_and_end(connected, source) for _ in range(20)))
        stack.kill("server")
        second = await asyncio.gather(*(submit_and_end(connected, source) for _ in range(40)))
        await check_completed(connected.store, [*first, *second])
    finally:
        await connected.close()
