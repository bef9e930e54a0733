"""PROTOCOL §3 *Binding*, *Numbering*, *Claim*: which run of a command the fold listens to, and what it is told."""

from __future__ import annotations

import pytest
from engine_scenarios import started

from noetl_stream.engine.effects import answer_claim
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.evolve.step_runs import classify
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ExecutionFailing,
    ExecutionFinished,
    ExecutionRequested,
    Fact,
    StepClaimed,
    StepDone,
    StepScheduled,
    StepStarted,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import Drop, Go
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_testkit.scenario.scenario import Scenario

TWO_TASKS = """
- step: start
  tool:
  - name: one
    kind: noop
    spec: {policy: {rules: [{else: {then: {do: continue,
      set_ctx: {c: "{{ (ctx.c | default(0)) + 1 }}"}, set_vars: {v: 2}, set_iter: {i: 3}}}}]}}
  - name: two
    kind: noop
- step: other
  tool: {kind: noop}
"""
LOCAL = """
- step: start
  loop: {in: [a, b, c, d], iterator: letter, spec: {mode: sequential, policy: {failure: {mode: best_effort}}}}
  tool:
    name: work
    kind: noop
    spec: {policy: {rules: [{when: "{{ outcome.status == 'ok' }}", then: {do: continue,
      set_ctx: {last: "{{ letter }}"}, set_vars: {v: "{{ letter }}"}}}], on_unmatched: fail}}
"""


def run_of(scenario: Scenario, issue: int = 1, num_delivered: int = 1, nonce: str = "x") -> RunId:
    (assignment,) = scenario.execution.assignments.values()
    return RunId(assignment.command_id, issue, num_delivered, nonce)


def ordered_twice() -> Scenario:
    """Its command has been issued again."""
    scenario = started(TWO_TASKS)
    scenario.issue_again(scenario.owed("start"))
    return scenario


def say(scenario: Scenario, run: RunId, number: int, fact: Fact | None = None) -> str:
    """How the event stands; then it is fed."""
    recorded = RecordedFact(fact or StepStarted("w"), run, number)
    classified = classify(scenario.state, recorded)
    assert scenario.feed(recorded).taken == (classified == "next")
    return classified


def claim(scenario: Scenario, run: RunId) -> str:
    return say(scenario, run, 0, StepClaimed())


# --- binding ----------------------------------------------------------------------------------------------------------


def test_the_first_fact_binds_the_step_run_to_its_run() -> None:
    scenario = started(TWO_TASKS)
    first, second = run_of(scenario), run_of(scenario, nonce="y")
    assert say(scenario, first, 0) == "next"
    assert say(scenario, second, 0) == "stale"
    assert say(scenario, first, 1) == "next"


def test_a_claim_binds_too() -> None:
    scenario = started(TWO_TASKS)
    assert claim(scenario, run_of(scenario, num_delivered=2)) == "next"
    assert say(scenario, run_of(scenario), 0) == "stale"


@pytest.mark.parametrize(("issue", "num_delivered"), [(1, 2), (2, 1), (2, 2)])
def test_a_claim_of_higher_rank_takes_over(issue: int, num_delivered: int) -> None:
    scenario = ordered_twice()
    old, new = run_of(scenario), run_of(scenario, issue, num_delivered, "y")
    say(scenario, old, 0)
    assert claim(scenario, new) == "next"
    assert say(scenario, old, 1) == "stale"
    assert say(scenario, new, 1) == "next"


@pytest.mark.parametrize(("issue", "num_delivered"), [(1, 1), (1, 2), (2, 1)])
def test_a_claim_of_the_same_or_lower_rank_does_not(issue: int, num_delivered: int) -> None:
    scenario = ordered_twice()
    claim(scenario, run_of(scenario, 2, 1))
    other = run_of(scenario, issue, num_delivered, "y")
    assert claim(scenario, other) == "stale"
    assert answer_claim(scenario.state, other) == Drop("another worker has it")


def test_the_answer_to_a_claim_says_how_often_the_command_was_given_back_whoever_did() -> None:
    scenario = ordered_twice()
    first = run_of(scenario)
    say(scenario, first, 0)
    assert say(scenario, first, 1, StepClaimed("no memory")) == "next"
    assert say(scenario, first, 1, StepClaimed("no memory")) == "duplicate"
    for issue, num_delivered, times in ((1, 2, 1), (2, 1, 2)):
        run = run_of(scenario, issue, num_delivered, "y")
        claim(scenario, run)
        answer = answer_claim(scenario.state, run)
        assert isinstance(answer, Go)
        assert answer.returned == times
        say(scenario, run, 1, StepClaimed("no memory"))
    assert say(scenario, first, 2, StepClaimed("too late")) == "stale"
    assert list(scenario.state.returned.values()) == [3]


def test_any_other_fact_of_a_higher_rank_is_stale_without_a_claim() -> None:
    scenario = ordered_twice()
    say(scenario, run_of(scenario), 0)
    assert say(scenario, run_of(scenario, 2, 1, "y"), 0) == "stale"


@pytest.mark.parametrize("issue", [2, 2_000_000_000, 0, -1])
def test_an_issue_that_was_never_ordered_is_unknown_and_holds_nothing(issue: int) -> None:
    scenario = started(TWO_TASKS)
    stray = run_of(scenario, issue, 1, "y")
    assert claim(scenario, stray) == "unknown"
    assert isinstance(answer_claim(scenario.state, stray), Drop)
    assert say(scenario, stray, 0) == "unknown"
    assert say(scenario, run_of(scenario), 0) == "next"


def test_a_stale_fact_changes_nothing_ctx_included() -> None:
    scenario = started(TWO_TASKS)
    run = scenario.take("start")
    run.begin()
    scenario.claim(scenario.take("start"))
    before = scenario.state
    run.finish()
    assert scenario.state is before and scenario.ctx == {}


def test_an_unclaimed_reissue_makes_no_run_stale() -> None:
    scenario = started(TWO_TASKS)
    run = scenario.take("start")
    run.begin()
    scenario.issue_again(scenario.owed("start"))
    run.finish()
    assert scenario.status == "completed"


def test_a_reissue_that_was_ordered_before_anybody_spoke_lets_the_first_copy_speak_still() -> None:
    scenario = started(TWO_TASKS)
    run = scenario.take("start")
    scenario.issue_again(scenario.owed("start"))
    assert scenario.owed("start").issue == 2
    run.finish()
    assert scenario.status == "completed"


def test_a_reissue_takes_effect_once_for_each_number() -> None:
    scenario = started(TWO_TASKS)
    pending = scenario.owed("start")
    assert scenario.issue_again(pending).taken
    assert not scenario.issue_again(pending).taken


# --- numbering --------------------------------------------------------------------------------------------------------


def test_the_fold_takes_exactly_the_next_number() -> None:
    scenario = started(TWO_TASKS)
    run = run_of(scenario)
    standings = [say(scenario, run, number) for number in (0, 0, 1, 0, 1, 2)]
    assert standings == ["next", "duplicate", "next", "duplicate", "duplicate", "next"]


def test_a_number_too_high_is_a_gap_and_changes_nothing() -> None:
    scenario = started(TWO_TASKS)
    run = run_of(scenario)
    assert say(scenario, run, 1) == "gap"
    assert scenario.owed("start").run is None
    say(scenario, run, 0)
    assert say(scenario, run, 2) == "gap"
    assert say(scenario, run, 1) == "next"


def test_a_command_that_is_not_assigned_is_unknown() -> None:
    scenario = started(TWO_TASKS)
    run = run_of(scenario)._replace(command_id="another")
    assert say(scenario, run, 0) == "unknown"
    assert answer_claim(scenario.state, run) == Drop("the step run has ended")


def test_before_the_request_and_after_the_end_everything_is_unknown() -> None:
    scenario = started(TWO_TASKS)
    run = run_of(scenario)
    recorded = RecordedFact(StepStarted("w"), run, 0)
    assert classify(None, recorded) == "unknown"
    assert answer_claim(None, run) == Drop("unknown execution")
    scenario.done("start")
    assert classify(scenario.state, recorded) == "unknown"
    assert answer_claim(scenario.state, run) == Drop("the execution is completed")


def test_a_fact_of_the_server_has_no_standing() -> None:
    scenario = started(TWO_TASKS)
    assert classify(scenario.state, RecordedFact(StepDone("any"))) == "unknown"


@pytest.mark.parametrize(
    "fact",
    [
        ExecutionFailing(ErrorInfo("internal", "no worker may say this")),
        ExecutionFinished("failed", Outcome("error")),
        ExecutionRequested("request-2", "digest"),
        TokenEnqueued(Token("token-2", "other", "injected")),
        TokenClaimed("token-2", "step-run-2"),
        StepScheduled("step-run-2", "command-2"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_fact_that_is_not_a_workers_to_report_changes_nothing(fact: Fact) -> None:
    scenario = started(TWO_TASKS)
    run = run_of(scenario)
    say(scenario, run, 0)
    before = scenario.state
    assert evolve(before, RecordedFact(fact, run, 1), scenario.execution_id) is before
    advanced = scenario.feed(RecordedFact(fact, run, 1))
    assert (advanced.taken, advanced.journal) == (False, ())


# --- what a claim is told ---------------------------------------------------------------------------------------------


def test_a_claim_of_a_command_without_progress_starts_from_the_beginning() -> None:
    scenario = started(TWO_TASKS)
    assert scenario.claim(scenario.take("start")) == Go(next_number=1)


def test_the_answer_to_a_claim_has_the_progress_of_the_pipeline() -> None:
    scenario = started(TWO_TASKS)
    scenario.take("start").answer("one's result")
    again = scenario.take("start")
    answer = scenario.claim(again)
    assert isinstance(answer, Go) and answer.next_number == 1
    progress = answer.progress[""]
    assert (progress.task, progress.runs, progress.previous) == ("two", 1, "one")
    assert (progress.iter, progress.vars, progress.ctx) == ({"i": 3}, {"v": 2}, {"c": 1})
    assert bytes(progress.results["one"].result.value) == b'"one\'s result"'
    assert (answer.ctx, answer.vars) == ({"c": 1}, {"v": 2})
    again.finish()
    assert scenario.status == "completed" and scenario.ctx == {"c": 1}
    assert [fact.task for fact in scenario.facts(TaskProcessed)] == ["one", "two"]


def test_a_repeated_claim_gets_the_same_answer() -> None:
    scenario = started(TWO_TASKS)
    run = scenario.take("start")
    first = scenario.claim(run)
    assert claim(scenario, run.run) == "duplicate"
    assert scenario.answer_to(run.run) == first


def test_a_claim_of_an_ended_step_run_is_dropped() -> None:
    scenario = started(TWO_TASKS.replace("- step: other", "  next: {arcs: [{step: other}]}\n- step: other"))
    late = scenario.take("start")
    scenario.done("start")
    assert scenario.claim(late) == Drop("the step run has ended")
    assert late.over


def test_the_answer_to_a_local_loop_has_the_ended_iterations() -> None:
    scenario = started(LOCAL)
    lost = scenario.take("start")
    lost.answer("A")
    lost.answer(error=ErrorInfo("connection", "it hung up"))
    assert lost.path == (2,)
    again = scenario.take("start")
    answer = scenario.claim(again)
    assert isinstance(answer, Go)
    seen = answer.loop
    assert seen is not None and seen.first_error is not None
    assert (seen.low, seen.above, seen.ok, seen.failed) == (2, [], 1, 1)
    assert (seen.first_error.index, seen.first_error.kind) == (1, "connection")
    assert (answer.ctx, answer.vars, answer.progress) == ({"last": "a"}, {"v": "a"}, {})
    assert again.path == (2,)
    again.finish("more")
    assert scenario.result == ["A", None, "more", "more"]
    assert scenario.names.count("loop.started") == 1


def test_the_answer_to_a_distributed_iteration_covers_only_itself() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [a, b], iterator: letter, spec: {mode: parallel}}
          tool: [{name: one, kind: noop}, {name: two, kind: noop}]
        """
    )
    scenario.take("start", index=0).answer()
    scenario.take("start", index=1).answer()
    answer = scenario.claim(scenario.take("start", index=1))
    assert isinstance(answer, Go)
    assert (list(answer.progress), answer.progress["1"].task, answer.loop) == (["1"], "two", None)


def test_retries_that_were_recorded_are_not_run_again_after_a_takeover() -> None:
    scenario = started(
        """
        - step: start
          tool:
            name: work
            kind: noop
            spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3}}]}}
        """
    )
    scenario.take("start").answer(error=ErrorInfo("connection", "it hung up"))
    again = scenario.take("start")
    scenario.claim(again)
    again.fail("connection")
    assert [fact.attempt for fact in scenario.facts(TaskProcessed)] == [1, 2, 3]
    assert scenario.error.kind == "retries_exhausted"
