"""LANGUAGE §6: how many failed iterations a loop tolerates, and that its execution says so at the end."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, HEAD, started
from journal_laws import check_journal

from noetl_stream.model.events import (
    ExecutionFinished,
    LoopDone,
    LoopIterationFailed,
    NextEvaluated,
    Path,
    StepFailed,
    ToleratedFailures,
)
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_testkit.scenario.scenario import Scenario, installed_kinds, rerun

PLACES = ["mode: sequential", "mode: parallel", "mode: parallel, exec: local", "mode: sequential, exec: distributed"]
BEST = "mode: best_effort"


def playbook(failure: str = BEST, spec: str = "mode: parallel", next_step: str = "", items: int = 20) -> str:
    """A loop over `items` numbers whose step has this policy of failures."""
    return f"""
- step: fetch
  spec: {{policy: {{failure: {{{failure}}}}}}}
  loop: {{in: {list(range(items))}, iterator: n, spec: {{{spec}}}}}
  tool: {{kind: noop}}{next_step}
- step: after
  tool: {{kind: noop}}
"""


def failing(scenario: Scenario, *bad: Path) -> Scenario:
    """Runs every owed command of `fetch`; these iterations fail."""
    while "fetch" in dict(scenario.working):
        step, index = scenario.working[0]
        run = scenario.take(step, index=index)
        run.begin()
        while not run.over:
            run.answer(error=ErrorInfo("exception", f"no {run.path}") if run.path in bad else None)
    return scenario


def first(number: int) -> list[Path]:
    return [(index,) for index in range(number)]


def tolerated(scenario: Scenario) -> list[ToleratedFailures]:
    (end,) = scenario.facts(ExecutionFinished)
    return end.tolerated


# --- how many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", PLACES)
@pytest.mark.parametrize(("most", "number"), [("3", 3), ("'15%'", 3), ("0", 0), ("'100%'", 20), ("'17.5%'", 3)])
def test_as_many_failures_as_are_tolerated_end_the_loop_well(spec: str, most: str, number: int) -> None:
    scenario = failing(started(playbook(f"{BEST}, tolerated: {most}", spec)), *first(number))
    (done,) = scenario.facts(LoopDone)
    assert (done.ok, done.failed, done.failed_leaves) == (20 - number, number, number)
    assert scenario.status == "completed"


@pytest.mark.parametrize("spec", PLACES)
@pytest.mark.parametrize(("most", "number"), [("3", 4), ("'15%'", 4), ("0", 1), ("'0%'", 1)])
def test_one_more_fails_the_step_once_all_have_run(spec: str, most: str, number: int) -> None:
    scenario = failing(started(playbook(f"{BEST}, tolerated: {most}", spec)), *first(number))
    (failed,) = scenario.facts(StepFailed)
    shown = most.strip("'")
    assert (failed.error.kind, failed.error.message) == (
        "too_many_failures",
        f"{number} of 20 iterations failed; failure.tolerated is {shown}; the first, 0: exception: no (0,)",
    )
    assert len(scenario.facts(LoopIterationFailed)) == number and scenario.facts(LoopDone) == []
    assert scenario.error.kind == "too_many_failures" and tolerated(scenario) == []
    assert scenario.replayed() == scenario.state
    check_journal(scenario)


def test_too_many_failures_are_routed_like_any_failure() -> None:
    arcs = "\n  next: {arcs: [{step: after, when: \"{{ event.error.kind == 'too_many_failures' }}\"}]}"
    scenario = failing(started(playbook(f"{BEST}, tolerated: 1", next_step=arcs)), *first(2))
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["step.failed"]
    assert scenario.working == [("after", None)]


def test_too_many_failures_follow_the_failure_mode_of_the_executor() -> None:
    too_many = playbook(f"{BEST}, tolerated: 1")
    assert failing(started(too_many), *first(2)).status == "failed"
    quiet = failing(started(too_many, BEST_EFFORT), *first(2))
    assert quiet.status == "completed" and [fact.fired for fact in quiet.facts(NextEvaluated)] == [[]]
    assert tolerated(quiet) == [ToleratedFailures("fetch", 0, runs=1)]


def test_the_count_is_written_also_of_no_iterations_since_older_roles_read_nothing_without_it() -> None:
    assert codec.decode_json(codec.encode(ToleratedFailures("fetch", 0, runs=1)))["count"] == 0


def nested(outer: str, inner: str, policy: str = "") -> Scenario:
    """Two rows of four cells; the levels have these policies of failures, the step that one."""
    return started(
        f"""
        - step: fetch
          spec: {{policy: {{failure: {{{policy}}}}}}}
          loop:
            in: [1, 2]
            iterator: row
            spec: {{mode: parallel, policy: {{failure: {{{outer}}}}}}}
            loop: {{in: [1, 2, 3, 4], iterator: cell, spec: {{mode: parallel, policy: {{failure: {{{inner}}}}}}}}}
          tool: {{kind: noop}}
        """
    )


def test_in_nested_loops_it_counts_at_the_level_where_it_stands() -> None:
    bad = [(0, 0), (0, 1), (1, 0)]
    inside = failing(nested(BEST, f"{BEST}, tolerated: 1"), *bad)
    assert tolerated(inside) == [ToleratedFailures("fetch", 2, 1, 3)]
    (failed,) = [fact for fact in inside.facts(LoopIterationFailed) if len(fact.path) == 1]
    assert failed.path == (0,) and failed.error.kind == "too_many_failures"
    outside = failing(nested(f"{BEST}, tolerated: 0", f"{BEST}, tolerated: 1"), *bad)
    assert outside.error.kind == "too_many_failures" and outside.error.message.startswith("1 of 2 iterations failed")
    assert failing(nested(f"{BEST}, tolerated: 0", BEST), *bad).status == "completed"


def test_the_tolerance_of_the_step_holds_at_every_level_without_its_own() -> None:
    by_step = failing(nested("", "", f"{BEST}, tolerated: 1"), (0, 0), (0, 1))
    assert (by_step.status, tolerated(by_step)) == ("completed", [ToleratedFailures("fetch", 2, 1, 2)])
    own = failing(nested("", "tolerated: 2", f"{BEST}, tolerated: 1"), (0, 0), (0, 1))
    assert tolerated(own) == [ToleratedFailures("fetch", 2, 0, 2)]


# --- steps ------------------------------------------------------------------------------------------------------------

TWO_RUNS = """
- step: start
  tool: {kind: noop}
  next: {spec: {mode: inclusive}, arcs: [{step: store}, {step: store}]}
- step: store
  tool: {kind: noop}
"""


def test_failed_steps_that_end_their_branch_alone_are_counted() -> None:
    scenario = started(TWO_RUNS, BEST_EFFORT)
    scenario.done("start")
    scenario.failed("store")
    scenario.failed("store")
    assert (scenario.status, tolerated(scenario)) == ("completed", [ToleratedFailures("store", 0, runs=2)])
    assert scenario.replayed() == scenario.state
    check_journal(scenario)


def test_a_failure_that_an_arc_handles_is_not_tolerated() -> None:
    arc = "\n  next: {arcs: [{step: store, when: \"{{ event.name == 'step.failed' }}\"}]}"
    handled = started(
        f"- step: start\n  tool: {{kind: noop}}{arc}\n- step: store\n  tool: {{kind: noop}}\n", BEST_EFFORT
    )
    handled.failed("start")
    handled.done("store")
    assert (handled.status, tolerated(handled)) == ("completed", [])


def test_a_failure_that_fails_the_execution_is_not_tolerated() -> None:
    failed = started("- step: start\n  tool: {kind: noop}\n")
    failed.failed("start")
    assert (failed.status, tolerated(failed)) == ("failed", [])


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", PLACES)
def test_the_end_of_an_execution_says_what_was_tolerated(spec: str) -> None:
    assert tolerated(failing(started(playbook(spec=spec)), *first(4))) == [ToleratedFailures("fetch", 20, 4, 4)]
    assert tolerated(failing(started(playbook(spec=spec)))) == []


@pytest.mark.parametrize("placement", ["local", "distributed"])
def test_one_failed_leaf_of_three_levels_is_counted_once(placement: str) -> None:
    spec = f"{{mode: parallel, exec: {placement}}}"
    scenario = started(
        f"""
        - step: fetch
          spec: {{policy: {{failure: {{mode: best_effort}}}}}}
          loop:
            in: [0, 1]
            iterator: a
            spec: {spec}
            loop:
              in: [0, 1]
              iterator: b
              spec: {spec}
              loop: {{in: [0, 1], iterator: c, spec: {spec}}}
          tool: {{kind: noop}}
          next: {{arcs: [{{step: after, args: {{loop: "{{{{ event.loop }}}}"}}}}]}}
        - step: after
          tool: {{kind: noop}}
        """
    )
    failing(scenario, (1, 0, 1))
    counts = {"count": 2, "ok": 2, "failed": 0, "skipped": 0, "failed_leaves": 1}
    assert scenario.take("after").command.args == {"loop": counts}
    assert [fact.failed_leaves for fact in scenario.facts(LoopDone) if fact.path in ((), (1,), (1, 0))] == [1, 1, 1]
    assert [fact.failed_leaves for fact in scenario.facts(LoopDone) if fact.path in ((0,), (1, 1))] == [0, 0]
    scenario.done("after")
    assert tolerated(scenario) == [ToleratedFailures("fetch", 2, 0, 1)]


@pytest.mark.parametrize("placement", ["local", "distributed"])
def test_a_row_that_fails_with_its_cells_is_no_leaf_and_one_without_cells_is(placement: str) -> None:
    scenario = started(
        f"""
        - step: fetch
          spec: {{policy: {{failure: {{mode: best_effort}}}}}}
          loop:
            in: [[1, 2], 7]
            iterator: row
            spec: {{mode: sequential, exec: {placement}}}
            loop: {{in: "{{{{ row }}}}", iterator: cell, spec: {{policy: {{failure: {{mode: fail_fast}}}}}}}}
          tool: {{kind: noop}}
        """
    )
    failing(scenario, (0, 0))
    assert tolerated(scenario) == [ToleratedFailures("fetch", 2, 2, 2)]
    (done,) = scenario.facts(LoopDone)
    assert (done.failed, done.failed_leaves) == (2, 2)


def test_a_worker_that_takes_over_goes_on_counting() -> None:
    scenario = started(
        """
        - step: fetch
          spec: {policy: {failure: {mode: best_effort}}}
          loop: {in: [0, 1], iterator: row, loop: {in: [0, 1, 2], iterator: cell}}
          tool: {kind: noop}
        """
    )
    lost = scenario.take("fetch")
    lost.answer(error=ErrorInfo("exception", "it broke"))
    lost.answer()
    scenario.issue_again(scenario.owed("fetch"))
    run = scenario.take("fetch")
    scenario.claim(run)
    run.answer(error=ErrorInfo("exception", "it broke"))
    run.finish()
    assert [(fact.path, fact.failed_leaves) for fact in scenario.facts(LoopDone)] == [((0,), 2), ((1,), 0), ((), 2)]
    assert tolerated(scenario) == [ToleratedFailures("fetch", 2, 0, 2)]


def test_all_runs_of_a_step_are_counted_together() -> None:
    again = "\n  next: {arcs: [{step: after}]}"
    steps = playbook(next_step=again, items=3) + '  next: {arcs: [{step: fetch, when: "{{ not steps.after.done }}"}]}\n'
    scenario = failing(started(steps), (0,))
    scenario.done("after", {"done": False})
    failing(scenario, (0,), (1,))
    scenario.done("after", {"done": True})
    assert tolerated(scenario) == [ToleratedFailures("fetch", 6, 3, 3)]


def test_a_handled_failure_of_a_loop_is_not_a_tolerated_one() -> None:
    arcs = '\n  next: {arcs: [{step: after, when: "{{ event.error is not none }}"}]}'
    scenario = failing(started(playbook("mode: fail_fast", "mode: sequential", arcs)), (1,))
    scenario.done("after")
    assert (scenario.status, tolerated(scenario)) == ("completed", [])


# --- check ------------------------------------------------------------------------------------------------------------


def problems(failure: str, root: str = "") -> list[Diagnostic]:
    text = f"""{HEAD}{root}
workflow:
- step: fetch
  spec: {{policy: {{failure: {{{failure}}}}}}}
  loop: {{in: [1, 2], iterator: n}}
  tool: {{kind: noop}}
"""
    return list(check(text, installed_kinds()).diagnostics)


@pytest.mark.parametrize("most", ["-1", "1.5", "'4'", "'101%'", "'-1%'", "true", "[1]", "many", "'{{ 5 }}'"])
def test_anything_but_a_number_or_a_share_is_an_error(most: str) -> None:
    (found,) = problems(f"{BEST}, tolerated: {most}")
    assert (found.severity, found.code) == ("error", "invalid_value") and "tolerated: 5%" in (found.hint or "")


@pytest.mark.parametrize("failure", ["tolerated: 5", "mode: fail_fast, tolerated: 5%"])
def test_a_tolerance_has_no_effect_where_the_first_failure_ends_the_level(failure: str) -> None:
    (found,) = problems(failure)
    assert (found.severity, found.code) == ("warning", "no_effect") and "best_effort" in (found.hint or "")
    assert problems(f"{BEST}, tolerated: 5%") == []


def test_a_tolerance_is_refused_in_the_executor() -> None:
    root = "executor: {spec: {policy: {failure: {mode: best_effort, tolerated: 5}}}}"
    (found,) = problems(BEST, root)
    assert found.severity == "error" and "loop's step" in (found.hint or "")


# --- rerun ------------------------------------------------------------------------------------------------------------


def test_a_rerun_that_reuses_a_loop_says_what_that_tolerated() -> None:
    original = failing(started(playbook(next_step="\n  next: {arcs: [{step: after}]}")), *first(4))
    original.done("after")
    again = rerun(original, "after")
    again.done("after")
    assert tolerated(again) == tolerated(original) == [ToleratedFailures("fetch", 20, 4, 4)]


def test_a_rerun_of_a_loop_counts_failures_from_zero() -> None:
    original = failing(started(playbook()), *first(4))
    assert tolerated(failing(rerun(original, "fetch"), *first(1))) == [ToleratedFailures("fetch", 20, 1, 1)]
