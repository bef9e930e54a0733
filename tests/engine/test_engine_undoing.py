"""LANGUAGE §9 *Undoing*: what an execution has done is undone before it ends, and *finally* runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_scenarios import started

from noetl_stream.engine.effects import InheritSecrets
from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import Compensation, ExecutionFinished
from noetl_stream.model.ids import undoing_of
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.status import ExecutionStatus
from noetl_testkit.scenario.scenario import AskRefused, Scenario, inputs_of, parked, rerun

ORDER = """
- step: start
  tool: {kind: noop}
  spec: {policy: {compensation: {tool: {kind: noop, args: {release: "{{ start.id }}"}}}}}
  next: {arcs: [{step: charge, args: {amount: 100}}]}
- step: charge
  tool: {kind: noop}
  spec: {policy: {compensation: {tool: {kind: noop, args: {refund: "{{ charge.id }}", of: "{{ args.amount }}"}}}}}
  next: {arcs: [{step: ship}]}
- step: ship
  tool: {kind: wait, signal: carrier, timeout_s: 60}
"""


def ordered(policy: str = "", more: str = "", root: str = "") -> Scenario:
    """An order that was reserved and charged, and waits for its carrier."""
    executor = root or f"executor: {{ spec: {{ policy: {{ {policy} }} }} }}\n"
    scenario = started(ORDER + more, executor)
    scenario.done("start", {"id": "r1"})
    scenario.done("charge", {"id": "c1"})
    scenario.done("ship")
    return scenario


def shown(scenario: Scenario) -> ExecutionStatus:
    return scenario.execution.shown_status


def inputs(scenario: Scenario, step: str) -> dict[str, Any]:
    """The args with which a ``noop`` task of the step is to run."""
    run = scenario.take(step)
    run.begin()
    run.finish()
    value = scenario.execution.steps[step].outcome.result.value
    found: dict[str, Any] = json.loads(bytes(value))
    return found


def what_became(scenario: Scenario) -> dict[str, str]:
    """Of each step that was to be undone, why it was not; empty if it was."""
    (finished,) = scenario.facts(ExecutionFinished)
    assert all(one.undone != bool(one.reason) for one in finished.compensations)
    return {one.step: one.reason for one in finished.compensations}


def test_completed_steps_are_undone_in_reverse_order_of_their_ends_before_the_execution_ends() -> None:
    scenario = ordered()
    scenario.cancel("enough")
    assert shown(scenario) == "compensating"
    assert scenario.working == [("charge__compensation", None)]
    scenario.done("charge__compensation")
    assert scenario.working == [("start__compensation", None)]
    scenario.done("start__compensation")
    assert (scenario.status, scenario.error.kind, scenario.error.message) == ("cancelled", "cancelled", "enough")
    assert list(what_became(scenario).items()) == [("charge", ""), ("start", "")]


def test_a_compensation_reads_the_result_args_and_vars_of_the_run_that_it_undoes() -> None:
    policy = "{rules: [{else: {then: {do: continue, set_vars: {seen: '{{ outcome.result.id }}'}}}}]}"
    undo = "{kind: noop, args: {id: '{{ each.id }}', n: '{{ args.n }}', seen: '{{ vars.seen }}'}}"
    scenario = started(f"""
    - step: start
      next: {{spec: {{mode: inclusive}}, arcs: [{{step: each, args: {{n: 1}}}}, {{step: each, args: {{n: 2}}}}]}}
    - step: each
      tool: {{kind: noop, spec: {{policy: {policy}}}}}
      spec: {{policy: {{compensation: {{tool: {undo}}}}}}}
      next: {{arcs: [{{step: end}}]}}
    - step: end
      tool: {{kind: wait, signal: never, timeout_s: 60}}
    """)
    scenario.done("each", {"id": "a"})
    scenario.done("each", {"id": "b"})
    scenario.done("end")
    scenario.done("end")
    scenario.cancel()
    assert inputs(scenario, "each__compensation") == {"id": "b", "n": 2, "seen": "b"}
    assert inputs(scenario, "each__compensation") == {"id": "a", "n": 1, "seen": "a"}
    assert scenario.status == "cancelled"


@pytest.mark.parametrize(("on", "undone"), [("[failed]", False), ("[timeout]", True), ("[]", False)])
def test_a_timeout_is_an_end_of_its_own(on: str, undone: bool) -> None:
    root = f"executor: {{ spec: {{ timeout_s: 30, policy: {{ compensation: {{ on: {on} }} }} }} }}\n"
    scenario = ordered(root=root)
    scenario.wait(30)
    assert (shown(scenario) == "compensating") == undone
    if not undone:
        assert (scenario.status, scenario.facts(ExecutionFinished)[0].compensations) == ("failed", [])


def test_a_failure_undoes_but_for_the_step_that_failed() -> None:
    scenario = ordered()
    scenario.wait(60)
    scenario.done("ship")
    assert shown(scenario) == "compensating"
    scenario.done("charge__compensation")
    scenario.done("start__compensation")
    assert (scenario.status, scenario.error.kind) == ("failed", "timeout")


def test_a_failing_compensation_is_reported_and_does_not_stop_the_others() -> None:
    scenario = ordered()
    scenario.cancel()
    scenario.failed("charge__compensation", message="the bank is closed")
    scenario.done("start__compensation")
    assert scenario.status == "cancelled"
    assert what_became(scenario) == {"charge": "its compensation failed: the bank is closed", "start": ""}
    assert scenario.execution.tolerated == {}


def test_a_compensation_is_retried_by_its_own_policy() -> None:
    rules = "{rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 2, delay: 60}}]}"
    scenario = started(f"""
    - step: start
      tool: {{kind: noop}}
      spec: {{policy: {{compensation: {{tool: {{kind: noop, spec: {{policy: {rules}}}}}}}}}}}
      next: {{arcs: [{{step: end}}]}}
    - step: end
      tool: {{kind: noop}}
    """)
    scenario.done("start")
    scenario.failed("end")
    scenario.failed("start__compensation")
    assert shown(scenario) == "compensating" and scenario.suspended == [("start__compensation", None)]
    scenario.ask(events.RetryNowRequested)
    scenario.done("start__compensation")
    assert what_became(scenario) == {"start": ""}


def test_steps_that_complete_while_the_execution_is_being_cancelled_are_undone_too() -> None:
    scenario = started(ORDER)
    run = scenario.take("start")
    run.begin()
    scenario.cancel()
    run.finish({"id": "r1"})
    assert inputs(scenario, "start__compensation") == {"release": "r1"}
    assert scenario.status == "cancelled"


def test_steps_that_began_and_did_not_complete_are_reported() -> None:
    scenario = started(ORDER)
    scenario.done("start", {"id": "r1"})
    run = scenario.take("charge")
    run.begin()
    scenario.cancel()
    run.fail("cancelled", "stopped")
    scenario.done("start__compensation")
    assert what_became(scenario) == {"charge": "it was stopped, and may have had an effect", "start": ""}


def test_a_worker_that_never_answers_does_not_keep_the_rest_from_being_undone() -> None:
    scenario = started(ORDER)
    scenario.done("start", {"id": "r1"})
    scenario.take("charge").begin()
    scenario.cancel()
    scenario.wait(30)
    scenario.done("start__compensation")
    assert what_became(scenario) == {"charge": "it was stopped, and may have had an effect", "start": ""}


def test_a_loop_is_undone_as_one() -> None:
    scenario = started("""
    - step: start
      loop: {in: [1, 2], iterator: item, spec: {mode: parallel}}
      tool: {kind: noop}
      spec: {policy: {compensation: {tool: {kind: noop, args: {all: "{{ start }}"}}}}}
      next: {arcs: [{step: end}]}
    - step: end
      tool: {kind: noop}
    """)
    scenario.done("start", "a", index=0)
    scenario.done("start", "b", index=1)
    scenario.failed("end")
    assert inputs(scenario, "start__compensation") == {"all": ["a", "b"]}
    assert scenario.status == "failed"


def test_undoing_has_one_bound_for_all_steps() -> None:
    scenario = ordered("compensation: {timeout_s: 20}")
    scenario.cancel()
    run = scenario.take("charge__compensation")
    run.begin()
    scenario.wait(20)
    over = "undoing took longer than executor.spec.policy.compensation.timeout_s"
    assert scenario.status == "cancelled"
    assert what_became(scenario) == {"charge": f"its compensation failed: {over}", "start": over}


def test_a_limit_on_step_runs_keeps_nothing_from_being_undone() -> None:
    scenario = started(ORDER, "executor: {spec: {policy: {limits: {max_step_runs: 2}}}}\n")
    scenario.done("start", {"id": "r1"})
    scenario.done("charge", {"id": "c1"})
    assert shown(scenario) == "compensating"
    scenario.done("charge__compensation")
    scenario.done("start__compensation")
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")


def test_an_undoing_execution_accepts_only_signals_attempts_and_an_immediate_cancel() -> None:
    scenario = ordered()
    scenario.cancel()
    for ask in (scenario.pause, scenario.resume, scenario.cancel, lambda: scenario.patch(a=1)):
        with pytest.raises(
            AskRefused, match="was cancelled, and undoes what it has done: only `cancel --now`"
        ) as refused:
            ask()
        assert refused.value.code == "ending"
    scenario.signal("anything")
    scenario.done("charge__compensation")
    scenario.cancel("the bank asks for it", now=True)
    assert (scenario.status, scenario.error.message) == ("cancelled", "on request")
    assert what_became(scenario) == {"charge": "", "start": "it was cancelled at once: the bank asks for it"}


def test_a_compensation_that_ends_well_although_it_was_to_stop_has_undone() -> None:
    scenario = ordered()
    scenario.cancel()
    run = scenario.take("charge__compensation")
    run.begin()
    scenario.cancel(now=True)
    run.finish()
    assert what_became(scenario) == {"charge": "", "start": "it was cancelled at once: on request"}


def test_a_cancel_now_undoes_nothing_and_runs_no_finally() -> None:
    scenario = ordered("finally: note", "- step: note\n  tool: {kind: noop}\n")
    scenario.cancel("quick", now=True)
    assert scenario.status == "cancelled"
    assert set(what_became(scenario).values()) == {"it was cancelled at once: quick"}


def test_a_cancel_in_quarantine_undoes_nothing_and_reports_it() -> None:
    scenario = ordered()
    scenario.feed(RecordedFact(events.ExecutionQuarantined("broken")))
    scenario.cancel("enough")
    assert scenario.status == "cancelled"
    assert set(what_became(scenario).values()) == {"it was cancelled where it could not be undone: enough"}


NOTE = """
- step: note
  tool: {kind: noop, args: {was: "{{ execution.status }}", why: "{{ execution.error.kind | default(none) }}"}}
"""


def test_finally_runs_once_at_each_end_and_reads_its_status() -> None:
    scenario = ordered("finally: note, compensation: {on: []}", NOTE)
    scenario.signal("carrier")
    scenario.done("ship")
    assert shown(scenario) == "running"
    assert inputs(scenario, "note") == {"was": "completed", "why": None}
    assert scenario.status == "completed"

    scenario = ordered("finally: note", NOTE)
    scenario.cancel()
    scenario.done("charge__compensation")
    scenario.done("start__compensation")
    assert inputs(scenario, "note") == {"was": "cancelled", "why": "cancelled"}
    assert (scenario.status, scenario.names.count("execution.closing")) == ("cancelled", 1)


def test_a_finally_that_fails_or_never_ends_changes_nothing_and_is_reported() -> None:
    scenario = ordered("finally: note", NOTE)
    scenario.signal("carrier", "delivered")
    scenario.done("ship")
    scenario.failed("note")
    assert (scenario.status, scenario.result) == ("completed", "delivered")
    assert scenario.execution.tolerated["note"].runs == 1

    scenario = ordered("finally: note", NOTE)
    scenario.signal("carrier")
    scenario.done("ship")
    scenario.wait(600)
    assert (scenario.status, scenario.execution.tolerated["note"].runs) == ("completed", 1)


def test_an_execution_without_either_ends_with_the_same_facts_as_before() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    scenario.done("start")
    assert "execution.closing" not in scenario.names
    assert scenario.facts(events.ExecutionStarted)[0].undoes == {}


CALLING = """
- step: start
  tool: {kind: playbook, path: pay}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: wait, signal: never, timeout_s: 60}
"""
COMPENSATES = "executor: {spec: {policy: {compensation: {timeout_s: 600}}}}\n"


def called() -> tuple[Scenario, str]:
    """An execution that waits for one that it has called, by its id."""
    scenario = started(CALLING, COMPENSATES)
    scenario.done("start")
    (child,) = scenario.execution.children
    return scenario, child


def test_a_called_execution_that_has_completed_is_undone_by_another() -> None:
    scenario, child = called()
    scenario.child_ended({"paid": 1})
    scenario.done("start")
    scenario.done("end")
    scenario.cancel()
    assert list(scenario.execution.children) == [undoing_of(child)]
    assert shown(scenario) == "compensating"
    scenario.child_ended()
    assert (scenario.status, what_became(scenario)) == ("cancelled", {"start": ""})


def test_steps_of_a_called_execution_that_could_not_be_undone_are_reported() -> None:
    scenario, _ = called()
    scenario.child_ended()
    scenario.done("start")
    scenario.done("end")
    scenario.cancel()
    failed = Outcome("error", error=ErrorInfo("child_failed", "not undone: pay"))
    scenario.child_ended(error=failed.error)
    assert (scenario.status, what_became(scenario)) == ("cancelled", {"start": "not undone: pay"})


def test_a_called_execution_that_runs_is_cancelled_and_awaited_before_anything_is_undone() -> None:
    scenario = started("""
    - step: start
      tool: {kind: noop}
      spec: {policy: {compensation: {tool: {kind: noop}}}}
      next: {arcs: [{step: pay}]}
    - step: pay
      tool: {kind: playbook, path: pay}
    """)
    scenario.done("start")
    scenario.done("pay")
    scenario.cancel()
    (order,) = scenario.facts(events.ChildOrdered)
    assert (order.order, order.awaited) == ("cancel", True)
    assert (shown(scenario), scenario.working) == ("compensating", [])
    scenario.child_ended(error=ErrorInfo("child_failed", "cancelled"))
    scenario.done("start__compensation")
    assert (scenario.status, what_became(scenario)) == ("cancelled", {"start": ""})


def test_a_called_execution_that_completes_instead_of_being_cancelled_is_undone() -> None:
    scenario, child = called()
    scenario.cancel()
    scenario.child_ended()
    assert list(scenario.execution.children) == [undoing_of(child)]
    scenario.child_ended()
    assert (scenario.status, what_became(scenario)) == ("cancelled", {"start": ""})


def test_a_caller_that_has_waited_long_enough_for_what_undoes_ends() -> None:
    scenario, _ = called()
    scenario.child_ended()
    scenario.done("start")
    scenario.done("end")
    scenario.cancel()
    scenario.wait(600)
    over = "undoing took longer than executor.spec.policy.compensation.timeout_s"
    assert (scenario.status, what_became(scenario)) == ("cancelled", {"start": over})
    assert [(one.order, one.now) for one in scenario.facts(events.ChildOrdered)] == [("cancel", True)]


def test_an_undoing_execution_is_cancelled_at_once_if_its_caller_fails() -> None:
    scenario, _ = called()
    scenario.child_ended()
    scenario.done("start")
    scenario.done("end")
    scenario.cancel()
    scenario.feed(RecordedFact(events.ExecutionFailing(ErrorInfo("limit_exceeded", "a cycle"))))
    assert [(one.order, one.now) for one in scenario.facts(events.ChildOrdered)] == [("cancel", True)]


def test_another_execution_undoes_what_was_left() -> None:
    scenario = ordered("compensation: {on: []}, finally: note", NOTE)
    scenario.cancel()
    scenario.done("note")
    undoing = rerun(scenario, undoes=True)
    assert shown(undoing) == "compensating"
    assert inputs(undoing, "charge__compensation") == {"refund": "c1", "of": 100}
    assert inputs(undoing, "start__compensation") == {"release": "r1"}
    assert (undoing.status, what_became(undoing)) == ("completed", {"charge": "", "start": ""})


def test_an_undone_step_is_never_undone_again() -> None:
    scenario = ordered()
    scenario.cancel()
    scenario.failed("charge__compensation", message="the bank is closed")
    scenario.done("start__compensation")
    undoing = rerun(scenario, undoes=True)
    undoing.failed("charge__compensation", message="still closed")
    assert (undoing.status, undoing.error.kind) == ("failed", "not_undone")
    again = rerun(undoing, undoes=True)
    again.done("charge__compensation")
    assert (again.status, what_became(again)) == ("completed", {"charge": ""})
    with pytest.raises(AskRefused, match="nothing is left to undo"):
        rerun(again, undoes=True)


def test_an_execution_that_has_completed_is_not_undone_on_request() -> None:
    scenario = ordered()
    scenario.signal("carrier")
    scenario.done("ship")
    with pytest.raises(AskRefused, match="has completed"):
        rerun(scenario, undoes=True)


def test_an_undone_step_is_not_reused() -> None:
    scenario = ordered()
    scenario.cancel()
    scenario.done("charge__compensation")
    scenario.done("start__compensation")
    with pytest.raises(AskRefused, match="rerun from start, or before; undone: start, charge") as refused:
        rerun(scenario, "ship")
    assert refused.value.code == "undone"
    assert rerun(scenario, "start").working == [("start", None)]


def test_a_call_that_another_execution_has_undone_is_not_reused() -> None:
    scenario = started(CALLING, COMPENSATES.replace("timeout_s: 600", "on: []"))
    scenario.done("start")
    scenario.child_ended()
    scenario.done("start")
    scenario.done("end")
    scenario.wait(60)
    scenario.done("end")
    plan, request = scenario.plan, parked(scenario, "end").execution.request
    assert scenario.status == "failed" and request is not None

    def first(undone_by: str) -> events.Fact:
        summary = JournalSummary(scenario.execution_id, scenario.rows(), undone_by)
        return reuse(plan, "again", request, summary)[0]

    assert isinstance(first(""), events.ExecutionReused)
    refused = first("another")
    assert isinstance(refused, events.RerunRefused)
    assert "undone by execution another: rerun from start" in refused.reason


def test_a_rerun_leaves_what_it_has_reused_to_the_execution_in_which_it_ran() -> None:
    scenario = ordered("compensation: {on: [cancelled]}")
    scenario.wait(60)
    scenario.done("ship")
    again = rerun(scenario)
    again.done("ship")
    again.cancel()
    assert again.status == "cancelled"
    assert set(what_became(again).values()) == {"it ran in execution execution-1"}


def test_a_rerun_that_undoes_nothing_keeps_nothing_to_undo() -> None:
    scenario = started("""
    - step: start
      tool: {kind: noop}
      next: {arcs: [{step: end}]}
    - step: end
      tool: {kind: noop}
    """)
    scenario.done("start", "large")
    scenario.failed("end")
    assert rerun(scenario).execution.compensable == {}


def test_another_server_goes_on_undoing() -> None:
    scenario = ordered()
    scenario.cancel()
    scenario.take_over()
    scenario.done("charge__compensation")
    scenario.take_over()
    scenario.done("start__compensation")
    assert what_became(scenario) == {"charge": "", "start": ""}
    assert scenario.decided_again() == scenario.journal


def test_reports_on_a_step_run_name_it() -> None:
    scenario = ordered()
    runs = {fact.step_run_id for fact in scenario.facts(events.TokenClaimed)}
    scenario.cancel(now=True)
    (finished,) = scenario.facts(ExecutionFinished)
    assert {one.step_run_id for one in finished.compensations} < runs
    assert isinstance(finished.compensations[0], Compensation)


def test_an_undoing_execution_hides_the_secrets_of_the_undone_one() -> None:
    scenario = ordered("compensation: {on: []}")
    scenario.cancel()
    undoing = parked(scenario, undoes=True)
    effects = [one for fact in inputs_of(undoing, scenario) for one in undoing.feed(RecordedFact(fact)).effects]
    assert InheritSecrets(scenario.execution_id) in effects


def test_a_patch_that_overwrote_another_while_the_execution_failed_is_not_noted_while_it_undoes() -> None:
    keep = "spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {kept: '{{ _task }}'}}}}]}}"
    scenario = started(
        f"""
- step: start
  next: {{spec: {{mode: inclusive}}, arcs: [{{step: one}}, {{step: other}}, {{step: fails}}]}}
- step: one
  tool: {{kind: noop, {keep}}}
  spec: {{policy: {{compensation: {{tool: {{kind: noop}}}}}}}}
- step: other
  tool: {{kind: noop, {keep}}}
- step: fails
  tool: {{kind: noop}}
"""
    )
    late = scenario.take("other")
    late.begin()
    scenario.done("one")
    scenario.failed("fails")
    late.finish()
    assert shown(scenario) == "compensating"
    scenario.done("one__compensation")
    assert (scenario.status, "ctx.overwrote" in scenario.names) == ("failed", False)
