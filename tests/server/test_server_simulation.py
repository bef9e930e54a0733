"""Seeded stories of servers and workers that go wrong in every way they know (PROTOCOL §6).

More of them: ``python -m noetl_stream.testing.simulation.simulation --seeds 5000``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from effort import SIMULATIONS
from noetl_stream.testing.simulation.faults import HARMLESS, TOUCHING, FaultPlan
from noetl_stream.testing.simulation.simulation import simulate

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


def test_fair_weather_is_fair() -> None:
    report = simulate(0, ())
    assert report.problems == () and report.length_s < 120


def test_the_same_seed_yields_the_same_run() -> None:
    first, second = simulate(7), simulate(7)
    assert first == second
    assert first.digest != simulate(9).digest


def test_the_seeds_meet_every_kind_of_trouble() -> None:
    met = Counter(kind for seed in range(SEEDS) for kind in FaultPlan(seed).kinds)
    assert met.keys() == {*HARMLESS, *TOUCHING}
