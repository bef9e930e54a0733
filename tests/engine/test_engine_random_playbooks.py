"""Random playbooks of the whole language under random workers, people, time and faults (LANGUAGE §4-§10).

Every execution ends; the laws of the engine hold after every fact and those of the journal at the end; replay gives the
same state, and deciding again the same journal. Where a playbook leaves no room for order, any order ends alike.
A seed that fails is named by its test.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from journal_laws import check_journal
from msgspec import structs
from msgspec.structs import replace
from random_runs import SEEDS, STORMS_A_PLAYBOOK, WEATHERS, breaks, chunks, compiled, named
from random_workers import UNDISTURBED, Answer, Disturbance, RandomRun

from noetl_stream.model.events import NextEvaluated, Path, TokenClaimed, TokenEnqueued
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.plan import Plan
from noetl_testkit.random_language import random_language
from noetl_testkit.scenario.scenario import Scenario, installed_kinds
from noetl_testkit.scenario.scripted_run import ARGS, ScriptedRun

DISTURBANCES = [
    UNDISTURBED,
    Disturbance(faults=0.2, pauses=0.05),
    Disturbance(faults=0.1, pauses=0.02, references=True),
]


@pytest.mark.parametrize("seeds", chunks(), ids=named)
def test_under_any_disturbance_every_execution_ends_and_keeps_the_laws(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        scenario = Scenario(compiled(seed // STORMS_A_PLAYBOOK, confluent=False))
        try:
            RandomRun(scenario, random, random.choice(WEATHERS)).run()
            check_journal(scenario)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def end_of(plan: Plan, random: Random, disturbance: Disturbance) -> dict[str, Any]:
    """How an execution ends whose workers and children answer what they are asked, whenever that is."""

    def answer(run: ScriptedRun, path: Path) -> Answer:
        return ARGS, breaks(run.command.step, path, run.next_attempt(path))

    scenario = Scenario(plan)
    RandomRun(
        scenario, random, disturbance, answer, lambda requested: breaks(requested.call.workload, requested.path)
    ).run()
    steps = {fact.token.token_id: fact.token.step for fact in scenario.facts(TokenEnqueued)}
    step_of = {fact.step_run_id: steps[fact.token_id] for fact in scenario.facts(TokenClaimed)}
    routed = Counter((step_of[fact.step_run_id], fact.event, *fact.fired) for fact in scenario.facts(NextEvaluated))
    state = scenario.execution
    return {
        "status": scenario.status,
        "result": scenario.result if scenario.status == "completed" else scenario.error,
        "ctx": scenario.ctx,
        "discarded": state.discarded,
        "routed": routed,
    }


@pytest.mark.parametrize("seeds", chunks(), ids=named)
def test_order_does_not_matter_between_independent_facts(seeds: range) -> None:
    """Neither do crashes, duplicates, pauses, or where results are kept."""
    for seed in range(seeds.start // STORMS_A_PLAYBOOK, seeds.stop // STORMS_A_PLAYBOOK):
        plan = compiled(seed, confluent=True)
        expected = end_of(plan, Random(seed), UNDISTURBED)
        for number, disturbance in enumerate(DISTURBANCES):
            assert end_of(plan, Random(seed + number), disturbance) == expected, f"seed {seed}, disturbance {number}"


LONG = Limits()
SHORT = structs.replace(LONG, max_resolve_bytes=1, max_loop_items_bytes=1)
"""With these every loop over anything that the journal does not have is paged out by a worker."""


def test_paging_of_loops_changes_no_end_under_any_disturbance() -> None:
    for seed in range(SEEDS // 20):
        plan = compiled(seed, confluent=True)
        expected = end_of(replace(plan, limits=LONG), Random(seed), UNDISTURBED)
        for disturbance in DISTURBANCES[:2]:
            assert end_of(replace(plan, limits=SHORT), Random(seed), disturbance) == expected, f"seed {seed}"


def test_the_random_playbooks_are_all_valid_and_of_many_kinds() -> None:
    texts = [random_language(Random(seed), confluent=seed % 2 == 0) for seed in range(80)]
    assert all(check(text, installed_kinds()).ok for text in texts)
    words = (
        "parallel sequential local distributed best_effort fail_fast admit inclusive jump retry set_ctx set_vars "
        "tolerated set_shared join any for_s signal playbook timeout_s deadline_s on_timeout loop max_inline_bytes "
        "dedupe partition priority"
    )
    assert any("next.timed_out" in text for text in texts)
    for word in words.split():
        assert any(f'"{word}"' in text for text in texts), word
