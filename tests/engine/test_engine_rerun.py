"""LANGUAGE §9 *Rerun*, *Retry*: what a new execution reuses of another, and where it begins."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from engine_scenarios import BEST_EFFORT, given, limits, started

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ChildRequested,
    ExecutionEvaluated,
    ExecutionReused,
    ExecutionStarted,
    Parent,
    RerunRefused,
    StepReused,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import AskRefused, Scenario, inputs_of, parked, rerun

LINE = """
    - step: a
      tool:
        - name: one
          kind: noop
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ ['a'] }}"}}}}]}}
      next: {arcs: [{step: b, args: {from: a}}]}
    - step: b
      tool:
        - name: two
          kind: noop
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ ctx.seen + ['b'] }}"}}}}]}}
      next: {arcs: [{step: c, args: {from: b}}]}
    - step: c
      tool:
        kind: noop
        args: {a: "{{ a }}", b: "{{ b }}", seen: "{{ ctx.seen }}", args: "{{ args }}", w: "{{ workload.w }}"}
"""
WORKLOAD = "workload: {w: 1}\n"


def line() -> Scenario:
    """``a``, ``b`` and ``c`` have run, one after the other."""
    scenario = started(LINE, WORKLOAD, workload={"w": 2})
    scenario.done("a", "of a")
    scenario.done("b", "of b")
    scenario.done("c")
    assert scenario.status == "completed"
    return scenario


def ended(scenario: Scenario) -> Scenario:
    """The same, which keeps the laws of a journal."""
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal
    return scenario


def reused(scenario: Scenario) -> list[str]:
    """The steps whose runs were taken over, in the order of their ends."""
    entries = [entry for fact in scenario.facts(ExecutionReused) for entry in fact.entries]
    steps = {entry.token.token_id: entry.token.step for entry in entries if isinstance(entry, TokenEnqueued)}
    runs = {entry.step_run_id: steps[entry.token_id] for entry in entries if isinstance(entry, TokenClaimed)}
    return [runs[entry.step_run_id] for entry in entries if isinstance(entry, StepReused)]


def began(scenario: Scenario) -> list[str]:
    """The steps of the tokens that were claimed here, in order; those of reused step runs were claimed elsewhere."""
    steps = {fact.token.token_id: fact.token.step for fact in scenario.facts(TokenEnqueued)}
    for fact in scenario.facts(ExecutionReused):
        steps |= {entry.token.token_id: entry.token.step for entry in fact.entries if isinstance(entry, TokenEnqueued)}
    return [steps[fact.token_id] for fact in scenario.facts(TokenClaimed)]


# --- a line of steps --------------------------------------------------------------------------------------------------


def test_step_runs_that_do_not_descend_from_the_chosen_one_are_reused() -> None:
    again = rerun(line(), "b")
    assert (reused(again), again.working) == (["a"], [("b", None)])
    again.done("b", "other")
    assert again.working == [("c", None)]
    again.done("c")
    assert again.status == "completed"
    assert again.result == {"a": "of a", "b": "other", "seen": ["a", "b"], "args": {"from": "b"}, "w": 2}
    ended(again)


def test_from_the_first_step_nothing_is_reused() -> None:
    again = rerun(line(), "a")
    assert (reused(again), again.working, again.ctx) == ([], [("a", None)], {})


def test_the_workload_is_that_of_the_original() -> None:
    assert rerun(line(), "c").execution.workload == {"w": 2}


def test_the_given_ctx_is_applied_before_the_chosen_token_is_enqueued() -> None:
    again = rerun(line(), "c", ctx={"seen": ["patched"]})
    names = again.names
    assert names[:6] == [
        "execution.requested",
        "execution.reused",
        "execution.evaluated",
        "execution.started",
        "ctx.patched",
        "token.enqueued",
    ]
    again.done("c")
    assert again.result["seen"] == ["patched"]


def test_the_chosen_token_is_marked_as_rerun_and_keeps_its_args() -> None:
    (token,) = [fact.token for fact in rerun(line(), "c").facts(TokenEnqueued)]
    assert (token.step, token.cause, token.args, token.from_step) == ("c", "rerun", {"from": "b"}, "b")


def test_given_args_replace_those_of_the_chosen_token() -> None:
    again = rerun(line(), "c", args={"other": 1})
    again.done("c")
    assert again.result["args"] == {"other": 1}


def test_ids_are_new_where_something_runs_and_the_old_ones_where_it_is_reused() -> None:
    scenario = line()
    again = rerun(scenario, "c")
    old = {fact.step_run_id for fact in scenario.facts(TokenClaimed)}
    assert {fact.step_run_id for fact in again.facts(TokenClaimed)}.isdisjoint(old)
    entries = again.facts(ExecutionReused)[0].entries
    assert {entry.step_run_id for entry in entries if isinstance(entry, TokenClaimed)} < old


def test_patches_from_outside_are_taken_over_in_their_place() -> None:
    scenario = started(LINE, WORKLOAD, ctx={"first": 1})
    scenario.done("a")
    scenario.patch(seen=["outside"])
    scenario.done("b")
    scenario.patch(last=1)
    scenario.done("c")
    assert rerun(scenario, "a").ctx == {"first": 1, "seen": ["outside"], "last": 1}
    assert rerun(scenario, "b").ctx == {"first": 1, "seen": ["outside"], "last": 1}
    assert rerun(scenario, "c").ctx == {"first": 1, "seen": ["a", "b"], "last": 1}, "b began before the patch"


def test_limits_are_those_of_now() -> None:
    again = rerun(line(), "c")
    assert again.facts(ExecutionStarted)[0].limits == again.plan.limits == again.execution.limits


def test_a_rerun_ends_as_the_original_did_and_can_be_run_again_where_it_reused() -> None:
    second = rerun(line(), "c", ctx={"seen": ["of the second"]})
    second.done("c")
    third = rerun(second, "b")
    assert (reused(third), third.ctx) == (["a"], {"seen": ["of the second"]})
    third.done("b", "third")
    third.done("c")
    assert (third.result["a"], third.result["b"], third.result["seen"]) == ("of a", "third", ["of the second", "b"])
    fourth = rerun(third, "c", args={})
    assert reused(fourth) == ["a", "b"]
    fourth.done("c")
    assert (fourth.result["b"], fourth.result["args"]) == ("third", {})
    ended(fourth)


PAIR = """
    - step: a
      tool: {kind: noop}
      next: {arcs: [{step: b, args: {n: 1}}]}
    - step: b
      tool: {kind: noop, args: {a: "{{ a }}", n: "{{ args.n }}"}}
    - step: c
      tool: {kind: noop}
"""

# --- retry ------------------------------------------------------------------------------------------------------------


def test_a_retry_runs_the_failed_step_again_and_reuses_the_rest() -> None:
    scenario = started(PAIR)
    scenario.done("a", "of a")
    scenario.failed("b")
    assert scenario.status == "failed"
    again = rerun(scenario)
    assert (reused(again), again.working) == (["a"], [("b", None)])
    again.done("b")
    assert again.result == {"a": "of a", "n": 1}
    ended(again)


def test_a_retry_of_what_only_arcs_failed_runs_the_step_again() -> None:
    scenario = started("""
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: b, when: "{{ a.missing == 1 }}"}]}
        - step: b
          tool: {kind: noop}
    """)
    scenario.done("a", {})
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    again = rerun(scenario)
    again.done("a", {"missing": 1})
    assert again.working == [("b", None)]


GATED = """
    - step: a
      tool: {kind: noop}
      next: {arcs: [{step: b, args: {n: 1}}]}
    - step: b
      spec: {policy: {admit: {rules: [{when: "{{ ctx.flag == 1 }}", then: {allow: true}}]}}}
      tool: {kind: noop, args: {n: "{{ args.n }}"}}
"""


def test_a_retry_of_what_admission_failed_enqueues_its_token_again() -> None:
    scenario = started(GATED)
    scenario.done("a")
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    again = rerun(scenario, ctx={"flag": 1})
    assert (reused(again), again.working) == (["a"], [("b", None)])
    again.done("b")
    assert again.result == {"n": 1}


def test_a_step_whose_token_was_never_admitted_can_be_chosen() -> None:
    scenario = started(GATED, ctx={"flag": 0})
    scenario.done("a")
    assert (scenario.status, scenario.execution.discarded) == ("completed", 1)
    again = rerun(scenario, "b", ctx={"flag": 1}, args={"n": 7})
    again.done("b")
    assert (again.result, began(again)) == ({"n": 7}, ["b"])


def refusals() -> dict[str, tuple[Scenario, dict[str, Any], str, str]]:
    broken = started(PAIR)
    broken.failed("a")
    cancelled = started(PAIR)
    cancelled.cancel()
    slow = started(PAIR, "executor: {spec: {timeout_s: 5}}\n")
    slow.wait(40)
    return {
        "nothing failed": (line(), {}, "not_failed", "has not failed: its status is completed"),
        "it was cancelled": (cancelled, {}, "not_failed", "its status is cancelled"),
        "no step run failed it": (
            slow,
            {},
            "not_failed",
            "no step run failed execution execution-1: name the step to rerun from",
        ),
        "no such step": (line(), {"step": "z"}, "unknown_step", "has no step z; it has a, b, c"),
        "no such run": (line(), {"step_run_id": "x"}, "unknown_step", "has no run x"),
        "a run of another step": (
            broken,
            {"step": "b", "step_run_id": broken.facts(TokenClaimed)[0].step_run_id},
            "unknown_step",
            "of step b",
        ),
        "it never came there": (broken, {"step": "c"}, "never_ran", "never reached step c"),
    }


@pytest.mark.parametrize("name", refusals())
def test_an_impossible_rerun_is_refused_with_the_reason(name: str) -> None:
    scenario, wanted, code, text = refusals()[name]
    with pytest.raises(AskRefused, match=text) as refused:
        rerun(scenario, **wanted)
    assert refused.value.code == code


def test_a_refused_rerun_ends_as_failed_with_its_diagnostics() -> None:
    scenario = line()
    again = parked(scenario, "z")
    (refused,) = inputs_of(again, scenario)
    again.feed(RecordedFact(refused))
    assert (again.status, again.error.kind) == ("failed", "rerun_refused")
    assert again.facts(ExecutionEvaluated)[0].diagnostics[0]["code"] == "unknown_step"
    assert "execution.started" not in again.names
    ended(again)


def test_a_rerun_of_another_playbook_than_the_originals_is_refused() -> None:
    scenario = line()
    again = parked(scenario, "b")
    again.state = msgspec.structs.replace(
        again.execution, request=msgspec.structs.replace(again.execution.request, digest="another")
    )
    (refused,) = inputs_of(again, scenario)
    assert isinstance(refused, RerunRefused) and refused.code == "version_mismatch"


def test_more_than_the_limit_is_not_reused() -> None:
    scenario = started(PAIR, limits(max_reused_bytes=2000))
    scenario.done("a", "x" * 3000)
    scenario.failed("b")
    with pytest.raises(AskRefused, match=r"limits.max_reused_bytes \(2000\)") as refused:
        rerun(scenario)
    assert refused.value.code == "too_large"


@pytest.mark.parametrize("wanted", [{"ctx": {"k": "x" * 3000}}, {"args": {"k": "x" * 3000}}])
def test_given_ctx_and_args_have_their_limit(wanted: dict[str, Any]) -> None:
    scenario = started(PAIR, limits(max_ctx_bytes=2000))
    scenario.failed("a")
    again = rerun(scenario, **wanted)
    assert (again.status, again.execution.refused[0]["code"]) == ("failed", "too_large")
    assert "limits.max_ctx_bytes is 2000" in again.error.message


# --- while it looks at its original -----------------------------------------------------------------------------------


def test_before_it_knows_what_is_reused_it_waits_and_can_only_be_cancelled() -> None:
    again = parked(line(), "b")
    assert (again.status, again.names) == ("pending", ["execution.requested"])
    assert again.execution.awaited is not None and again.execution.awaited.key == "execution-1"
    with pytest.raises(AskRefused, match="has not started: it is still reading its original execution-1") as refused:
        again.patch(k=1)
    assert refused.value.code == "not_started"
    again.cancel("no longer")
    assert (again.status, again.error.message) == ("cancelled", "no longer")
    ended(again)


def test_a_long_journal_is_taken_over_page_by_page_and_each_page_once() -> None:
    steps = "".join(
        f"- step: s{number}\n  tool: {{kind: noop}}\n  next: {{arcs: [{{step: s{number + 1}}}]}}\n"
        for number in range(12)
    )
    scenario = started(steps + "- step: s12\n  tool: {kind: noop}\n")
    for number in range(13):
        scenario.done(f"s{number}", "x" * 60_000)
    again = parked(scenario, "s12")
    pages = inputs_of(again, scenario)
    assert len(pages) == 3
    for fact in pages:
        again.feed(RecordedFact(fact))
        assert not again.feed(RecordedFact(fact)).taken
    assert reused(again) == [f"s{number}" for number in range(12)]
    again.done("s12")
    assert again.status == "completed"
    ended(again)


# --- branches and joins -----------------------------------------------------------------------------------------------

FAN = """
    - step: start
      next: {spec: {mode: inclusive}, arcs: [{step: l, args: {n: 1}}, {step: r, args: {n: 2}}]}
    - step: l
      tool: {kind: noop}
      next: {arcs: [{step: j, args: {l: "{{ l }}"}}]}
    - step: r
      tool: {kind: noop}
      next: {arcs: [{step: j, args: {r: "{{ r }}"}}]}
    - step: j
      spec: {join: JOIN}
      tool: {kind: noop, args: {l: "{{ args.l | default(0) }}", r: "{{ args.r | default(0) }}"}}
"""


def joined(join: str) -> Scenario:
    scenario = started(FAN.replace("JOIN", join))
    scenario.done("l", 1)
    if join == "any":
        scenario.done("j")
    scenario.done("r", 2)
    if join != "any":
        scenario.done("j")
    assert scenario.status == "completed"
    return scenario


@pytest.mark.parametrize("join", ["all", "2"])
def test_the_other_branch_waits_at_the_join_for_the_one_that_is_run_again(join: str) -> None:
    again = rerun(joined(join), "l")
    assert (reused(again), again.working) == (["start", "r"], [("l", None)])
    again.done("l", 10)
    again.done("j")
    assert again.result == {"l": 10, "r": 2}
    ended(again)


@pytest.mark.parametrize("join", ["all", "2"])
def test_a_join_merges_again_when_its_own_step_is_chosen(join: str) -> None:
    again = rerun(joined(join), "j")
    assert (sorted(reused(again)), again.working) == (["l", "r", "start"], [("j", None)])
    (token,) = again.facts(TokenEnqueued)
    assert len(token.joined) == 2 and token.token.cause == "rerun"
    again.done("j")
    assert again.result == {"l": 1, "r": 2}
    ended(again)


def test_a_join_of_any_fires_with_its_reused_branch_if_the_branch_it_fired_with_runs_again() -> None:
    again = rerun(joined("any"), "l")
    assert sorted(again.working) == [("j", None), ("l", None)]
    again.done("l", 10)
    assert "token.absorbed" in again.names
    again.done("j")
    assert again.result == {"l": 0, "r": 2}


def test_a_token_too_late_for_a_join_is_late_again() -> None:
    again = rerun(joined("any"), "r")
    assert sorted(reused(again)) == ["j", "l", "start"]
    again.done("r", 20)
    assert (again.names.count("token.absorbed"), again.status, again.result) == (1, "completed", {"l": 1, "r": 0})
    ended(again)


def test_a_join_that_lacked_tokens_lacks_them_in_a_retry_unless_args_are_given() -> None:
    text = FAN.replace("JOIN", "3")
    scenario = started(text)
    scenario.done("l", 1)
    scenario.done("r", 2)
    assert (scenario.status, scenario.error.kind) == ("failed", "join_unsatisfied")
    assert rerun(scenario).error.kind == "join_unsatisfied"
    again = rerun(scenario, args={"l": 5, "arrivals": 7})
    again.done("j")
    assert again.result == {"l": 5, "r": 0}


def test_siblings_that_a_failure_stopped_run_again_as_they_were() -> None:
    scenario = started(FAN.replace("JOIN", "all"))
    running = scenario.take("r")
    running.begin()
    scenario.failed("l")
    running.fail("cancelled", "told to stop")
    assert scenario.status == "failed"
    again = rerun(scenario)
    assert (reused(again), sorted(again.working)) == (["start"], [("l", None), ("r", None)])
    token = next(run.token for run in again.execution.runs.values() if run.step == "r")
    assert (token.args, token.cause) == ({"n": 2}, "arc")
    again.done("r", 2)
    again.done("l", 1)
    again.done("j")
    assert again.result == {"l": 1, "r": 2}
    ended(again)


def test_a_sibling_that_ended_well_while_the_execution_failed_is_reused() -> None:
    scenario = started(FAN.replace("JOIN", "all"))
    running = scenario.take("r")
    running.begin()
    scenario.failed("l")
    assert not scenario.execution.ended
    running.finish(2)
    assert scenario.status == "failed"
    again = rerun(scenario)
    assert (sorted(reused(again)), again.working) == (["r", "start"], [("l", None)])
    again.done("l", 1)
    again.done("j")
    assert again.result == {"l": 1, "r": 2}
    ended(again)


def test_failed_steps_start_over_beside_the_chosen_step() -> None:
    scenario = started(FAN.replace("JOIN", "all"))
    scenario.done("r", 2)
    scenario.failed("l")
    again = rerun(scenario, "r")
    assert (reused(again), sorted(again.working)) == (["start"], [("l", None), ("r", None)])


def test_failures_that_were_routed_or_ended_their_branch_stay() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: handled}, {step: dropped}, {step: other}]}
        - step: handled
          tool: {kind: noop}
          next: {arcs: [{step: mend, when: "{{ event.status == 'error' }}"}]}
        - step: mend
          tool: {kind: noop}
        - step: dropped
          tool: {kind: noop}
        - step: other
          tool: {kind: noop}
        """,
        BEST_EFFORT,
    )
    scenario.failed("handled")
    scenario.failed("dropped")
    scenario.done("mend")
    scenario.done("other", 1)
    again = rerun(scenario, "other")
    assert (sorted(reused(again)), again.working) == (["dropped", "handled", "mend", "start"], [("other", None)])
    again.done("other", 2)
    assert (again.status, again.result) == ("completed", 2)
    ended(again)


def test_only_the_chosen_branch_of_inclusive_arcs_runs_again() -> None:
    scenario = started("""
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: "{{ false }}"}, {step: c}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: d}]}
        - step: b
          tool: {kind: noop}
        - step: c
          tool: {kind: noop}
        - step: d
          tool: {kind: noop}
    """)
    for step in "acd":
        scenario.done(step, step)
    again = rerun(scenario, "a")
    assert (reused(again), again.working) == (["start", "c"], [("a", None)])
    again.done("a")
    again.done("d", "new")
    assert (again.status, again.result) == ("completed", "new")


# --- cycles -----------------------------------------------------------------------------------------------------------

CYCLE = """
    - step: turn
      tool:
        - name: one
          kind: noop
          spec:
            policy:
              rules: [{else: {then: {do: continue, set_ctx: {n: "{{ (ctx.n | default(0)) + outcome.result }}"}}}}]
      next: {arcs: [{step: turn, when: "{{ ctx.n < 3 }}"}, {step: end}]}
    - step: end
      tool: {kind: noop, args: {n: "{{ ctx.n }}", last: "{{ turn }}"}}
"""


def test_the_last_of_several_runs_of_a_step_is_chosen() -> None:
    scenario = started(CYCLE)
    for _ in range(3):
        scenario.done("turn", 1)
    scenario.done("end")
    again = rerun(scenario, "turn")
    assert (reused(again), again.ctx) == (["turn", "turn"], {"n": 2})
    again.done("turn", 1)
    again.done("end")
    assert again.result == {"n": 3, "last": 1}
    ended(again)


def test_any_run_of_a_step_can_be_named() -> None:
    scenario = started(CYCLE)
    for _ in range(3):
        scenario.done("turn", 1)
    scenario.done("end")
    second = scenario.facts(TokenClaimed)[1].step_run_id
    again = rerun(scenario, step_run_id=second)
    assert (reused(again), again.ctx, again.working) == (["turn"], {"n": 1}, [("turn", None)])
    again.done("turn", 5)
    again.done("end")
    assert again.result == {"n": 6, "last": 5}
    of_the_reused = scenario.facts(TokenClaimed)[0].step_run_id
    third = rerun(again, "turn", step_run_id=of_the_reused)
    assert (reused(third), third.ctx) == ([], {})


# --- held tokens ------------------------------------------------------------------------------------------------------

HELD = """
    - step: start
      next: {spec: {mode: inclusive}, arcs: [{step: gate, args: {n: 1}}, {step: work}]}
    - step: gate
      spec: {policy: {admit: {rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]WAIT}}}
      tool: {kind: noop}
    - step: work
      tool: {kind: noop}
"""


def test_a_held_token_that_was_discarded_at_the_end_is_held_again() -> None:
    scenario = started(HELD.replace("WAIT", ""))
    scenario.done("work")
    assert (scenario.status, scenario.execution.discarded) == ("completed", 1)
    again = rerun(scenario, "work")
    assert (again.working, again.held) == ([("work", None)], ["gate"])
    again.patch(open=True)
    again.done("gate", "in")
    again.done("work")
    assert (again.status, again.execution.discarded) == ("completed", 0)
    ended(again)


def test_the_given_ctx_lets_a_held_token_in() -> None:
    scenario = started(HELD.replace("WAIT", ""))
    scenario.done("work")
    again = rerun(scenario, "work", ctx={"open": True})
    assert again.working == [("gate", None), ("work", None)] or again.working == [("work", None), ("gate", None)]


def test_a_token_that_may_wait_waits_its_whole_time_again() -> None:
    scenario = started(HELD.replace("WAIT", ", wait: {timeout_s: 60}"))
    scenario.done("work")
    scenario.wait(30)
    scenario.cancel()
    again = rerun(scenario, "work")
    again.done("work")
    again.wait(45)
    assert again.held == ["gate"]
    again.wait(20)
    assert (again.status, again.error.kind) == ("failed", "admission_timeout")


def test_a_token_whose_time_was_over_is_not_brought_back() -> None:
    scenario = started(HELD.replace("WAIT", ", wait: {timeout_s: 60, on_timeout: discard}"))
    scenario.wait(61)
    scenario.done("work")
    assert (scenario.status, scenario.execution.discarded) == ("completed", 1)
    assert rerun(scenario, "work").held == []


STANDSTILL = """
    - step: start
      next: {spec: {mode: inclusive}, arcs: [{step: gate}, {step: work}]}
    - step: gate
      spec: {policy: {admit: {rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]}}}
      tool: {kind: noop}
      next: {arcs: [{step: j}]}
    - step: work
      tool: {kind: noop}
      next: {arcs: [{step: j}]}
    - step: j
      spec: {join: all}
      tool: {kind: noop}
      next: {arcs: [{step: end}]}
    - step: end
      tool: {kind: noop}
"""


def test_a_token_that_was_discarded_for_the_sake_of_a_join_shares_its_fate() -> None:
    scenario = started(STANDSTILL)
    for step in ("work", "j", "end"):
        scenario.done(step)
    assert (scenario.status, scenario.execution.discarded) == ("completed", 1)
    assert rerun(scenario, "end").held == rerun(scenario, "j").held == []
    again = rerun(scenario, "work")
    assert again.held == ["gate"]
    again.patch(open=True)
    again.done("gate")
    again.done("work")
    again.done("j")
    again.done("end")
    assert again.execution.discarded == 0
    ended(again)
    assert rerun(rerun_to_end(scenario, "end"), "work").held == ["gate"]


def rerun_to_end(scenario: Scenario, step: str) -> Scenario:
    again = rerun(scenario, step)
    again.done(step)
    assert again.status == "completed"
    return again


# --- loops ------------------------------------------------------------------------------------------------------------

LOOP = """
    - step: sum
      loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, exec: EXEC}}
      tool:
        - name: one
          kind: noop
          args: {n: "{{ iter.n }}"}
          spec:
            policy:
              rules:
                - {when: "{{ outcome.status == 'error' }}", then: {do: fail}}
                - else: {then: {do: continue, set_shared: {all: {op: append, value: "{{ iter.n }}"}}}}
      next: {arcs: [{step: end, args: {ok: "{{ event.loop.ok }}"}}]}
    - step: end
      tool: {kind: noop, args: {all: "{{ ctx.all }}", rows: "{{ sum }}", ok: "{{ args.ok }}"}}
"""


@pytest.mark.parametrize("placement", ["distributed", "local"])
def test_a_loop_is_reused_as_a_whole_with_what_its_iterations_shared(placement: str) -> None:
    scenario = started(LOOP.replace("EXEC", placement))
    for index in (2, 0, 1) if placement == "distributed" else [None]:
        scenario.done("sum", index=index)
    scenario.done("end")
    again = rerun(scenario, "end")
    assert (reused(again), again.ctx) == (["sum"], {"all": [1, 2, 3]})
    again.done("end")
    assert again.result == {"all": [1, 2, 3], "rows": [{"n": 1}, {"n": 2}, {"n": 3}], "ok": 3}
    ended(again)


def test_a_failed_loop_runs_again_completely() -> None:
    scenario = started(LOOP.replace("EXEC", "distributed"))
    scenario.done("sum", index=0)
    scenario.failed("sum", index=1)
    assert scenario.status == "failed"
    again = rerun(scenario)
    assert (again.ctx, again.working) == ({}, [("sum", 0), ("sum", 1), ("sum", 2)])


def test_a_large_result_is_taken_over_by_reference() -> None:
    scenario = given(LOOP.replace("EXEC", "distributed"), limits(max_inline_bytes=20))
    scenario.objects.takes = lambda data: len(data) > 20
    scenario.start()
    for index in range(3):
        scenario.done("sum", "x" * 30, index=index)
    scenario.done("end")
    again = rerun(scenario, "end")
    value = again.execution.steps["sum"].outcome.result.reference
    assert value is not None and (value.store, value.execution_id) == ("journal", "execution-1")
    again.done("end")
    assert again.result["rows"] == ["x" * 30] * 3


# --- children, injected tokens, time ----------------------------------------------------------------------------------


def test_children_of_reused_step_runs_are_not_called_again_and_others_are() -> None:
    scenario = started("""
        - step: one
          tool: {kind: playbook, path: p/one}
          next: {arcs: [{step: two}]}
        - step: two
          tool: {kind: playbook, path: p/two}
    """)
    scenario.done("one")
    scenario.child_ended("first")
    scenario.done("one")
    scenario.done("two")
    scenario.child_ended(error=ErrorInfo("child_failed", "it broke"))
    scenario.failed("two")
    assert scenario.status == "failed"
    again = rerun(scenario)
    again.done("two")
    old, new = scenario.facts(ChildRequested), again.facts(ChildRequested)
    assert [call.call.path for call in new] == ["p/two"]
    assert new[0].execution_id not in {call.execution_id for call in old}


def test_a_rerun_of_a_child_has_no_parent() -> None:
    scenario = given(PAIR)
    scenario.start(parent=Parent("parent", "run", "command"))
    scenario.failed("a")
    again = rerun(scenario)
    assert again.execution.parent is None


def test_injected_tokens_and_what_they_did_are_reused() -> None:
    scenario = started(HELD.replace("WAIT", ""))
    scenario.inject("work", by="hand")
    scenario.done("work", 1)
    scenario.done("work", 2)
    again = rerun(scenario, "work")
    assert (reused(again), again.working) == (["start", "work"], [("work", None)])
    assert again.facts(TokenEnqueued)[0].token.args == {"by": "hand"}


def test_deadlines_and_timeouts_count_from_the_rerun() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: late}, {step: other}]}
        - step: late
          spec: {policy: {lifecycle: {deadline_s: 60}}}
          tool: {kind: noop}
        - step: other
          tool: {kind: noop}
        """,
        "executor: {spec: {timeout_s: 100}}\n",
    )
    scenario.wait(50)
    scenario.failed("other")
    scenario.wait(40)
    again = rerun(scenario)
    again.wait(50)
    again.done("other")
    assert again.status == "running"
    again.wait(20)
    assert (again.status, again.error.kind) == ("failed", "timeout")
