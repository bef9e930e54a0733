"""Seeded stories of servers and workers that go wrong in every way they know (PROTOCOL §6).

More of them: ``python -m noetl_stream.testing.simulation.simulation --seeds 5000``.
"""

from __future__ import annotations

from collections import Counter

import pytest
from server_stage import Stage

from effort import SIMULATIONS
from noetl_stream.testing.simulation.faults import HARMLESS, TOUCHING, FaultPlan
from noetl_stream.testing.simulation.poison import POISONS
from noetl_stream.testing.simulation.simulation import simulate
from noetl_stream.testing.simulation.work import playbook, work

SEEDS = SIMULATIONS
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_every_execution_ends_correctly_despite_faults(first: int) -> None:
    broken = [report for seed in range(first, first + SEEDS_A_TEST) if (report := simulate(seed)).problems]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.parametrize("kind", [*HARMLESS, *TOUCHING])
def test_each_kind_of_trouble_alone_is_survived(kind: str) -> None:
    broken = [report for seed in range(3) if (report := simulate(seed, (kind,))).problems]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.parametrize("kind", POISONS)
def test_an_execution_that_cannot_be_folded_is_set_aside_alone_and_goes_on_once_that_is_mended(kind: str) -> None:
    broken = [report for seed in range(12) if (report := simulate(seed, (kind,))).problems]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.parametrize("seed", [124, 351, 498, 523, 526])
def test_nothing_is_set_aside_because_its_server_lost_a_partition(seed: int) -> None:
    assert not simulate(seed).problems


def test_without_faults_nothing_fails() -> None:
    report = simulate(0, ())
    assert report.problems == () and report.length_s < 120


def test_the_same_seed_yields_the_same_run() -> None:
    first, second = simulate(7), simulate(7)
    assert first == second
    assert first.digest != simulate(9).digest


def test_the_seeds_meet_every_kind_of_trouble() -> None:
    met = Counter(kind for seed in range(SEEDS) for kind in FaultPlan(seed).kinds)
    assert met.keys() == {*HARMLESS, *TOUCHING, *POISONS}


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
