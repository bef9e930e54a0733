"""Seeded stories of servers, workers and clients under every kind of trouble they know (PROTOCOL §6).

More of them: ``make simulate``. What failed once stands in ``test_found.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from effort import SIMULATIONS, SIMULATIONS_AT_LEAST
from noetl_testkit.simulation.constructs import NAMES
from noetl_testkit.simulation.faults import HARMLESS, TOUCHING, kinds_of
from noetl_testkit.simulation.happenings import HAPPENINGS
from noetl_testkit.simulation.poison import POISONS
from noetl_testkit.simulation.simulation import SimulationReport, simulate

SEEDS = range(SIMULATIONS_AT_LEAST)
MORE = range(SIMULATIONS_AT_LEAST, SIMULATIONS)
SEEDS_A_TEST = 20
ALONE = (0,)
"""Seeds of each kind of trouble alone."""

KINDS = (*HARMLESS, *TOUCHING)


@cache
def report(seed: int, *kinds: str) -> SimulationReport:
    """Each is simulated once, however many tests ask."""
    return simulate(seed, kinds or None)


def broken(reports: list[SimulationReport]) -> str:
    return "\n".join(str(one) for one in reports if one.problems)


@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_every_execution_ends_correctly_despite_faults(first: int) -> None:
    assert not broken([report(seed) for seed in SEEDS[first : first + SEEDS_A_TEST]])


@pytest.mark.verify
@pytest.mark.parametrize(
    "first",
    [pytest.param(one, marks=pytest.mark.xdist_group(f"simulation-{one % 60}")) for one in MORE[::SEEDS_A_TEST]],
)
def test_so_does_every_execution_of_many_more_seeds(first: int) -> None:
    assert not broken([simulate(seed) for seed in range(first, min(first + SEEDS_A_TEST, MORE.stop))])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_trouble_alone_is_survived(kind: str) -> None:
    assert not broken([report(seed, kind) for seed in ALONE])


@pytest.mark.parametrize("kind", POISONS)
def test_an_execution_that_cannot_be_folded_is_set_aside_alone_and_goes_on_once_that_is_mended(kind: str) -> None:
    assert not broken([simulate(seed, (kind,)) for seed in range(5)])


def test_nothing_fails_without_faults() -> None:
    calm = simulate(0, ())
    assert calm.problems == () and calm.length_s < 300


def test_the_same_seed_yields_the_same_run() -> None:
    assert simulate(7) == report(7)
    assert report(7).digest != report(9).digest


DIGESTS = """
from noetl_testkit.simulation.simulation import simulate
print(simulate(21).digest)
"""


def test_the_same_seed_yields_the_same_run_whatever_the_order_of_sets_is_in_a_process() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS],
            env=os.environ | {"PYTHONHASHSEED": order},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for order in ("1", "3")
    ]
    one, other = [process.communicate()[0] for process in processes]
    assert one == other != b""


def reports() -> list[SimulationReport]:
    """Those of all seeds, and of each kind of trouble alone."""
    return [*map(report, SEEDS), *(report(seed, kind) for kind in KINDS for seed in ALONE)]


def test_the_seeds_meet_every_kind_of_trouble() -> None:
    assert {kind for seed in SEEDS for kind in kinds_of(seed)} == {*KINDS, *POISONS}
    struck = Counter(name for one in reports() for name in one.happened)
    assert not [kind for kind in KINDS if not struck[kind]]


def test_everything_that_the_protocol_wants_to_see_happens() -> None:
    happened = Counter(name for one in reports() for name in one.happened)
    missing = {words: [name for name in names if not happened[name]] for words, names in HAPPENINGS.items()}
    assert not {words: names for words, names in missing.items() if names}


def test_the_seeds_reach_every_construct_of_the_language() -> None:
    reached = frozenset().union(*(one.constructs for one in reports()))
    assert reached == NAMES
