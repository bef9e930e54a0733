"""Random playbooks under random workers: every execution ends, and every journal keeps the laws.

A seed that fails is named by its test.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

import pytest
from journal_laws import check_journal
from random_playbooks import random_playbook
from random_workers import UNDISTURBED, RandomRun

from effort import RANDOM_EXECUTIONS
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_testkit.scenario.scenario import Scenario, installed_kinds

SEEDS = RANDOM_EXECUTIONS
SEEDS_AT_ONCE = 24
STORMS_A_PLAYBOOK = 3
"""Compiling takes longer than running."""


def chunks() -> list[range]:
    return [range(first, min(first + SEEDS_AT_ONCE, SEEDS)) for first in range(0, SEEDS, SEEDS_AT_ONCE)]


def named(seeds: range) -> str:
    return f"seeds {seeds.start} to {seeds.stop - 1}"


@lru_cache(maxsize=1)
def compiled(seed: int) -> Plan:
    return compile_playbook(random_playbook(Random(seed)), installed_kinds())


@pytest.mark.parametrize("seeds", chunks(), ids=named)
def test_through_duplicates_crashes_takeovers_and_losses_every_execution_ends_and_keeps_the_laws(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        scenario = Scenario(compiled(seed // STORMS_A_PLAYBOOK))
        try:
            RandomRun(scenario, random).run()
            check_journal(scenario)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(max(1, SEEDS // 10)))
def test_without_faults_each_task_runs_exactly_as_often_as_its_policy_says(seed: int) -> None:
    random = Random(seed)
    scenario = Scenario(random_playbook(random))
    RandomRun(scenario, random, UNDISTURBED).run()
    check_journal(scenario)
    assert scenario.names.count("task.started") == scenario.names.count("task.processed")
    assert not [name for name in scenario.names if name == "step.claimed"]


def test_the_random_playbooks_are_all_valid_and_of_many_kinds() -> None:
    """That they are valid the storms have found out: they compile them."""
    texts = [random_playbook(Random(seed)) for seed in range(100)]
    words = (
        "parallel sequential local distributed best_effort tolerated admit inclusive jump retry set_ctx set_vars "
        "quotas token dedupe partition priority"
    )
    for word in words.split():
        assert any(word in text for text in texts), word
