"""PROTOCOL §2 *Template work*: another process compares a workload with its schema if that takes long."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import given

from noetl_stream.engine.advance import advance
from noetl_stream.engine.decide.executions import COMPARISONS_PER_OPERATION, rejection_of
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    EvaluationAwaited,
    EvaluationFailed,
    EvaluationFinished,
    ExecutionEvaluated,
    SignalReceived,
)
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.workload import COMPARISONS_AT_ONCE, WorkloadSchema
from noetl_testkit.scenario.scenario import Scenario, rerun

ONE = "- step: start\n  tool: {kind: noop}\n"
PATTERNS = r"""
executor: {spec: {workload: {properties: {text: {pattern: "^[a-z]+$"}, name: {pattern: "^\\p{L}+$"}}}}}
"""
LONG = "x" * 400_000


def waiting(steps: str = ONE, root: str = PATTERNS, **workload: Any) -> Scenario:
    """A start whose workload is compared when the test says so."""
    scenario = given(steps, root)
    scenario.evaluates = False
    scenario.start(workload=workload)
    return scenario


def test_a_long_comparison_is_not_made_where_the_server_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = given(ONE, PATTERNS)
    scenario.evaluates = False
    monkeypatch.delattr(WorkloadSchema, "mismatch")
    scenario.start(workload={"text": LONG})
    assert [fact.choices for fact in scenario.facts(EvaluationAwaited)] == [["workload"]]
    state = scenario.execution
    assert (state.status, state.looks_into, state.evaluated) == ("pending", "evaluation", False)


def test_a_start_continues_once_its_workload_is_compared() -> None:
    scenario = waiting(text=LONG)
    scenario.evaluate()
    assert scenario.working == [("start", None)] and scenario.execution.chosen == {}
    assert scenario.execution.workload == {"text": LONG}
    assert scenario.decided_again() == scenario.journal


def test_a_short_comparison_is_made_at_once_and_draws_on_the_budget() -> None:
    scenario = waiting(text="x" * 100_000)
    assert scenario.facts(EvaluationAwaited) == [] and scenario.working == [("start", None)]
    assert scenario.execution.budget.spent >= 100_000 * 8 // COMPARISONS_PER_OPERATION
    assert DEFAULT_LIMITS.max_inline_operations * COMPARISONS_PER_OPERATION == COMPARISONS_AT_ONCE


@pytest.mark.parametrize(
    ("workload", "pointer", "words"),
    [
        ({"text": LONG + "!"}, "/text", "at `/text`: the value does not match"),
        ({"text": LONG, "name": "n" * 40_000}, "/name", "(max_workload_comparisons)"),
    ],
)
def test_a_workload_that_does_not_match_is_refused_in_the_same_words(workload: Any, pointer: str, words: str) -> None:
    scenario = waiting(**workload)
    scenario.evaluate()
    error = scenario.error
    assert (scenario.status, error.kind, error.code) == ("failed", "invalid_workload", pointer)
    assert words in error.message
    (evaluated,) = scenario.facts(ExecutionEvaluated)
    assert evaluated.diagnostics == [{"code": "invalid_workload", "message": error.message, "pointer": pointer}]


def test_a_start_can_be_cancelled_meanwhile() -> None:
    scenario = waiting(text=LONG)
    asked = scenario.execution.evaluation
    assert asked is not None
    scenario.cancel()
    assert scenario.status == "cancelled"
    assert not scenario.feed(RecordedFact(EvaluationFinished(asked.position))).taken


def test_a_start_that_is_cancelled_meanwhile_has_nothing_to_close() -> None:
    root = PATTERNS.replace("executor: {spec: {", "executor: {spec: {policy: {finally: note}, ")
    scenario = waiting(f"{ONE}- step: note\n  tool: {{kind: noop}}\n", root, text=LONG)
    scenario.cancel()
    assert (scenario.status, scenario.names[-1]) == ("cancelled", "playbook.processed")
    assert "execution.closing" not in scenario.names


def test_any_other_request_is_rejected_meanwhile() -> None:
    scenario = waiting(text=LONG)
    rejection = rejection_of(scenario.plan, scenario.execution, SignalReceived("r", signal="go"))
    assert rejection is not None and rejection.code == "not_started"
    assert rejection.text.endswith("has not started: its workload is still being compared with its schema")


def test_another_server_compares_a_workload_again() -> None:
    scenario = waiting(text=LONG)
    scenario.take_over()
    scenario.evaluate()
    assert scenario.working == [("start", None)]


def test_a_comparison_that_is_ended_refuses_the_start() -> None:
    scenario = waiting(text=LONG)
    asked = scenario.execution.evaluation
    assert asked is not None
    scenario.feed(RecordedFact(EvaluationFailed(asked.position, "it took more than 60 s")))
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert scenario.error.message == "the workload cannot be compared with its schema: it took more than 60 s"
    assert [one["code"] for one in scenario.execution.refused] == ["limit_exceeded"]


def test_an_answer_without_the_comparison_makes_the_server_ask_again() -> None:
    scenario = waiting(text=LONG)
    asked = scenario.execution.evaluation
    assert asked is not None
    advanced = advance(scenario.plan, scenario.state, RecordedFact(EvaluationFinished(asked.position)), "execution-1")
    assert [type(fact) for fact in advanced.journal] == [EvaluationAwaited]
    assert advanced.state is not None and advanced.state.evaluation is not None


def test_a_rerun_is_not_compared_again() -> None:
    scenario = waiting(text=LONG)
    scenario.evaluate()
    scenario.done("start")
    again = rerun(scenario, "start")
    assert again.facts(EvaluationAwaited) == [] and again.working == [("start", None)]
