"""LANGUAGE §4 ``admit.wait``, §5 *Timeouts*: of admission, step and execution; what each cancels, how it is routed."""

from __future__ import annotations

import pytest
from engine_scenarios import given, started

from noetl_stream.model.events import NextEvaluated, StepCancelled, TimerSet, TokenClaimed, TokenDiscarded, TokenHeld
from noetl_testkit.scenario.scenario import Scenario

# --- admission --------------------------------------------------------------------------------------------------------

GATE = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: gate, args: {who: me}}, {step: other}, {step: patient}]}
- step: gate
  spec:
    policy:
      admit:
        rules: [{when: "{{ ctx.approved | default(false) }}", then: {allow: true}}]
        wait: {timeout_s: 60, on_timeout: ON_TIMEOUT}
  tool: {kind: noop}
  next: {arcs: [{step: refused, when: "{{ event.error.kind == 'admission_timeout' }}",
                 args: {why: "{{ event.error.message }}", who: "{{ args.who }}"}}]}
- step: other
  tool: {kind: noop}
- step: patient
  spec: {policy: {admit: {rules: [{when: "{{ gate is not none }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: refused
  tool: {kind: noop}
"""


def gate(on_timeout: str = "fail") -> Scenario:
    scenario = started(GATE.replace("ON_TIMEOUT", on_timeout))
    scenario.done("other")
    assert scenario.held == ["gate", "patient"]
    return scenario


def test_a_token_that_may_wait_keeps_the_execution_alive_and_held_ones_without_wait_with_it() -> None:
    scenario = gate()
    assert (scenario.status, scenario.execution.shown_status) == ("running", "waiting")
    assert [fact.keeps_alive for fact in scenario.facts(TokenHeld)] == [True, False]
    assert scenario.facts(TokenDiscarded) == []
    scenario.patch(approved=True)
    scenario.done("gate")
    assert scenario.working == [("patient", None)]


def test_an_approval_in_time_takes_the_timer_back() -> None:
    scenario = gate()
    scenario.wait(59)
    scenario.patch(approved=True)
    assert scenario.execution.timers == {}
    assert scenario.working == [("gate", None)]


def test_after_its_time_it_fails_and_that_is_routed_like_any_failure() -> None:
    scenario = gate()
    scenario.wait(60)
    assert scenario.working == [("refused", None)]
    args = scenario.take("refused").command.args
    assert args["who"] == "me"
    assert args["why"] == "step gate did not admit its token within admit.wait.timeout_s (60 s)"
    assert scenario.facts(TokenClaimed)[-2].refused is not None


def test_a_failure_without_a_handler_fails_the_execution() -> None:
    steps = GATE.replace("ON_TIMEOUT", "fail").replace("admission_timeout", "something else")
    scenario = started(steps)
    scenario.done("other")
    scenario.wait(60)
    assert (scenario.status, scenario.error.kind) == ("failed", "admission_timeout")


def test_or_it_is_discarded_with_the_reason_and_those_that_waited_with_it() -> None:
    scenario = gate("discard")
    scenario.wait(60)
    assert (scenario.status, scenario.execution.discarded) == ("completed", 2)
    first, second = scenario.facts(TokenDiscarded)
    assert "admit.wait.timeout_s (60 s)" in first.reason
    assert second.reason == "nothing left can change its admission"


def test_the_deadline_of_a_token_runs_from_when_it_was_held() -> None:
    scenario = started(GATE.replace("ON_TIMEOUT", "fail"))
    (timer,) = scenario.facts(TimerSet)
    assert (timer.purpose, timer.due_ms) == ("admission", 1_060_000)
    assert list(scenario.execution.timers) == [timer.timer_id]


# --- the step ---------------------------------------------------------------------------------------------------------

RESCUE = """
  next: {arcs: [{step: rescue, when: "{{ event.error is not none }}",
                 args: {kind: "{{ event.error.kind }}", why: "{{ event.error.message }}"}}]}
- step: rescue
  tool: {kind: noop}
"""
STEP = "- step: start\n  spec: {policy: {lifecycle: {LIFECYCLE}}}\n  LOOP\n  tool: {kind: KIND}" + RESCUE


def timed(lifecycle: str, kind: str = "noop", loop: str = "desc: none") -> Scenario:
    return started(STEP.replace("LIFECYCLE", lifecycle).replace("KIND", kind).replace("LOOP", loop))


def test_a_steps_time_runs_from_its_first_start_and_not_while_it_is_queued() -> None:
    scenario = timed("timeout_s: 60")
    scenario.wait(1000)
    assert scenario.working == [("start", None)]
    scenario.take("start").begin()
    scenario.wait(59)
    assert scenario.working == [("start", None)]
    scenario.wait(1)
    assert scenario.working == [("rescue", None)]
    args = scenario.take("rescue").command.args
    assert args == {"kind": "timeout", "why": "step start exceeded lifecycle.timeout_s (60 s)"}


def rendered(seconds: str) -> Scenario:
    """A step whose time is an expression, where ``ctx.limit`` is 30."""
    lifecycle = f'timeout_s: "{{{{ {seconds} }}}}"'
    steps = STEP.replace("LIFECYCLE", lifecycle).replace("KIND", "noop").replace("LOOP", "desc: none")
    return started(steps, ctx={"limit": 30})


def test_a_steps_time_may_be_a_template_which_is_rendered_once_as_the_step_sees_it() -> None:
    scenario = rendered("ctx.limit * 2")
    scenario.patch(limit=1)
    scenario.take("start").begin()
    scenario.patch(limit=2)
    scenario.wait(59)
    assert scenario.working == [("start", None)]
    scenario.wait(1)
    assert scenario.take("rescue").command.args["why"] == "step start exceeded lifecycle.timeout_s (60 s)"
    assert len(scenario.facts(TimerSet)) == 1
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


@pytest.mark.parametrize("seconds", ["'soon'", "0", "true", "ctx.none"])
def test_a_step_whose_time_is_no_number_of_seconds_fails_at_its_start(seconds: str) -> None:
    scenario = rendered(seconds)
    scenario.take("start").begin()
    args = scenario.take("rescue").command.args
    assert (args["kind"], args["why"].startswith("lifecycle.timeout_s: ")) == ("expression_error", True)
    assert len(scenario.facts(StepCancelled)) == 1


def test_running_commands_are_cancelled_and_their_reports_are_unknown() -> None:
    scenario = timed("timeout_s: 60")
    run = scenario.take("start")
    run.begin()
    scenario.wait(60)
    (cancelled,) = scenario.facts(StepCancelled)
    assert cancelled.command_id == run.command.command_id
    before = scenario.state
    run.finish("too late")
    assert scenario.state is before


def test_a_second_run_of_the_command_does_not_restart_its_timeout() -> None:
    scenario = timed("timeout_s: 60")
    scenario.take("start").begin()
    scenario.wait(50)
    again = scenario.take("start")
    scenario.claim(again)
    again.begin()
    scenario.wait(10)
    assert scenario.working == [("rescue", None)]


def test_the_timeout_includes_suspension() -> None:
    scenario = timed("timeout_s: 60", "wait, for_s: 600")
    scenario.done("start")
    scenario.wait(60)
    assert (scenario.working, scenario.execution.timers) == ([("rescue", None)], {})


def test_the_timeout_includes_all_iterations() -> None:
    scenario = timed("timeout_s: 60", loop="loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}")
    scenario.done("start", index=0)
    scenario.take("start", index=1).begin()
    scenario.wait(60)
    assert scenario.working == [("rescue", None)]
    assert len(scenario.facts(StepCancelled)) == 2


def test_a_step_in_time_takes_its_timers_back() -> None:
    scenario = timed("timeout_s: 60, deadline_s: 70")
    scenario.done("start")
    assert (scenario.status, scenario.execution.timers) == ("completed", {})
    assert len(scenario.facts(TimerSet)) == 2


def test_a_deadline_runs_from_the_tokens_coming_held_or_queued_or_running() -> None:
    for begin in (False, True):
        scenario = timed("deadline_s: 60")
        if begin:
            scenario.take("start").begin()
        scenario.wait(59)
        assert scenario.working == [("start", None)]
        scenario.wait(1)
        assert scenario.working == [("rescue", None)]
        why = scenario.take("rescue").command.args["why"]
        assert why == "step start was not done within lifecycle.deadline_s (60 s)"


def test_a_deadline_ends_a_token_that_is_held() -> None:
    admit = "admit: {rules: [{when: '{{ ctx.ok is defined }}', then: {allow: true}}], wait: {timeout_s: 600}}"
    scenario = started(
        STEP.replace("lifecycle: {LIFECYCLE}", "lifecycle: {deadline_s: 60}, " + admit)
        .replace("KIND", "noop")
        .replace("LOOP", "desc: none")
    )
    assert scenario.held == ["start"]
    scenario.wait(60)
    assert scenario.working == [("rescue", None)]
    assert scenario.execution.timers == {}


def test_each_token_has_its_own_deadline() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {spec: {mode: inclusive}, arcs: [{step: work}, {step: again}]}
        - step: again
          tool: {kind: noop}
          next: {arcs: [{step: work}]}
        - step: work
          spec: {policy: {lifecycle: {deadline_s: 60}}}
          tool: {kind: noop}
          next: {arcs: [{step: late, when: "{{ event.error is not none }}"}]}
        - step: late
          tool: {kind: noop}
        """
    )
    scenario.done("start")
    scenario.wait(30)
    scenario.done("again")
    scenario.wait(30)
    assert scenario.working == [("work", None), ("late", None)]
    scenario.done("work")
    scenario.done("late")
    assert scenario.status == "completed"


# --- the execution ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
def test_the_executions_time_cannot_be_routed(waits: bool) -> None:
    scenario = started(
        STEP.replace("LIFECYCLE", "")
        .replace("LOOP", "desc: none")
        .replace("KIND", "wait, for_s: 600" if waits else "noop"),
        "executor: {spec: {timeout_s: 60}}\n",
    )
    if waits:
        scenario.done("start")
    scenario.wait(60)
    assert (scenario.status, scenario.error.kind) == ("failed", "timeout")
    assert scenario.error.message == "the execution exceeded executor.spec.timeout_s (60 s)"
    assert scenario.facts(NextEvaluated) == []


def test_the_timeout_runs_from_the_start() -> None:
    scenario = given("- step: start\n  tool: {kind: noop}\n", "executor: {spec: {timeout_s: 0.5}}\n")
    scenario.start()
    (timer,) = scenario.facts(TimerSet)
    assert (timer.purpose, timer.due_ms) == ("execution", 1_000_500)
    scenario.done("start")
    assert (scenario.status, scenario.execution.timers) == ("completed", {})


def test_a_timeout_stops_running_work_and_waits_for_its_report() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", "executor: {spec: {timeout_s: 60}}\n")
    run = scenario.take("start")
    run.begin()
    scenario.wait(60)
    assert scenario.status == "running"
    run.finish()
    assert scenario.status == "failed"
