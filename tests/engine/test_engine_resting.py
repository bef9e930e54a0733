"""LANGUAGE §7 *next.spec.wait*: a branch rests at ``next`` until an arc fires or its time has passed."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, given, limits, started

from noetl_stream.model.events import NextEvaluated, NextResting, NextTimedOut, TimerSet, TokenClaimed, TokenEnqueued
from noetl_testkit.scenario.scenario import Scenario, rerun

APPROVED = '{step: pay, when: "{{ ctx.approved == true }}"}'
TIMED_OUT = """{step: remind, when: "{{ event.name == 'next.timed_out' }}"}"""


def asking(arcs: str = APPROVED, wait: str = "{timeout_s: 3600}", root: str = "", more: str = "") -> Scenario:
    """A step whose branch may rest, and the steps behind it; started and done with ``{"n": 7}``."""
    scenario = given(
        f"""
- step: ask
  tool: {{kind: noop, spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_vars: {{kept: 1}}}}}}}}]}}}}}}
  next: {{spec: {{wait: {wait}}}, arcs: [{arcs}]}}
- step: pay
  tool: {{kind: noop}}
- step: remind
  tool: {{kind: noop}}
{more}
""",
        root,
    )
    scenario.start()
    scenario.done("ask", {"n": 7})
    return scenario


def ask_alone(arc: str = APPROVED, tool: str = "", wait: str = "{timeout_s: 9}", root: str = "") -> Scenario:
    """A step with one arc to ``pay``, not started yet; without a tool it is done at once."""
    router = f"next: {{spec: {{wait: {wait}}}, arcs: [{arc}]}}"
    return given(f"- step: ask\n{tool}  {router}\n- step: pay\n  tool: {{kind: noop}}\n", root)


NOOP = "  tool: {kind: noop}\n"


def resting(scenario: Scenario) -> list[str]:
    """The steps whose branches rest."""
    return [scenario.execution.runs[branch].step for branch in scenario.execution.resting]


def test_a_branch_rests_until_a_patch_lets_an_arc_fire() -> None:
    scenario = asking()
    assert (resting(scenario), scenario.execution.shown_status) == (["ask"], "waiting")
    assert scenario.names[-2:] == ["next.resting", "timer.set"]
    scenario.patch(approved=True)
    assert (resting(scenario), scenario.working) == ([], [("pay", None)])
    assert scenario.execution.timers == {}
    assert scenario.names[-4:] == ["next.evaluated", "token.enqueued", "token.claimed", "step.scheduled"]


def test_a_rest_records_the_values_of_its_guards_and_the_keys_that_they_wait_for() -> None:
    (fact,) = asking(f'{APPROVED}, {{step: remind, when: "{{{{ event.result.n > 9 }}}}"}}').facts(NextResting)
    guards = [(one.when, one.value, one.rule, one.waits_for) for one in fact.guards]
    assert guards == [
        ("{{ ctx.approved == true }}", False, 0, "ctx.approved"),
        ("{{ event.result.n > 9 }}", False, 1, ""),
    ]


@pytest.mark.parametrize(
    ("guard", "waits_for"),
    [
        ("not ctx.rejected", "ctx.rejected"),
        ("ctx.amount > 100", "ctx.amount"),
        ("ctx['amount'] > 100", "ctx.amount"),
        ("event.step == 'other' or ctx.review.by == 'ann'", "ctx.review"),
        ("ctx.half.by == 'ann'", "ctx.half.by"),
        ("ctx.approved | default(false)", ""),
        ("ctx.approved is defined", ""),
        ("'approved' in ctx", ""),
    ],
)
def test_a_guard_that_reads_a_key_of_ctx_that_is_not_there_does_not_hold_yet(guard: str, waits_for: str) -> None:
    arc = f'{{step: pay, when: "{{{{ {guard} }}}}"}}'
    scenario = ask_alone(arc)
    scenario.start(ctx={"half": {}})
    assert resting(scenario) == ["ask"]
    assert scenario.facts(NextResting)[0].guards[0].waits_for == waits_for


@pytest.mark.parametrize("guard", ["workload.never", "event.result.never", "ctx.number.key", "ctx.list[3]", "1 / 0"])
def test_any_other_guard_that_cannot_be_evaluated_fails_the_execution(guard: str) -> None:
    arc = f'{{step: ask, when: "{{{{ {guard} }}}}"}}'
    scenario = ask_alone(arc)
    scenario.start(ctx={"number": 1, "list": []})
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_without_a_wait_a_guard_that_reads_an_absent_key_fails_the_execution() -> None:
    scenario = started("- step: ask\n  next: {arcs: [{step: ask, when: '{{ ctx.approved == true }}'}]}\n")
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_a_token_whose_rule_reads_an_absent_key_waits_at_an_admission() -> None:
    rules = '[{when: "{{ ctx.approved == true }}", then: {allow: true}}]'
    scenario = started(
        f"- step: pay\n  spec: {{policy: {{admit: {{rules: {rules}, wait: {{timeout_s: 9}}}}}}}}\n{NOOP}"
    )
    (held,) = scenario.execution.tokens.values()
    assert [guard.waits_for for guard in held.guards] == ["ctx.approved"]
    scenario.patch(approved=True)
    assert scenario.working == [("pay", None)]


def test_a_branch_that_goes_on_resting_is_recorded_once() -> None:
    scenario = asking()
    scenario.patch(approved=False)
    scenario.patch(other=1)
    assert (resting(scenario), len(scenario.facts(NextResting))) == (["ask"], 1)
    assert scenario.names[-2:] == ["ctx.patched", "ctx.patched"]


def test_an_error_in_the_args_of_an_arc_that_fires_at_last_fails_the_execution() -> None:
    scenario = asking('{step: pay, when: "{{ ctx.approved }}", args: {sum: "{{ ctx.sum }}"}}')
    scenario.patch(approved=True)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_the_result_of_another_step_wakes_a_branch() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: ask}, {step: other}]}
        - step: ask
          next:
            spec: {wait: {timeout_s: 60}}
            arcs: [{step: pay, when: "{{ other.ok == 1 }}", args: {n: "{{ other.ok }}"}}]
        - step: other
          tool: {kind: noop}
        - step: pay
          tool: {kind: noop}
        """
    )
    assert resting(scenario) == ["ask"]
    scenario.done("other", {"ok": 1})
    assert scenario.take("pay").command.args == {"n": 1}


def test_its_arcs_read_the_vars_args_and_event_of_its_own_step_run_whatever_ran_since() -> None:
    args = "{n: '{{ event.result.n }}', kept: '{{ vars.kept }}', of: '{{ args.of }}'}"
    keep = '{policy: {rules: [{else: {then: {do: continue, set_vars: {kept: "{{ args.of }}"}}}}]}}'
    scenario = started(
        f"""
        - step: start
          next: {{spec: {{mode: inclusive}}, arcs: [{{step: ask, args: {{of: 1}}}}, {{step: ask, args: {{of: 2}}}}]}}
        - step: ask
          tool: {{kind: noop, spec: {keep}}}
          next: {{spec: {{wait: {{timeout_s: 60}}}}, arcs: [{{step: pay, when: "{{{{ ctx.go }}}}", args: {args}}}]}}
        - step: pay
          tool: {{kind: noop}}
        """
    )
    scenario.done("ask", {"n": 1})
    scenario.done("ask", {"n": 2})
    scenario.patch(go=True)
    paid = [fact.token.args for fact in scenario.facts(TokenEnqueued) if fact.token.step == "pay"]
    assert paid == [{"n": 1, "kept": 1, "of": 1}, {"n": 2, "kept": 2, "of": 2}]


def test_held_tokens_and_resting_branches_are_tried_in_order_of_arrival() -> None:
    rules = '[{when: "{{ ctx.go | default(false) }}", then: {allow: true}}]'
    gate = f"{{policy: {{admit: {{rules: {rules}, wait: {{timeout_s: 60}}}}}}}}"
    scenario = started(
        f"""
        - step: start
          next: {{spec: {{mode: inclusive}}, arcs: [{{step: late}}, {{step: gate}}, {{step: ask}}]}}
        - step: late
          tool: {{kind: noop}}
          next: {{arcs: [{{step: gate}}]}}
        - step: gate
          spec: {gate}
          tool: {{kind: noop}}
        - step: ask
          next: {{spec: {{wait: {{timeout_s: 60}}}}, arcs: [{{step: pay, when: "{{{{ ctx.go }}}}"}}]}}
        - step: pay
          tool: {{kind: noop}}
        """
    )
    scenario.done("late")
    scenario.patch(go=True)
    assert scenario.working == [("gate", None), ("gate", None), ("pay", None)]
    order = [name for name in scenario.names[scenario.names.index("ctx.patched") :] if name != "step.scheduled"]
    claimed = "token.claimed"
    assert order == ["ctx.patched", claimed, "next.evaluated", "token.enqueued", claimed, claimed]


def test_a_new_wait_is_decided_at_once_by_earlier_changes() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: ask}, {step: gate}, {step: quick}]}
        - step: ask
          spec: {join: any}
          next: {spec: {wait: {timeout_s: 60}}, arcs: [{step: work, when: "{{ steps.quick is defined }}"}]}
        - step: gate
          spec: {join: any, policy: {admit: {rules: [{when: "{{ steps.quick is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: quick
          next: {arcs: [{step: work, when: false}]}
        - step: work
          tool: {kind: noop}
        """
    )
    assert (scenario.held, resting(scenario)) == ([], [])
    assert sorted(scenario.working) == [("gate", None), ("work", None)]


def test_a_loop_rests_after_its_end_and_all_arcs_that_hold_at_last_fire_in_inclusive_mode() -> None:
    scenario = started(
        """
        - step: ask
          loop: {in: [1], iterator: x}
          tool: {kind: noop}
          next:
            spec: {mode: inclusive, wait: {timeout_s: 60}}
            arcs: [{step: a, when: "{{ ctx.go and event.loop.count == 1 }}"}, {step: b, when: "{{ ctx.go }}"}]
        - step: a
          tool: {kind: noop}
        - step: b
          tool: {kind: noop}
        """
    )
    scenario.done("ask")
    assert resting(scenario) == ["ask"]
    scenario.patch(go=True)
    assert scenario.working == [("a", None), ("b", None)]


def test_a_failed_step_does_not_rest() -> None:
    scenario = ask_alone(tool=NOOP)
    scenario.start()
    scenario.failed("ask")
    assert (scenario.status, scenario.facts(NextResting)) == ("failed", [])


def test_an_arc_may_ask_whether_the_wait_has_timed_out() -> None:
    scenario = asking(f"{APPROVED}, {TIMED_OUT}")
    scenario.wait(3600)
    assert (resting(scenario), scenario.working) == ([], [("remind", None)])
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["next.timed_out"]
    assert scenario.names[-6:-4] == ["timer.fired", "next.timed_out"]


@pytest.mark.parametrize(
    "guard", ["event.name == 'next.timed_out'", "event.status == 'error'", "event.error is not none"]
)
def test_the_event_of_a_branch_that_timed_out_differs_in_its_name_alone(guard: str) -> None:
    scenario = asking(f'{{step: remind, when: "{{{{ {guard} }}}}"}}', "{timeout_s: 5, on_timeout: discard}")
    scenario.wait(5)
    assert bool(scenario.working) == ("timed_out" in guard)


def test_a_branch_that_timed_out_fails_the_execution() -> None:
    scenario = asking()
    scenario.wait(3599)
    assert scenario.status == "running"
    scenario.wait(1)
    assert (scenario.status, scenario.error.kind) == ("failed", "routing_timeout")
    assert scenario.error.message == "no arc of step ask fired within next.spec.wait.timeout_s (3600 s)"
    assert rerun(scenario).working == [("ask", None)]  # a retry


@pytest.mark.parametrize(
    ("root", "own"),
    [(BEST_EFFORT, ""), ("", "  spec: {policy: {failure: {mode: best_effort}}}\n")],
    ids=["the executor's", "the step's own"],
)
def test_a_timeout_in_best_effort_ends_that_branch_alone(root: str, own: str) -> None:
    scenario = ask_alone(tool=own, root=root)
    scenario.start()
    scenario.wait(9)
    assert (scenario.status, scenario.result) == ("completed", None)


def test_a_discarded_branch_ends_and_its_step_run_is_no_candidate_for_the_result() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: first}, {step: ask}]}
        - step: first
          tool: {kind: noop}
        - step: ask
          next: {spec: {wait: {timeout_s: 5, on_timeout: discard}}, arcs: [{step: first, when: "{{ ctx.go }}"}]}
        """
    )
    scenario.done("first", "the result")
    assert scenario.status == "running"
    scenario.wait(5)
    assert (scenario.status, scenario.result) == ("completed", "the result")
    assert [fact.event for fact in scenario.facts(NextEvaluated)][-1] == "next.timed_out"


JOINED = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: ask}, {step: both}, {step: shut}]}
- step: ask
  next: {spec: {wait: {timeout_s: 60, on_timeout: discard}}, arcs: [{step: both, when: "{{ ctx.go }}"}]}
- step: shut
  spec: {policy: {admit: {rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: both
  spec: {join: all}
  tool: {kind: noop}
"""


def test_a_resting_branch_holds_back_a_join_that_it_can_reach_and_keeps_held_tokens() -> None:
    scenario = started(JOINED)
    assert (resting(scenario), scenario.held, scenario.working) == (["ask"], ["shut"], [])
    scenario.patch(go=True)
    arrivals = scenario.take("both").command.args["arrivals"]
    assert [arrival["step"] for arrival in arrivals] == ["start", "ask"]


def test_the_join_fires_without_a_branch_that_was_discarded() -> None:
    scenario = started(JOINED)
    scenario.wait(60)
    assert [arrival["step"] for arrival in scenario.take("both").command.args["arrivals"]] == ["start"]


def test_a_cancel_ends_a_resting_branch() -> None:
    scenario = asking()
    scenario.cancel()
    assert (scenario.status, resting(scenario), scenario.execution.timers) == ("cancelled", [], {})


def test_the_timeout_of_the_execution_ends_a_resting_branch() -> None:
    scenario = asking(root="executor: {spec: {timeout_s: 60}}\n")
    scenario.wait(60)
    assert (scenario.status, scenario.error.kind) == ("failed", "timeout")


def test_a_pause_shifts_the_time_of_a_resting_branch() -> None:
    scenario = asking(wait="{timeout_s: 100}")
    scenario.wait(90)
    scenario.pause()
    scenario.wait(500)
    scenario.resume()
    scenario.wait(9)
    assert resting(scenario) == ["ask"]
    scenario.wait(1)
    assert scenario.error.kind == "routing_timeout"


def test_a_patch_in_a_pause_wakes_a_resting_branch_when_the_execution_resumes() -> None:
    scenario = asking()
    scenario.pause()
    scenario.patch(approved=True)
    assert (resting(scenario), scenario.working) == (["ask"], [])
    scenario.resume()
    assert (resting(scenario), scenario.working) == ([], [("pay", None)])


def test_a_step_that_ends_in_a_pause_rests_when_the_execution_resumes() -> None:
    scenario = ask_alone(tool=NOOP)
    scenario.start()
    run = scenario.take("ask")
    run.begin()
    scenario.pause()
    run.finish()
    scenario.wait(500)
    scenario.resume()
    assert resting(scenario) == ["ask"]
    scenario.wait(9)
    assert scenario.error.kind == "routing_timeout"


def test_a_rerun_that_reuses_its_step_run_rests_again_with_the_full_time() -> None:
    more = "- step: other\n  tool: {kind: noop}\n"
    scenario = asking(more=more)
    scenario.inject("other")
    scenario.wait(3000)
    scenario.failed("other")
    again = rerun(scenario)
    assert (resting(again), again.working) == (["ask"], [("other", None)])
    again.done("other")
    again.wait(3599)
    assert again.status == "running"
    again.patch(approved=True)
    assert again.working == [("pay", None)]


def test_a_rerun_reuses_the_end_of_a_branch_whose_time_was_over() -> None:
    more = "- step: other\n  tool: {kind: noop}\n"
    scenario = asking(wait="{timeout_s: 5, on_timeout: discard}", more=more)
    scenario.inject("other")
    scenario.wait(5)
    scenario.failed("other")
    again = rerun(scenario)
    assert (resting(again), again.facts(NextTimedOut), again.working) == ([], [], [("other", None)])


def test_another_server_goes_on_with_a_resting_branch() -> None:
    scenario = asking()
    scenario.take_over()
    scenario.patch(approved=True)
    assert scenario.working == [("pay", None)]
    assert scenario.decided_again() == scenario.journal


def test_guards_that_cost_too_much_are_evaluated_elsewhere_while_a_branch_rests() -> None:
    heavy = "range(20000) | sum > 0 and ctx.approved == true"
    scenario = asking(f'{{step: pay, when: "{{{{ {heavy} }}}}"}}, {TIMED_OUT}')
    (fact,) = scenario.facts(NextResting)
    assert (resting(scenario), fact.guards[0].waits_for) == (["ask"], "ctx.approved")
    scenario.evaluates = False
    scenario.patch(approved=False)
    scenario.patch(approved=True)  # while the guards are evaluated by what ctx was
    scenario.evaluate()
    assert resting(scenario) == ["ask"]
    scenario.evaluate()
    assert (resting(scenario), scenario.working) == ([], [("pay", None)])


def test_guards_that_were_evaluated_elsewhere_are_evaluated_again_at_the_timeout() -> None:
    heavy = "range(20000) | sum > 0 and event.name == 'next.timed_out'"
    scenario = asking(f'{{step: pay, when: "{{{{ {heavy} }}}}"}}', "{timeout_s: 5}")
    assert resting(scenario) == ["ask"]
    scenario.wait(5)
    assert scenario.working == [("pay", None)]


def test_a_guard_may_read_a_result_kept_by_reference_while_its_branch_rests() -> None:
    arc = '{step: pay, when: "{{ event.result.rows | length == 2 and ctx.go }}"}'
    scenario = ask_alone(arc, NOOP)
    scenario.objects.takes = lambda size: True
    scenario.start()
    scenario.done("ask", {"rows": [1, 2]})
    scenario.look_into()
    assert resting(scenario) == ["ask"]
    scenario.take_over()
    scenario.patch(go=True)
    scenario.look_into()
    assert scenario.working == [("pay", None)]


def test_ever_more_branches_rest_within_the_limit_of_step_runs() -> None:
    scenario = asking(root=limits(max_step_runs=2))
    scenario.patch(approved=True)
    scenario.done("pay")
    assert scenario.status == "completed"
    assert [fact.due_ms for fact in scenario.facts(TimerSet)] == [1_000_000 + 3_600_000]
    assert len(scenario.facts(TokenClaimed)) == 2
