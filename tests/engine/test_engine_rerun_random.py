"""Random executions, run again from anywhere (LANGUAGE §9 *Rerun*).

A seed that fails is named by its test.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from journal_laws import check_journal, recorded_facts
from random_runs import WEATHERS, breaks, chunks, compiled, named
from random_workers import UNDISTURBED, Answer, RandomRun

from noetl_stream.model.events import (
    NextEvaluated,
    Path,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_testkit.random_language import random_language
from noetl_testkit.scenario.scenario import AskRefused, Scenario, rerun
from noetl_testkit.scenario.scripted_run import ARGS, ScriptedRun

SEEDS_A_PLAYBOOK = 4
RERUNS = 3


def runs(scenario: Scenario) -> dict[str, Token]:
    """Every step run it tells of, reused ones too, with its token."""
    tokens = {fact.token.token_id: fact.token for fact in recorded_facts(scenario) if isinstance(fact, TokenEnqueued)}
    return {
        fact.step_run_id: tokens[fact.token_id] for fact in recorded_facts(scenario) if isinstance(fact, TokenClaimed)
    }


def again(scenario: Scenario, random: Random) -> Scenario | None:
    """The scenario again, from somewhere; ``None`` if nothing of it ran, or nothing failed."""
    if random.random() < 0.3:
        try:
            return rerun(scenario, ctx=random.choice([None, {"k0": 1}]))
        except AskRefused:
            return None
    found = list(runs(scenario))
    return rerun(scenario, step_run_id=random.choice(found)) if found else None


@pytest.mark.parametrize("seeds", [range(part.start // 5, part.stop // 5) for part in chunks()], ids=named)
def test_any_random_execution_can_be_rerun_with_the_invariants_intact(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        scenario: Scenario | None = Scenario(compiled(seed // SEEDS_A_PLAYBOOK, confluent=False))
        assert scenario is not None
        try:
            RandomRun(scenario, random, random.choice(WEATHERS)).run()
            for _ in range(RERUNS):
                scenario = again(scenario, random)
                if scenario is None:
                    break
                RandomRun(scenario, random, random.choice(WEATHERS)).run()
                check_journal(scenario)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def end_of(scenario: Scenario, random: Random) -> dict[str, Any]:
    """How it ends if whoever is asked the same answers the same."""

    def answer(run: ScriptedRun, path: Path) -> Answer:
        return ARGS, breaks(run.command.step, path, run.next_attempt(path))

    RandomRun(
        scenario, random, UNDISTURBED, answer, lambda requested: breaks(requested.call.workload, requested.path)
    ).run()
    steps = {step_run_id: token.step for step_run_id, token in runs(scenario).items()}
    routed = Counter(
        (steps[fact.step_run_id], fact.event, *fact.fired)
        for fact in recorded_facts(scenario)
        if isinstance(fact, NextEvaluated)
    )
    return {
        "status": scenario.status,
        "result": scenario.result if scenario.status == "completed" else scenario.error,
        "ctx": scenario.ctx,
        "discarded": scenario.execution.discarded,
        "routed": routed,
    }


@pytest.mark.parametrize("seeds", [range(part.start // 20, part.stop // 20) for part in chunks()], ids=named)
def test_run_again_unchanged_from_anywhere_it_comes_to_the_same_end(seeds: range) -> None:
    """Where order cannot matter, answers are the same, and no guard asks why a token has come."""
    for seed in seeds:
        if "token.cause" in random_language(Random(seed), confluent=True):
            continue
        original = Scenario(compiled(seed, confluent=True))
        expected = end_of(original, Random(seed))
        for step_run_id, token in runs(original).items():
            scenario = rerun(original, step_run_id=step_run_id)
            assert end_of(scenario, Random(seed)) == expected, f"seed {seed}, from {token.step}"
