"""What `check` proves of a playbook holds in every run: random playbooks of the whole language, on the real engine."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from random_runs import SEEDS
from random_workers import UNDISTURBED, RandomRun

from noetl_stream.model.events import LoopDone, StepDone, StepFailed, TokenClaimed, TokenEnqueued
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.plan import Plan
from noetl_testkit.random_language import random_language
from noetl_testkit.scenario.scenario import Scenario, installed_kinds

NEVER_RUNS = {"unreachable_step", "admission_never_opens", "join_never_fires"}
SEEDS_AT_ONCE = 25
RUNS_A_PLAYBOOK = 2


class Seen:
    """The steps that ran, and the pairs of them that ran at the same time, in file order."""

    def __init__(self, scenario: Scenario) -> None:
        order = list(scenario.plan.steps)
        steps, running = {}, {}
        self.ran: set[str] = set()
        self.together: set[tuple[str, str]] = set()
        for entry in scenario.journal:
            match entry.recorded.fact:
                case TokenEnqueued(token=token):
                    steps[token.token_id] = token.step
                case TokenClaimed(token_id=token_id, step_run_id=run, refused=None):
                    step = running[run] = steps[token_id]
                    self.ran.add(step)
                    pairs = (sorted((step, other), key=order.index) for other in running.values() if other != step)
                    self.together.update((one, other) for one, other in pairs)
                case StepDone(step_run_id=run) | StepFailed(step_run_id=run) | LoopDone(step_run_id=run):
                    running.pop(run, None)


def set_keys(plan: Plan) -> dict[str, set[str]]:
    """By step, the keys of ``ctx`` that it sets."""
    keys = defaultdict(set)
    for step in plan.steps.values():
        for task in step.tasks:
            keys[step.name].update(key for rule in (task.policy.rules if task.policy else ()) for key in rule.set_ctx)
    return keys


def named_in(found: list[Diagnostic]) -> dict[str, set[str]]:
    """By code, the step that each finding is about."""
    steps = defaultdict(set)
    for one in found:
        steps[one.code].add(one.message.split("`")[1])
    return steps


@pytest.mark.parametrize("first", range(0, SEEDS // 4, SEEDS_AT_ONCE))
def test_no_run_does_what_was_proved_not_to_happen(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        text = random_language(Random(seed // RUNS_A_PLAYBOOK))
        checked = check(text, installed_kinds(), proves=True)
        assert checked.plan is not None
        found = [one for one in checked.diagnostics if one.path or one.code in NEVER_RUNS]
        scenario = Scenario(checked.plan)
        RandomRun(scenario, Random(seed), UNDISTURBED).run()
        seen = Seen(scenario)
        proved = named_in([one for one in found if one.code in NEVER_RUNS])
        assert not seen.ran & set().union(*proved.values()), f"seed {seed}"
        warned = {tuple(one.message.split("`")[3:6:2]) for one in found if one.code == "competing_writes"}
        keys = set_keys(checked.plan)
        competing = {(other, f"ctx.{key}") for one, other in seen.together for key in keys[one] & keys[other]}
        assert competing <= warned, f"seed {seed}"
