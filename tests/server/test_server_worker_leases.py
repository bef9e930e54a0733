"""Leases of commands in simulated time: a living worker keeps its own, a dead one loses it."""

from __future__ import annotations

import pytest
from server_stage import Stage

from noetl_testkit.simulation.work import playbook, work


@pytest.mark.parametrize("takes_s", [60, pytest.param(3600, marks=pytest.mark.verify)])
async def test_a_living_worker_keeps_its_lease_in_simulated_time(stage: Stage, takes_s: float) -> None:
    await stage.server()
    stage.start_worker()
    execution_id = await stage.submit(playbook("long", [{"step": "long", "tool": work("done", takes_s)}]))
    assert (await stage.ended(execution_id, 2 * takes_s)).status == "completed"
    assert list(stage.effects.values()) == [1]


async def test_a_dead_worker_loses_its_lease_in_simulated_time(stage: Stage) -> None:
    await stage.server()
    host = stage.start_worker()
    execution_id = await stage.submit(playbook("long", [{"step": "long", "tool": work("done", 60)}]))
    await stage.until(lambda: stage.effects)
    host.kill()
    stage.start_worker()
    assert (await stage.ended(execution_id, 120)).status == "completed"
    assert list(stage.effects.values()) == [2]
