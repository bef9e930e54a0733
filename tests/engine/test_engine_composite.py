"""Composite facts: the same journal and the same state as without them (ADR 16)."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.engine import advance as advance_module
from noetl_stream.engine.advance import advance
from noetl_stream.engine.decide import routing
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import ExecutionRequested, Fact, StepDone, StepStarted, TaskProcessed, TaskStarted
from noetl_stream.model.events.composite import StepRan, TokenPassed, expand, whole_run
from noetl_stream.model.ids import RunId
from noetl_stream.model.outcome import ErrorInfo, Meta, Outcome
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_testkit.scenario.scenario import installed_kinds

EXECUTION = "execution-1"
AT = "2027-01-15T08:00:00.000Z"
HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: composite, path: tests/composite }
workflow:
"""
PLAYBOOKS = {
    "a chain": """
- { step: a, tool: { kind: noop }, next: { arcs: [{ step: b }] } }
- { step: b, tool: [{ one: { kind: noop } }, { two: { kind: noop } }], next: { arcs: [{ step: c, args: { n: 1 } }] } }
- { step: c, tool: { kind: noop } }
""",
    "a fork that joins": """
- step: a
  tool: { kind: noop }
  next: { spec: { mode: inclusive }, arcs: [{ step: b }, { step: c }] }
- { step: b, tool: { kind: noop }, next: { arcs: [{ step: d }] } }
- { step: c, tool: { kind: noop }, next: { arcs: [{ step: d }] } }
- { step: d, spec: { join: all }, tool: { kind: noop } }
""",
    "a held token": """
- step: a
  tool: { kind: noop }
  next: { spec: { mode: inclusive }, arcs: [{ step: gate }, { step: b }] }
- step: gate
  spec: { policy: { admit: { rules: [{ when: "{{ 'b' in steps }}", then: { allow: true } }] } } }
  tool: { kind: noop }
- { step: b, tool: { kind: noop }, next: { arcs: [{ step: c }] } }
- { step: c, tool: { kind: noop }, spec: { policy: { lifecycle: { timeout_s: 30 } } } }
""",
    "a step without a task, and a loop": """
- { step: a, tool: { kind: noop }, next: { arcs: [{ step: b }] } }
- { step: b, next: { arcs: [{ step: c, when: "{{ event.name == 'step.done' }}" }] } }
- { step: c, loop: { in: [1, 2], iterator: n }, tool: { kind: noop } }
""",
    "a result": """
- { step: a, tool: { kind: noop } }
executor: { spec: { result: "{{ steps.a.result }}" } }
""",
    "a first step that asks": """
- step: a
  spec: { policy: { admit: { rules: [{ when: "{{ true }}", then: { allow: true } }] } } }
  tool: { kind: noop }
""",
    "a first step with a time-out": """
- { step: a, tool: { kind: noop }, spec: { policy: { lifecycle: { timeout_s: 30 } } } }
""",
    "an execution with a time-out": """
- { step: a, tool: { kind: noop }, next: { arcs: [{ step: b }] } }
- { step: b, tool: { kind: noop } }
executor: { spec: { timeout_s: 30 } }
""",
    "quotas that warn": """
- { step: a, tool: { kind: noop }, next: { arcs: [{ step: b }] } }
- { step: b, tool: { kind: noop }, next: { arcs: [{ step: c }] } }
- { step: c, tool: { kind: noop } }
executor: { spec: { policy: { quotas: { step_runs: 1, bytes: 100, task_seconds: 10, on_exceeded: warn } } } }
""",
    "a quota that fails": """
- { step: a, tool: { kind: noop }, next: { arcs: [{ step: b }] } }
- { step: b, tool: { kind: noop } }
executor: { spec: { policy: { quotas: { step_runs: 1 } } } }
""",
    "two ends": """
- step: a
  tool: { kind: noop }
  next: { spec: { mode: inclusive }, arcs: [{ step: b }, { step: c }] }
- { step: b, tool: { kind: noop } }
- { step: c, tool: { kind: noop } }
""",
    "few decisions": """
- { step: a, tool: { kind: noop } }
executor: { spec: { policy: { limits: { max_decisions_per_fact: 5 } } } }
""",
    "one decision": """
- { step: a, tool: { kind: noop } }
executor: { spec: { policy: { limits: { max_decisions_per_fact: 1 } } } }
""",
}


def ran(tasks: list[str]) -> list[Fact]:
    """What a worker reports of these tasks."""
    meta = Meta(1, AT, "2027-01-15T08:00:00.007Z", 0.0071, "worker")
    facts: list[Fact] = [StepStarted("worker")]
    for task, to in zip(tasks, [*tasks[1:], None], strict=True):
        processed = TaskProcessed(task, 1, Outcome("ok", meta=meta), "continue", to=to)
        facts += [TaskStarted(task), processed]
    return facts


def run_all(plan: Plan, *, composite: bool) -> tuple[Execution, list[Fact]]:
    """Runs an execution to its end, every command by one run; returns its journal with composite facts expanded."""
    state: Execution | None = None
    journal: list[Fact] = []

    def feed(recorded: RecordedFact) -> None:
        nonlocal state
        advanced = advance(plan, state, recorded, EXECUTION)
        assert advanced.taken, recorded
        journal.extend(part for fact in (recorded.fact, *advanced.journal) for part in expand(EXECUTION, fact))
        state = advanced.state

    feed(RecordedFact(ExecutionRequested("request", plan.digest)))
    while state is not None and not state.ended:
        assignment = next(iter(state.assignments.values()))
        step_run = state.runs[assignment.step_run_id]
        if step_run.loop is not None:
            return state, journal
        step = plan.steps[step_run.step]
        tasks = [task.name for task in step.tasks]
        facts: list[Fact] = [*ran(tasks), StepDone(step_run.step_run_id)]
        whole = whole_run(step_run.step_run_id, facts)
        assert whole is not None and list(expand(EXECUTION, whole)) == facts
        number = 0
        for fact in [whole] if composite and step.timeout_s is None else facts:
            feed(RecordedFact(fact, RunId(assignment.command_id, 1, 1, "nonce"), number, 1_000))
            number += fact.width
    assert state is not None
    return state, journal


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_general_path_leads_to_the_same_journal_and_state(playbook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_playbook(HEAD + PLAYBOOKS[playbook], installed_kinds())
    quick = run_all(plan, composite=True)
    monkeypatch.setattr(advance_module, "decide_straight", lambda plan, state, follows: None)
    assert run_all(plan, composite=True) == quick
    monkeypatch.setattr(routing, "pass_on", lambda plan, state, follows: follows)
    assert run_all(plan, composite=False) == quick


@pytest.mark.parametrize("playbook", ["a chain", "a result"])
def test_a_plain_input_takes_the_straight_path(playbook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_playbook(HEAD + PLAYBOOKS[playbook], installed_kinds())
    settle, general = advance_module._settle, list[Fact]()  # noqa: SLF001

    def counted(plan: Plan | None, state: Execution, pending: deque[Fact], *rest: Any) -> Any:
        general.extend(pending)
        return settle(plan, state, pending, *rest)

    monkeypatch.setattr(advance_module, "_settle", counted)
    run_all(plan, composite=True)
    assert len(general) == (playbook == "a result"), "a result takes a template"


def test_a_plain_step_is_two_facts() -> None:
    plan = compile_playbook(HEAD + PLAYBOOKS["a chain"], installed_kinds())
    requested = advance(plan, None, RecordedFact(ExecutionRequested("request", plan.digest)), EXECUTION)
    assert requested.state is not None
    (assignment,) = requested.state.assignments.values()
    whole = whole_run(assignment.step_run_id, [*ran(["a_task"]), StepDone(assignment.step_run_id)])
    assert isinstance(whole, StepRan)
    advanced = advance(
        plan, requested.state, RecordedFact(whole, RunId(assignment.command_id, 1, 1, "nonce")), EXECUTION
    )
    assert [type(fact) for fact in advanced.journal] == [TokenPassed]


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": 2},
        {"do": "break"},
        {"rule": 0},
        {"set_ctx": {"a": 1}},
        {"set_vars": {"a": 1}},
        {"outcome": Outcome("error", error=ErrorInfo("exception", "no"))},
        {"outcome": Outcome("ok", meta=Meta(1, "yesterday", "today", 1.0, "worker"))},
        {
            "outcome": Outcome(
                "ok", meta=Meta(1, "2027-01-15T08:00:00.000Z", "2027-01-15T08:00:00.000Z", 1.0, "another")
            )
        },
    ],
    ids=lambda changes: next(iter(changes)) + str(len(str(changes))),
)
def test_a_step_run_that_one_fact_cannot_hold_is_reported_fact_by_fact(changes: dict[str, Any]) -> None:
    started, task, processed = ran(["a"])
    assert whole_run("run", [started, task, processed, StepDone("run")]) is not None
    assert whole_run("run", [started, task, replace(processed, **changes), StepDone("run")]) is None
