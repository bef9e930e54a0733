"""A failure that nobody handles: LANGUAGE §7 *failure.mode*, and what is cancelled before the execution ends."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, started

from noetl_stream.engine.effects import answer_claim, build_command
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ExecutionFailing,
    ExecutionFinished,
    NextEvaluated,
    StepCancelled,
    StepFailed,
    TokenDiscarded,
    TokenEnqueued,
)
from noetl_stream.model.messages import Drop
from noetl_stream.model.outcome import ErrorInfo

BRANCHES = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: shut}]}
- step: a
  tool: {kind: noop}
  next: {arcs: [{step: later}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: later}]}
- step: shut
  spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: later
  tool: {kind: noop}
"""


def test_an_unhandled_failure_fails_the_execution_with_the_steps_error() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    scenario.failed("start", "connection", "it hung up")
    assert scenario.status == "failed"
    assert (scenario.error.kind, scenario.error.message) == ("connection", "it hung up")
    (failing,) = scenario.facts(ExecutionFailing)
    assert failing.step == "start"
    assert scenario.names[-5:] == [
        "step.failed",
        "next.evaluated",
        "execution.failing",
        "execution.finished",
        "playbook.processed",
    ]


def test_waiting_tokens_are_discarded_and_unclaimed_commands_given_up() -> None:
    scenario = started(BRANCHES)
    scenario.failed("a")
    assert scenario.status == "failed"
    assert [fact.reason for fact in scenario.facts(TokenDiscarded)] == ["the execution has failed"]
    assert [fact.reason for fact in scenario.facts(StepCancelled)] == ["the execution has failed"]
    assert scenario.facts(ExecutionFinished)[0].discarded == 1


def test_the_execution_ends_when_the_workers_it_stopped_have_answered() -> None:
    scenario = started(BRANCHES)
    run = scenario.take("b")
    run.begin()
    scenario.failed("a")
    assert (scenario.status, scenario.working) == ("running", [("b", None)])
    run.stop()
    assert scenario.status == "failed"


def test_a_step_that_succeeds_after_its_cancellation_is_not_routed() -> None:
    scenario = started(BRANCHES)
    run = scenario.take("b")
    run.begin()
    scenario.failed("a", "connection")
    run.finish()
    assert (scenario.status, scenario.error.kind) == ("failed", "connection")
    assert len(scenario.facts(NextEvaluated)) == 2  # of start and of a
    assert "later" not in [fact.token.step for fact in scenario.facts(TokenEnqueued)]


def test_a_second_failure_changes_nothing_about_the_first() -> None:
    scenario = started(BRANCHES)
    run = scenario.take("b")
    run.begin()
    scenario.failed("a", "connection")
    run.fail("exception")
    assert (scenario.error.kind, len(scenario.facts(ExecutionFailing))) == ("connection", 1)


def test_a_cancelled_command_whose_worker_died_ends_with_the_claim_of_the_next_one() -> None:
    scenario = started(BRANCHES)
    scenario.take("b").begin()
    scenario.failed("a")
    answer = scenario.claim(scenario.take("b"))
    assert answer == Drop("the execution is failed")
    assert scenario.status == "failed"


def test_a_cancelled_command_that_is_ordered_again_ends_with_its_claim() -> None:
    scenario = started(BRANCHES)
    scenario.take("b").begin()
    scenario.failed("a")
    scenario.issue_again(scenario.owed("b"))
    assert scenario.status == "running"
    assert isinstance(scenario.claim(scenario.take("b")), Drop)
    assert scenario.status == "failed"


def test_best_effort_ends_the_branch_and_the_others_continue() -> None:
    scenario = started(BRANCHES, BEST_EFFORT)
    scenario.failed("a")
    assert scenario.working == [("b", None)]
    scenario.done("b")
    scenario.done("later", "the end")
    assert (scenario.status, scenario.result) == ("completed", "the end")
    assert scenario.facts(StepCancelled) == []


def test_the_failure_mode_of_a_step_decides_for_its_own_unhandled_failure() -> None:
    scenario = started(
        BRANCHES.replace("- step: a\n", "- step: a\n  spec: {policy: {failure: {mode: best_effort}}}\n", 1)
    )
    scenario.failed("a")
    assert (scenario.working, scenario.facts(StepCancelled)) == ([("b", None)], [])
    scenario.failed("b")
    assert (scenario.status, scenario.error.kind) == ("failed", "exception")


def test_best_effort_completes_although_every_branch_failed() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", BEST_EFFORT)
    scenario.failed("start")
    assert (scenario.status, scenario.result) == ("completed", None)


ONE_CANNOT = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [FIRST, SECOND, {step: held}]}
- step: fine
  tool: {kind: noop}
- step: held
  spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}
  tool: {kind: noop}
- step: broken
  spec: {policy: {admit: {rules: [{when: "{{ ctx.never > 1 }}", then: {allow: true}}]}}}
  tool: {kind: noop}
"""


@pytest.mark.parametrize(("first", "second"), [("fine", "broken"), ("broken", "fine")])
def test_no_step_begins_once_the_execution_has_failed(first: str, second: str) -> None:
    """Decisions that were on their way when the failure was folded have no effect any more."""
    steps = ONE_CANNOT.replace("FIRST", f"{{step: {first}}}").replace("SECOND", f"{{step: {second}}}")
    scenario = started(steps)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    after = scenario.names[scenario.names.index("execution.failing") :]
    assert "token.claimed" not in after and "step.scheduled" not in after
    assert scenario.working == []


def test_every_token_that_comes_after_the_failure_is_discarded_with_the_reason() -> None:
    steps = ONE_CANNOT.replace("FIRST", "{step: broken}").replace("SECOND", "{step: fine}")
    scenario = started(steps)
    reasons = {fact.reason for fact in scenario.facts(TokenDiscarded)}
    assert reasons == {"the execution has failed"}
    assert scenario.names.count("token.enqueued") == scenario.names.count("token.claimed") + len(
        scenario.facts(TokenDiscarded)
    )


def test_a_step_that_fails_from_outside_while_the_execution_fails_leaves_no_command_behind() -> None:
    """The shell fails a step whose command cannot be sent; iterations of it that run are not asked about any more."""
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: many}, {step: a}]}
        - step: many
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
          tool: {kind: noop}
        - step: a
          tool: {kind: noop}
        """
    )
    runs = [scenario.take("many", index=index) for index in range(2)]
    for run in runs:
        run.begin()
    scenario.failed("a", "connection")
    step_run_id = runs[0].command.step_run_id
    scenario.feed(RecordedFact(StepFailed(step_run_id, ErrorInfo("limit_exceeded", "too large"))))
    assert (scenario.status, scenario.error.kind) == ("failed", "connection")
    before = scenario.state
    runs[0].finish()
    assert scenario.state is before


def test_a_step_that_fails_from_outside_is_routed_and_its_commands_are_forgotten() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
          tool: {kind: noop}
          next: {arcs: [{step: rescue, when: "{{ event.error.kind == 'limit_exceeded' }}"}]}
        - step: rescue
          tool: {kind: noop}
        """
    )
    run = scenario.take("start", index=0)
    scenario.feed(RecordedFact(StepFailed(run.command.step_run_id, ErrorInfo("limit_exceeded", "too large"))))
    assert scenario.working == [("rescue", None)]
    assert answer_claim(scenario.state, run.run) == Drop("the step run has ended")
    assert build_command(scenario.plan, scenario.execution, scenario.owed("rescue")).step == "rescue"
