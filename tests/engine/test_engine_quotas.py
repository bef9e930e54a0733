"""LANGUAGE §14 *Quotas*: how much an execution may use, counted from its journal, and what follows beyond."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import started
from msgspec.structs import replace

from noetl_stream.engine.snapshot import decode_state, encode_state
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import QuotaExceeded, TaskProcessed, TokenClaimed
from noetl_stream.model.events.composite import StepRan, TaskRan
from noetl_stream.model.ids import RunId
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Meta, Payload, Reference
from noetl_testkit.scenario.scenario import Scenario, rerun

CHAIN = """
- step: start
  tool: {kind: noop}
  next: {arcs: [{step: second}]}
- step: second
  tool: {kind: noop}
  next: {arcs: [{step: third}]}
- step: third
  tool: {kind: noop}
"""


def chain(quotas: str, policy: str = "", more: str = "") -> Scenario:
    return started(CHAIN + more, f"executor: {{ spec: {{ policy: {{ quotas: {{ {quotas} }} {policy} }} }} }}\n")


def took(scenario: Scenario, step: str, seconds: float = 0.0, result: Any = None) -> None:
    """Runs a step whose tasks take so long."""

    def timed(recorded: RecordedFact) -> Any:
        fact = recorded.fact
        if isinstance(fact, TaskProcessed):
            outcome = replace(fact.outcome, meta=Meta(duration_s=seconds))
            recorded = replace(recorded, fact=replace(fact, outcome=outcome))
        return scenario.feed(recorded)

    scenario.take(step, sink=timed).finish(result)


def as_read_again(scenario: Scenario) -> None:
    """The journal gives the same state and the same decisions again, and so does a snapshot of it."""
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal
    assert decode_state(encode_state(scenario.execution)) == scenario.state


def test_step_runs_beyond_the_quota_do_not_begin_and_the_execution_fails_with_quota_value_and_use() -> None:
    scenario = chain("step_runs: 2")
    scenario.done("start")
    scenario.done("second")
    assert (scenario.status, scenario.error.kind, scenario.error.code) == ("failed", "quota_exceeded", "step_runs")
    assert scenario.error.message == "quotas.step_runs is 2, and the execution comes to 3"
    assert len(scenario.facts(TokenClaimed)) == 2
    as_read_again(scenario)


def test_a_quota_that_is_used_up_exactly_is_not_exceeded() -> None:
    scenario = chain("step_runs: 3, task_runs: 3, task_seconds: 3, bytes: 30")
    for step in ("start", "second", "third"):
        took(scenario, step, 1.0, "12345678")
    assert scenario.status == "completed"


@pytest.mark.parametrize(
    ("quotas", "seconds", "result", "message"),
    [
        ("task_runs: 1", 0.0, None, "quotas.task_runs is 1, and the execution comes to 2"),
        ("task_seconds: 0.0005", 0.0003, None, "quotas.task_seconds is 0.0005, and the execution comes to 0.0006"),
        ("task_seconds: 2.5", 1.5, None, "quotas.task_seconds is 2.5, and the execution comes to 3"),
        ("bytes: 2000", 0.0, "x" * 1000, "quotas.bytes is 2,000, and the execution comes to 2,004"),
    ],
)
def test_tasks_are_counted_when_they_have_ended(quotas: str, seconds: float, result: Any, message: str) -> None:
    scenario = chain(quotas)
    took(scenario, "start", seconds, result)
    took(scenario, "second", seconds, result)
    assert (scenario.status, scenario.error.message) == ("failed", message)
    assert scenario.names.count("step.started") == 2
    as_read_again(scenario)


def test_results_by_reference_captured_output_and_what_rules_set_count_as_bytes() -> None:
    scenario = chain("bytes: 10000")
    run = scenario.take("start")
    run.begin()
    stored = Payload(reference=Reference("nats", "execution-1/some/object", 5000))
    outcome = events.TaskProcessed("start", 1, replace(outcome_of(scenario), result=stored, output="é"), "continue")
    run.report(replace(outcome, set_ctx={"a": 1}))
    state = scenario.execution
    assert state.usage is not None
    assert state.usage.bytes + state.stored_bytes == 5000 + len("é".encode()) + len('{"a":1}')


def outcome_of(scenario: Scenario) -> Any:
    other = started(CHAIN)
    other.done("start")
    (processed,) = other.facts(TaskProcessed)
    return processed.outcome


def test_attempts_and_iterations_count_each_and_a_local_loop_is_stopped_in_its_middle() -> None:
    retry = "{rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 5, delay: 0}}]}"
    scenario = started(
        f"""
        - step: start
          loop: {{in: [1, 2, 3, 4], iterator: n, spec: {{mode: sequential, exec: local}}}}
          tool: {{kind: noop, spec: {{policy: {retry}}}}}
        """,
        "executor: { spec: { policy: { quotas: { task_runs: 2 } } } }\n",
    )
    run = scenario.take("start")
    run.answer(error=events.ErrorInfo("exception", "no"))
    run.answer("yes")
    assert scenario.execution.usage is not None and scenario.execution.usage.task_runs == 2
    run.answer("yes")
    assert scenario.execution.failing is not None and scenario.execution.failing.kind == "quota_exceeded"
    assert scenario.names.count("step.cancelled") == 1


def test_a_warning_is_recorded_once_and_the_execution_goes_on() -> None:
    scenario = chain("task_runs: 1, step_runs: 1, on_exceeded: warn")
    for step in ("start", "second", "third"):
        scenario.done(step)
    assert scenario.status == "completed"
    exceeded = [(one.quota, one.amount, one.used) for one in scenario.facts(QuotaExceeded)]
    assert exceeded == [("step_runs", 1, 2), ("task_runs", 1, 2)]
    as_read_again(scenario)


@pytest.mark.parametrize("quota", ["step_runs: 1", "task_seconds: 1"])
def test_a_suspended_execution_is_paused_and_once_resumed_may_use_as_much_again(quota: str) -> None:
    scenario = chain(f"{quota}, on_exceeded: suspend")
    took(scenario, "start", 1.5)
    assert (scenario.execution.shown_status, scenario.working) == ("paused", [])
    scenario.resume()
    assert scenario.working == [("second", None)]
    took(scenario, "second", 0.5)
    if quota == "step_runs: 1":
        assert scenario.execution.shown_status == "paused"
        scenario.resume()
    took(scenario, "third", 0.5)
    assert scenario.status == "completed"
    as_read_again(scenario)


def test_a_suspended_execution_pauses_the_children_that_it_waits_for() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: called}, {step: work}]}
        - step: called
          tool: {kind: playbook, path: tests/other}
        - step: work
          tool: {kind: noop}
        """,
        "executor: { spec: { policy: { quotas: { task_seconds: 1, on_exceeded: suspend } } } }\n",
    )
    scenario.done("called")
    took(scenario, "work", 2)
    assert [one.order for one in scenario.facts(events.ChildOrdered)] == ["pause"]
    scenario.resume()
    assert [one.order for one in scenario.facts(events.ChildOrdered)] == ["pause", "resume"]


def test_an_execution_beyond_its_quota_is_undone_and_runs_finally_which_no_quota_stops() -> None:
    undone = """
- step: before
  tool: {kind: noop}
  spec: {policy: {compensation: {tool: {kind: noop}}}}
  next: {arcs: [{step: start}]}
- step: note
  tool: {kind: noop}
"""
    spec = "executor: {spec: {entry_step: before, policy: {finally: note, quotas: {step_runs: 1}}}}\n"
    scenario = started(CHAIN + undone, spec)
    scenario.done("before")
    assert scenario.execution.shown_status == "compensating"
    scenario.done("before__compensation")
    scenario.done("note")
    assert (scenario.status, scenario.error.kind) == ("failed", "quota_exceeded")
    as_read_again(scenario)


def test_a_rerun_counts_from_zero_and_a_retry_continues_from_the_step_over_the_quota() -> None:
    scenario = chain("step_runs: 2")
    scenario.done("start")
    scenario.done("second")
    again = rerun(scenario)
    assert again.working == [("third", None)]
    again.done("third")
    assert again.status == "completed"
    as_read_again(again)


def test_a_report_in_one_piece_counts_as_one_in_parts() -> None:
    parts, whole = chain("task_runs: 10"), chain("task_runs: 10")
    took(parts, "start", 2, "abc")
    assignment = whole.owed("start")
    task = whole.plan.steps["start"].tasks[0].name
    ran = StepRan(assignment.step_run_id, "worker-1", [TaskRan(task, codec.payload_of("abc"), 0, 2000, 2.0)])
    whole.feed(RecordedFact(ran, RunId(assignment.command_id, 1, 1, "n1"), 0))
    assert whole.execution.usage == parts.execution.usage
    assert whole.execution.usage is not None and whole.execution.usage.task_seconds == 2


@pytest.mark.parametrize("seconds", [-5.0, 1e308])
def test_a_worker_that_reports_an_absurd_time_harms_nothing(seconds: float) -> None:
    scenario = chain("task_runs: 10")
    took(scenario, "start", seconds)
    took(scenario, "second", seconds)
    assert scenario.working == [("third", None)]
    as_read_again(scenario)


def test_a_playbook_without_quotas_records_and_counts_none() -> None:
    scenario = started(CHAIN)
    scenario.done("start")
    (start,) = scenario.facts(events.ExecutionStarted)
    assert scenario.execution.usage is None and b"quotas" not in codec.encode(start)
