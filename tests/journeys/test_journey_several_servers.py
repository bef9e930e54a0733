"""Several servers and workers at once on one stack: everything completes, every step runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from journey_chain import STEPS, chain, check_completed, submit_and_end
from journey_stack import LiveStack

from noetl_stream.wiring.stores import connect

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

EXECUTIONS = 200


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
