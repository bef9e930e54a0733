"""Random playbooks with compensations and ``finally``, under random workers, people, time and faults (LANGUAGE §9).

Whatever happens, each step run that ended well is undone once, what ended last first, or it is said; ``finally`` runs
once at every end.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from journal_laws import check_journal, recorded_facts
from random_runs import STORMS_A_PLAYBOOK, WEATHERS, chunks, named
from random_workers import Disturbance, RandomRun

from noetl_stream.engine.decide import closing
from noetl_stream.engine.state import Compensable, Execution
from noetl_stream.model import events
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_testkit.random_language import PlaybookWriter, with_undoing
from noetl_testkit.scenario.scenario import Scenario, installed_kinds
from noetl_testkit.scenario.undoing import Declared, undoing_problems

STORMS = [
    *WEATHERS[1:3],
    Disturbance(faults=0.0, people=0.1, cancels=0.03),
    Disturbance(faults=0.1, people=0.1, cancels=0.03, references=True),
    Disturbance(faults=0.1, people=0.1, cancels=0.02, at_once=0.01),
]


@lru_cache(maxsize=1)
def undoable(seed: int) -> tuple[str, Any]:
    writer = PlaybookWriter(Random(seed), confluent=False)
    document = with_undoing(writer.document(), Random(f"undoing {seed}"), writer.work)
    source = json.dumps(document)
    return source, compile_playbook(source, installed_kinds())


def stormy(seed: int) -> tuple[Declared, Scenario]:
    random = Random(f"storm {seed}")
    source, plan = undoable(seed // STORMS_A_PLAYBOOK)
    scenario = Scenario(plan)
    RandomRun(scenario, random, random.choice(STORMS)).run()
    return Declared.of(source), scenario


def problems_of(declared: Declared, scenario: Scenario) -> list[str]:
    return list(undoing_problems(declared, [one.recorded.fact for one in scenario.journal]))


@pytest.mark.parametrize("seeds", chunks(), ids=named)
def test_each_step_run_is_undone_once_in_order_or_reported_and_finally_runs_once(seeds: range) -> None:
    for seed in seeds:
        try:
            declared, scenario = stormy(seed)
            check_journal(scenario)
            assert problems_of(declared, scenario) == []
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_random_ends_undo_what_they_should_and_are_of_every_kind() -> None:
    ends, words = Counter[str](), set[str]()
    for seed in range(120):
        _, scenario = stormy(seed)
        (finished,) = scenario.facts(events.ExecutionFinished)
        ends[finished.status] += 1
        ends["undone"] += sum(one.undone for one in finished.compensations)
        ends["not undone"] += sum(not one.undone for one in finished.compensations)
        words |= {fact.token.cause for fact in recorded_facts(scenario) if isinstance(fact, events.TokenEnqueued)}
        words |= {type(fact).__name__ for fact in recorded_facts(scenario)}
    assert all(ends[end] > 9 for end in ("completed", "failed", "cancelled", "undone", "not undone")), ends
    assert words >= {"compensation", "finally", "ExecutionClosing", "LoopDone", "ChildFinished", "StepResumed"}


def _first_first(state: Execution) -> dict[str, Compensable]:
    return dict(reversed(state.undoing.compensable.items()))


BROKEN = {
    "says": ("compensations_of", lambda *_: (), "says nothing of"),
    "finally": ("_only_undoes", lambda *_: True, "ran finally 0 times"),
    "ends": ("_is_undone_at", lambda *_: True, "which is not named"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, broken, problem = BROKEN[rule]
    monkeypatch.setattr(closing, name, broken)
    assert any(problem in str(problems_of(*stormy(seed))) for seed in range(60))


def test_undoing_in_the_order_of_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Execution, "compensable", property(_first_first))
    assert any("last end first" in str(problems_of(*stormy(seed))) for seed in range(60))
