"""A holder whose worker dies frees its slot by its lease, and it is used again within the lease and a second."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import pytest
from server_stage import Stage
from tests.server.test_server_limits import limited, limited_step, running, waiting
from tests.server.test_server_task_limits import limited_task, parallel

from effort import times
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.worker.worker_limits import ACK_WAIT_S
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import run_worker
from noetl_testkit.simulation.work import WorkTool

SEEDS: Final = times(6)
HOLDERS: Final = {
    "execution": limited(),
    "step": limited_step(),
    "task": limited_task(),
    "iteration": limited_task(loop=parallel(2)),
    "local iteration": limited_task(loop=parallel(2, exec="local")),
}
MOST_MS: Final = 1000 * (ACK_WAIT_S + 1)


class Slow(FaultInjector):
    """Every call of a host takes its time, up to 20 ms."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def inject(self, host: SimulatedHost, point: str) -> None:
        await host.clock.sleep(self._random.uniform(0, 0.02))


class StuckAtFirst(WorkTool):
    """Work that never ends on its first worker, and takes no time on others."""

    begun: set[str]

    async def run(self, call: ToolCall) -> ToolResult:
        if call.task != "find" and call.idempotency_key not in self.begun:
            self.begun.add(call.idempotency_key)
            await asyncio.Event().wait()
        return ToolResult("done")


def start_worker(stage: Stage, injector: FaultInjector, begun: set[str]) -> SimulatedHost:
    host = stage.host("worker", injector)
    tool = StuckAtFirst(stage.clock, stage.effects, host.awake)
    tool.begun = begun
    stage.running.append(asyncio.create_task(run_worker(host, {"work": tool}, 8)))
    return host


def granted_at(stage: Stage, holders: set[str]) -> list[int]:
    """When slots were given to others than these."""
    rows = stage.tables.limits.rows.values()
    return [row.granted_ms for row in rows if row.granted_ms is not None and row.holder not in holders]


@pytest.mark.parametrize("what", HOLDERS)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_slot_is_used_again_within_the_lease_of_a_dead_worker_and_a_second(
    stage: Stage, what: str, seed: int
) -> None:
    random = Random(f"{what} {seed}")
    slow, begun = Slow(random), set[str]()
    servers = [stage.host("server", slow) for _ in range(2)]
    for server in servers:
        stage.start_server(server)
    holder = start_worker(stage, slow, begun)
    await stage.submit(HOLDERS[what])
    await stage.until(lambda: len(running(stage)) == 1 and begun)
    await stage.submit(HOLDERS[what])
    await stage.until(lambda: waiting(stage))
    held = {row.holder for row in stage.tables.limits.rows.values() if row.granted_ms is not None}
    start_worker(stage, slow, begun)
    await stage.pass_time(random.uniform(0, 45))
    assert not granted_at(stage, held), "it works, and is not hurried"
    holder.kill()
    died_ms = stage.clock.now_ms()
    if random.random() < 0.3:
        servers[0].kill()
    await stage.until(lambda: granted_at(stage, held))
    assert granted_at(stage, held)[0] - died_ms <= MOST_MS
