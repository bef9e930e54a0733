"""``kind: playbook``: what an execution asks of its children, what it makes of their ends (LANGUAGE §8, §9, §12)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import given, limits, started
from msgspec.structs import replace

from noetl_stream.engine.effects import build_command, child_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    CancelRequested,
    ChildFinished,
    ChildOrdered,
    ChildRequested,
    ExecutionFinished,
    ExecutionRequested,
    LoopDone,
    Parent,
    PauseRequested,
    ResumeRequested,
    StepSuspended,
    TaskProcessed,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome, Reference
from noetl_testkit.scenario.scenario import Scenario

CALL = """
- step: start
  SPEC
  tool:
  - {name: before, kind: noop}
  - {name: call, kind: playbook, path: reports/daily, args: {day: "{{ before.day }}"}, MORE}
  - {name: after, kind: noop, args: {got: "{{ call }}"}}
  next: {arcs: [{step: rescue, when: "{{ event.error is not none }}", args: {error: "{{ event.error.kind }}"}}]}
- step: rescue
  tool: {kind: noop}
"""


def calling(more: str = "", spec: str = "desc: calls", root: str = "") -> Scenario:
    """An execution that waits for its child."""
    scenario = started(CALL.replace("MORE", more).replace("SPEC", spec), root)
    scenario.done("start", {"day": 1})
    assert (scenario.working, scenario.suspended) == ([], [("start", None)])
    return scenario


def ordered(scenario: Scenario) -> list[str]:
    return [fact.order for fact in scenario.facts(ChildOrdered)]


# --- the call ---------------------------------------------------------------------------------------------------------


def test_a_call_starts_a_child_with_its_args_and_waits_for_it() -> None:
    scenario = calling("version: '3', return_step: totals")
    (requested,) = scenario.facts(ChildRequested)
    call = requested.call
    assert (call.path, call.version, call.workload, call.return_step) == ("reports/daily", "3", {"day": 1}, "totals")
    assert list(scenario.execution.children) == [requested.execution_id]
    assert scenario.execution.shown_status == "waiting"


def test_the_child_is_asked_for_with_its_parent_and_the_digest_it_is_pinned_to() -> None:
    scenario = calling("return_step: totals")
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 9)
    assert message is not None and message.execution_id == requested.execution_id
    request = message.fact
    assert isinstance(request, ExecutionRequested)
    assert (request.digest, request.path, request.workload) == (requested.call.digest, "reports/daily", {"day": 1})
    assert request.parent == Parent(
        "execution-1", requested.step_run_id, requested.command_id, depth=1, return_step="totals"
    )
    assert child_message(scenario.execution, requested, 9) == message, "the same message, however often it is sent"


def test_commands_and_children_act_for_the_principal_who_started_the_execution() -> None:
    scenario = given(CALL.replace("MORE", "").replace("SPEC", "desc: calls"))
    plan = scenario.plan
    scenario.feed(RecordedFact(ExecutionRequested("request-1", plan.digest, plan.path, principal="token:ann")))
    assert build_command(plan, scenario.execution, scenario.owed("start")).principal == "token:ann"
    scenario.done("start", {"day": 1})
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 9)
    assert message is not None and isinstance(message.fact, ExecutionRequested)
    assert message.fact.principal == "token:ann"


def test_the_result_of_the_child_is_that_of_the_task() -> None:
    scenario = calling()
    scenario.child_ended({"total": 5})
    assert (scenario.working, scenario.execution.children) == ([("start", None)], {})
    scenario.done("start")
    assert scenario.result == {"got": {"total": 5}}


def test_a_failed_child_is_an_error_of_the_task() -> None:
    scenario = calling()
    scenario.child_ended(error=ErrorInfo("child_failed", "playbook reports/daily failed"))
    scenario.done("start")
    assert scenario.take("rescue").command.args == {"error": "child_failed"}


def test_a_policy_may_call_again_and_that_is_another_child() -> None:
    scenario = calling(
        "spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\","
        " then: {do: retry, attempts: 2, delay: 0}}]}}"
    )
    scenario.child_ended(error=ErrorInfo("child_failed", "no"))
    scenario.wait(1)
    scenario.done("start")
    first, second = scenario.facts(ChildRequested)
    assert first.execution_id != second.execution_id
    scenario.child_ended("at last")
    scenario.done("start")
    assert scenario.result == {"got": "at last"}


def test_a_child_that_ends_twice_ends_once() -> None:
    scenario = calling()
    (child_id,) = scenario.execution.children
    scenario.child_ended(1)
    again = RecordedFact(ChildFinished(child_id, "", Outcome("error", error=ErrorInfo("child_failed", "late"))))
    assert not scenario.feed(again).taken
    scenario.done("start")
    assert not scenario.feed(again).taken
    assert scenario.result == {"got": 1}


def test_the_end_of_an_unknown_child_changes_nothing() -> None:
    scenario = calling()
    assert not scenario.feed(RecordedFact(ChildFinished("a-stranger", "", Outcome("ok")))).taken


def test_a_child_for_each_iteration() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
          tool: {kind: playbook, path: other, args: {n: "{{ n }}"}}
        """
    )
    scenario.done("start", index=0)
    scenario.done("start", index=1)
    first, second = scenario.execution.children
    assert [fact.call.workload for fact in scenario.facts(ChildRequested)] == [{"n": 1}, {"n": 2}]
    scenario.child_ended("second", child=second)
    scenario.done("start", index=1)
    scenario.done("start", index=2)
    scenario.child_ended("first", child=first)
    scenario.child_ended("third")
    scenario.done("start", index=0)
    scenario.done("start", index=2)
    assert scenario.result == ["first", "second", "third"]


def test_a_child_that_ends_while_its_command_is_with_a_worker_is_not_forgotten() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, exec: local}}
          tool: {kind: playbook, path: other, args: {n: "{{ n }}"}}
        """
    )
    scenario.done("start")
    children = list(scenario.execution.children)
    scenario.child_ended("b", child=children[1])
    run = scenario.take("start")
    run.begin()
    scenario.child_ended("a", child=children[0])
    assert list(scenario.execution.orphaned) == [children[0]]
    run.finish()
    assert scenario.facts(StepSuspended)[-1].waits[0].child is not None
    assert scenario.working == [("start", None)] and scenario.execution.orphaned == {}
    scenario.done("start")
    assert scenario.suspended == [("start", None)]
    scenario.child_ended("c")
    scenario.done("start")
    assert scenario.result == ["a", "b", "c"]
    assert len(scenario.facts(ChildRequested)) == 3


# --- time, cancel, pause ----------------------------------------------------------------------------------------------


def test_a_child_that_takes_too_long_is_cancelled_and_its_task_fails() -> None:
    scenario = calling("spec: {timeout: 60}")
    (child_id,) = scenario.execution.children
    scenario.wait(60)
    assert scenario.facts(ChildOrdered) == [ChildOrdered(child_id, "cancel", "its parent no longer waits for it")]
    assert scenario.execution.children == {}
    scenario.done("start")
    (processed,) = [fact for fact in scenario.facts(TaskProcessed) if fact.task == "call"]
    assert processed.error is not None and processed.error.kind == "timeout"
    assert "playbook reports/daily longer than its timeout of 60 s" in processed.error.message
    late = RecordedFact(ChildFinished(child_id, "", Outcome("error", error=ErrorInfo("child_failed", "cancelled"))))
    assert not scenario.feed(late).taken


def test_a_child_is_cancelled_with_its_parent() -> None:
    scenario = calling()
    scenario.cancel("enough")
    assert (scenario.status, ordered(scenario)) == ("cancelled", ["cancel"])


def test_a_child_is_cancelled_when_its_parent_fails() -> None:
    scenario = calling(root="executor: {spec: {timeout_s: 60}}\n")
    scenario.wait(60)
    assert (scenario.status, scenario.error.kind, ordered(scenario)) == ("failed", "timeout", ["cancel"])


def test_a_child_is_cancelled_when_its_step_run_times_out() -> None:
    scenario = calling(spec="spec: {policy: {lifecycle: {timeout_s: 60}}}")
    scenario.wait(60)
    assert ordered(scenario) == ["cancel"]
    assert scenario.take("rescue").command.args == {"error": "timeout"}


def test_a_child_is_cancelled_when_an_iteration_beside_it_fails() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
          tool: {kind: playbook, path: other, args: {n: "{{ n }}"}}
        """
    )
    scenario.done("start", index=0)
    scenario.failed("start", index=1)
    assert (scenario.status, ordered(scenario)) == ("failed", ["cancel"])


def test_children_pause_and_continue_with_their_parent() -> None:
    scenario = calling()
    scenario.pause()
    scenario.resume()
    assert ordered(scenario) == ["pause", "resume"]
    assert len(scenario.execution.children) == 1


def test_a_child_that_ends_while_its_parent_is_paused_is_taken_on_resume() -> None:
    scenario = calling()
    scenario.pause()
    scenario.child_ended("meanwhile")
    assert scenario.working == []
    scenario.resume()
    scenario.done("start")
    assert scenario.result == {"got": "meanwhile"}


@pytest.mark.parametrize(
    ("order", "request_type"), [("cancel", CancelRequested), ("pause", PauseRequested), ("resume", ResumeRequested)]
)
def test_an_order_to_a_child_is_a_request_to_it(order: Any, request_type: type) -> None:
    scenario = calling()
    message = child_message(scenario.execution, ChildOrdered("child", order, "why"), 7)
    assert message is not None and message.execution_id == "child"
    assert isinstance(message.fact, request_type) and message.fact.reason == "why"
    other = child_message(scenario.execution, ChildOrdered("child", order, "why"), 8)
    assert other is not None and other.fact.request_id != message.fact.request_id  # type: ignore[union-attr]


# --- as a child -------------------------------------------------------------------------------------------------------

PARENT = Parent("parent", "steprun", "command", (1, 2))
CHILD = "- step: one\n  tool: {kind: noop}\n  next: {arcs: [{step: two}]}\n- step: two\n  tool: {kind: noop}\n"


def finished(scenario: Scenario) -> ChildFinished:
    """What the parent is told."""
    (fact,) = scenario.facts(ExecutionFinished)
    message = child_message(scenario.execution, fact, scenario.execution.position - 1)
    assert message is not None and message.execution_id == "parent"
    assert isinstance(message.fact, ChildFinished)
    return message.fact


def child(parent: Parent = PARENT, root: str = "") -> Scenario:
    scenario = given(CHILD, root)
    scenario.start(parent=parent)
    return scenario


def test_a_child_reports_its_result_and_its_call_to_its_parent() -> None:
    scenario = child()
    scenario.done("one", 1)
    scenario.done("two", 2)
    sent = finished(scenario)
    assert (sent.execution_id, sent.command_id, sent.path) == ("execution-1", "command", (1, 2))
    assert sent.outcome.status == "ok" and bytes(sent.outcome.result.value) == b"2"


def test_a_child_reports_the_result_of_its_return_step() -> None:
    scenario = child(replace(PARENT, return_step="one"), "executor: {spec: {result: '{{ two }}'}}\n")
    scenario.done("one", 1)
    scenario.done("two", 2)
    assert bytes(finished(scenario).outcome.result.value) == b"1"


def test_a_child_that_is_asked_for_a_step_it_does_not_have_is_refused() -> None:
    scenario = child(replace(PARENT, return_step="never"))
    error = finished(scenario).outcome.error
    assert error is not None and "has no step never; it has one, two" in error.message


def test_a_failed_child_reports_its_playbook_and_its_error() -> None:
    scenario = child()
    scenario.failed("one", "connection", "it hung up")
    error = finished(scenario).outcome.error
    assert error is not None and (error.kind, error.code) == ("child_failed", "connection")
    assert error.message == "playbook tests/test (execution-1) failed: it hung up"


def test_a_child_whose_args_do_not_match_what_it_declares_fails_its_call() -> None:
    scenario = child(root="executor: {spec: {workload: {required: [day]}}}\n")
    error = finished(scenario).outcome.error
    assert error is not None and (error.kind, error.code) == ("child_failed", "invalid_workload")
    assert '"day" is a required property' in error.message
    assert scenario.working == []


def test_a_cancelled_child_is_an_error_too() -> None:
    scenario = child()
    scenario.cancel("enough")
    error = finished(scenario).outcome.error
    assert error is not None and error.code == "cancelled" and "cancelled: enough" in error.message


def test_a_result_kept_by_reference_is_handed_on_as_it_is() -> None:
    scenario = child()
    scenario.objects.takes = lambda data: True
    scenario.done("one", 1)
    scenario.done("two", {"large": True})
    reference = finished(scenario).outcome.result.reference
    assert isinstance(reference, Reference) and reference.store == "nats"


def test_playbooks_that_call_each_other_too_deep_are_refused_with_the_limit_named() -> None:
    scenario = given(CHILD, limits(max_call_depth=3))
    scenario.start(parent=Parent("parent", "steprun", "command", depth=4))
    assert scenario.status == "failed" and "limits.max_call_depth is 3" in scenario.error.message


def test_each_call_is_one_deeper() -> None:
    scenario = given(CALL.replace("MORE", "").replace("SPEC", "desc: calls"))
    scenario.start(parent=Parent("parent", "steprun", "command", depth=3))
    scenario.done("start", {"day": 1})
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 1)
    assert message is not None and isinstance(message.fact, ExecutionRequested) and message.fact.parent is not None
    assert message.fact.parent.depth == 4


def test_some_facts_send_no_message_to_the_parent() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    scenario.done("start")
    assert child_message(scenario.execution, scenario.facts(ExecutionFinished)[0], 1) is None
    assert child_message(scenario.execution, LoopDone("run", 0, 0, 0, 0), 1) is None
