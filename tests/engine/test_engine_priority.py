"""The priority of an execution: where it comes from, and what has it (LANGUAGE §15)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import given

from noetl_stream.engine.effects import build_command, child_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import ChildRequested, ExecutionRequested, ExecutionStarted, Parent, Rerun
from noetl_stream.model.json import codec
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_testkit.scenario.scenario import Scenario, inputs_of

STEPS = """
- step: start
  tool: {kind: playbook, path: reports/daily}
  next: {arcs: [{step: more}]}
- step: more
  tool: {kind: noop}
"""
PARENT = Parent("caller", "run", "command")


def begun(declared: int | None, **asked: Any) -> Scenario:
    """An execution of a playbook that declares a priority, or none."""
    root = "" if declared is None else f"executor: {{spec: {{priority: {declared}}}}}\n"
    scenario = given(STEPS, root)
    plan = scenario.plan
    scenario.feed(RecordedFact(ExecutionRequested("request-1", plan.digest, plan.path, **asked)))
    return scenario


@pytest.mark.parametrize(
    ("declared", "asked", "parent", "expected"),
    [
        pytest.param(None, None, None, 5, id="nothing said"),
        pytest.param(8, None, None, 8, id="the playbook"),
        pytest.param(8, 2, None, 2, id="the request before the playbook"),
        pytest.param(8, 5, None, 5, id="a request for the default"),
        pytest.param(None, 9, PARENT, 9, id="the caller"),
        pytest.param(2, 9, PARENT, 2, id="the called playbook before the caller"),
    ],
)
def test_the_priority_of_an_execution(
    declared: int | None, asked: int | None, parent: Parent | None, expected: int
) -> None:
    scenario = begun(declared, priority=asked, parent=parent)
    assert scenario.execution.priority == expected
    assert build_command(scenario.plan, scenario.execution, scenario.owed("start")).priority == expected


def test_a_called_execution_is_asked_for_with_the_priority_of_its_caller() -> None:
    scenario = begun(None, priority=7)
    scenario.done("start")
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 9)
    assert message is not None and isinstance(message.fact, ExecutionRequested)
    assert message.fact.priority == 7


@pytest.mark.parametrize(("asked", "expected"), [(None, 7), (1, 1)])
def test_a_rerun_keeps_the_priority_unless_it_is_asked_for_with_another(asked: int | None, expected: int) -> None:
    scenario = begun(3, priority=7)
    scenario.done("start")
    scenario.child_ended({"total": 5})
    scenario.done("start")
    scenario.done("more")
    again = Scenario(scenario.plan, scenario.kinds, execution_id="execution-1-again")
    rerun = Rerun(scenario.execution_id, "more")
    again.feed(
        RecordedFact(ExecutionRequested("again", scenario.plan.digest, scenario.plan.path, rerun=rerun, priority=asked))
    )
    for fact in inputs_of(again, scenario):
        again.feed(RecordedFact(fact))
    assert again.execution.priority == expected


def test_an_execution_without_a_priority_stores_none() -> None:
    """What is stored of an execution is the same as before there were priorities."""
    scenario = begun(None)
    command = build_command(scenario.plan, scenario.execution, scenario.owed("start"))
    scenario.done("start")
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 9)
    assert (command.priority, scenario.facts(ExecutionStarted)[0].priority) == (DEFAULT_PRIORITY, DEFAULT_PRIORITY)
    facts = [entry.recorded.fact for entry in scenario.journal]
    for stored in (*facts, command, message):
        assert b"priority" not in codec.encode(stored)
