"""LANGUAGE §4: which tokens are let in, held, tried again, discarded."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, given, limits, started

from noetl_stream.model.events import EvaluatedGuard, StepScheduled, TokenClaimed, TokenDiscarded, TokenHeld
from noetl_testkit.scenario.scenario import Scenario


def gated(rules: str, root: str = "") -> Scenario:
    """One step with these admission rules."""
    return given(
        f"- step: start\n  spec: {{policy: {{admit: {{rules: [{rules}]}}}}}}\n  tool: {{kind: noop}}\n",
        root,
    )


def allow(when: str) -> str:
    return f'{{when: "{{{{ {when} }}}}", then: {{allow: true}}}}'


def deny(when: str) -> str:
    return f'{{when: "{{{{ {when} }}}}", then: {{allow: false}}}}'


ELSE_ALLOW = "{else: {then: {allow: true}}}"
ELSE_DENY = "{else: {then: {allow: false}}}"


def test_without_admission_rules_a_token_is_admitted() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    assert scenario.working == [("start", None)]
    assert scenario.facts(TokenClaimed)[0].guards == []


def test_the_first_rule_that_holds_decides() -> None:
    scenario = gated(f"{deny('false')}, {allow('true')}, {deny('true')}")
    scenario.start()
    assert scenario.working == [("start", None)]
    guards = [("{{ false }}", False, 0), ("{{ true }}", True, 1)]
    assert [(one.when, one.value, one.rule) for one in scenario.facts(TokenClaimed)[0].guards] == guards


def test_a_rule_that_denies_holds_the_token_although_a_later_one_would_allow_it() -> None:
    scenario = gated(f"{deny('true')}, {ELSE_ALLOW}")
    scenario.start()
    assert "token.claimed" not in scenario.names


def test_else_decides_when_no_guard_holds() -> None:
    scenario = gated(f"{deny('false')}, {ELSE_ALLOW}")
    scenario.start()
    assert scenario.facts(TokenClaimed)[0].guards[-1] == EvaluatedGuard("else", True, 1)


@pytest.mark.parametrize("rules", [allow("false"), f"{allow('false')}, {ELSE_DENY}"], ids=["no match", "else"])
def test_a_token_no_rule_allows_is_denied(rules: str) -> None:
    scenario = gated(rules)
    scenario.start()
    assert "token.claimed" not in scenario.names


def test_a_denied_token_is_held_with_the_rule_and_its_value() -> None:
    scenario = gated(f"{allow('false')}, {ELSE_DENY}")
    scenario.start()
    (held,) = scenario.facts(TokenHeld)
    assert held.guards == [EvaluatedGuard("{{ false }}", False, 0), EvaluatedGuard("else", True, 1)]


@pytest.mark.parametrize(
    "guard",
    [
        "workload.allowed == 7",
        "ctx.allowed == 8",
        "args == {}",
        "execution_id == 'execution-1'",
        "token.cause == 'start' and token.from_step is none",
        "steps.start is none",
    ],
)
def test_an_admission_guard_reads_its_namespaces(guard: str) -> None:
    scenario = gated(allow(guard), "workload: {allowed: 0}\n")
    scenario.start({"allowed": 7}, {"allowed": 8})
    assert scenario.working == [("start", None)]


def test_a_guard_reads_the_arcs_args_and_where_the_token_came_from() -> None:
    rule = allow("args.n == 3 and n == 3 and token.cause == 'arc' and token.from_step == 'start'")
    scenario = started(
        f"""
        - step: start
          next: {{arcs: [{{step: there, args: {{n: 3}}}}]}}
        - step: there
          spec: {{policy: {{admit: {{rules: [{rule}]}}}}}}
          tool: {{kind: noop}}
        """
    )
    assert scenario.working == [("there", None)]


def test_a_guard_that_cannot_be_evaluated_fails_the_execution_in_any_failure_mode() -> None:
    scenario = gated(allow("ctx.never > 1"), BEST_EFFORT)
    scenario.start()
    assert scenario.status == "failed"
    assert scenario.error.kind == "expression_error" and "admission of start" in scenario.error.message
    assert "token.claimed" not in scenario.names


GATE = """
- step: start
  next:
    spec: {mode: inclusive}
    arcs: [{step: second}, {step: first}, {step: key}]
- step: first
  spec: {policy: {admit: {rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: second
  spec: {policy: {admit: {rules: [{when: "{{ key is not none }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: key
  tool:
  - name: turn
    kind: noop
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {open: true}}}}]}}
  - name: leave
    kind: noop
"""


def test_a_held_token_is_tried_again_after_a_fact_that_changes_ctx() -> None:
    scenario = started(GATE)
    assert scenario.held == ["second", "first"]
    run = scenario.take("key")
    run.answer()
    assert scenario.held == ["second"]
    assert scenario.working == [("key", None), ("first", None)]
    assert scenario.names[-3:] == ["task.processed", "token.claimed", "step.scheduled"]


def test_a_held_token_is_tried_again_after_a_fact_that_changes_a_steps_result() -> None:
    scenario = started(GATE)
    scenario.done("key")
    assert scenario.held == []
    assert scenario.working == [("first", None), ("second", None)]


def test_held_tokens_are_tried_in_order_of_arrival() -> None:
    gate = "{policy: {admit: {rules: [{when: '{{ key is not none }}', then: {allow: true}}]}}}"
    scenario = started(
        f"""
        - step: start
          next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: a}}, {{step: b}}, {{step: key}}]}}
        - step: a
          spec: {gate}
          tool: {{kind: noop}}
        - step: b
          spec: {gate}
          tool: {{kind: noop}}
        - step: key
          tool: {{kind: noop}}
        """
    )
    assert scenario.held == ["b", "a", "b"]
    scenario.done("key")
    assert scenario.working == [("b", None), ("a", None), ("b", None)]


def test_a_held_token_goes_before_one_that_is_newly_routed() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: gate}, {step: key}]}
        - step: gate
          spec: {policy: {admit: {rules: [{when: "{{ key is not none }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: key
          tool: {kind: noop}
          next: {arcs: [{step: later}]}
        - step: later
          tool: {kind: noop}
        """
    )
    scenario.done("key")
    assert scenario.working == [("gate", None), ("later", None)]


def test_a_token_that_stays_held_is_recorded_once() -> None:
    scenario = started(GATE)
    run = scenario.take("key")
    run.begin()
    run.answer()
    assert len(scenario.facts(TokenHeld)) == 2


def test_a_held_token_that_can_no_longer_be_evaluated_fails_the_execution() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: gate}, {step: work}]}
        - step: gate
          spec: {policy: {admit: {rules: [{when: "{{ work is not none and ctx.never > 1 }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: work
          tool: {kind: noop}
        """
    )
    assert scenario.held == ["gate"]
    scenario.done("work")
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_a_held_token_is_not_discarded_while_something_lives() -> None:
    scenario = started(GATE)
    scenario.take("key").begin()
    assert scenario.status == "running"
    assert scenario.facts(TokenDiscarded) == []


def test_held_tokens_are_discarded_with_the_reason_when_nothing_else_lives_and_the_end_counts_them() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: shut}, {step: shut}, {step: work}]}
        - step: shut
          spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: work
          tool: {kind: noop}
        """
    )
    scenario.done("work", "result")
    assert scenario.status == "completed"
    assert [fact.reason for fact in scenario.facts(TokenDiscarded)] == ["nothing left can change its admission"] * 2
    assert scenario.execution.discarded == 2
    assert scenario.result == "result"
    assert scenario.names[-4:] == ["token.discarded", "token.discarded", "execution.finished", "playbook.processed"]


def test_held_tokens_are_tried_again_before_they_are_discarded() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: last}, {step: work}]}
        - step: last
          spec: {policy: {admit: {rules: [{when: "{{ work.n == 2 }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: work
          tool: {kind: noop}
        """
    )
    scenario.done("work", {"n": 2})
    assert scenario.working == [("last", None)]
    assert scenario.facts(TokenDiscarded) == []


def test_more_held_tokens_than_the_decisions_of_one_fact_can_be_discarded_at_once() -> None:
    many = ", ".join(["{step: shut}"] * 20)
    scenario = started(
        f"""
        - step: start
          next: {{spec: {{mode: inclusive}}, arcs: [{{step: one}}, {{step: two}}]}}
        - step: one
          tool: {{kind: noop}}
          next: {{spec: {{mode: inclusive}}, arcs: [{many}]}}
        - step: two
          tool: {{kind: noop}}
          next: {{spec: {{mode: inclusive}}, arcs: [{many}]}}
        - step: shut
          spec: {{policy: {{admit: {{rules: [{ELSE_DENY}]}}}}}}
          tool: {{kind: noop}}
        """,
        limits(max_decisions_per_fact=50),
    )
    scenario.done("one")
    scenario.done("two")
    assert (scenario.status, scenario.execution.discarded) == ("completed", 40)


def test_the_claim_names_the_step_run_that_is_then_ordered() -> None:
    scenario = started(GATE)
    claimed = {fact.step_run_id for fact in scenario.facts(TokenClaimed)}
    assert {fact.step_run_id for fact in scenario.facts(StepScheduled)} <= claimed


def test_a_held_token_is_tried_again_after_a_patch_from_outside() -> None:
    scenario = started(GATE)
    scenario.patch(unrelated=1)
    assert scenario.held == ["second", "first"]
    scenario.patch(open=True)
    assert scenario.held == ["second"]


def test_a_held_token_is_tried_again_when_a_loop_has_folded_what_was_shared() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: gate}, {step: many}]}
        - step: gate
          spec: {policy: {admit: {rules: [{when: "{{ ctx.n | default(0) == 2 }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: many
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
          tool: {name: t, kind: noop, spec: {policy: {rules: [
            {else: {then: {do: continue, set_shared: {n: {op: count}}}}}]}}}
          next: {arcs: [{step: later}]}
        - step: later
          tool: {kind: noop}
        """
    )
    scenario.done("many", index=1)
    assert scenario.held == ["gate"]
    scenario.done("many", index=0)
    assert scenario.working == [("gate", None), ("later", None)]


def test_a_token_that_stays_held_does_not_meet_the_limit_of_step_runs() -> None:
    """The limit ends cycles; a token that admission would not let in begins nothing."""
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: shut}, {step: work}]}
        - step: shut
          spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: work
          tool: {kind: noop}
        """,
        limits(max_step_runs=2),
    )
    scenario.done("work", "result")
    assert (scenario.status, scenario.result, scenario.execution.discarded) == ("completed", "result", 1)


def test_an_admitted_token_does() -> None:
    scenario = started(GATE, limits(max_step_runs=2))
    scenario.patch(open=True)
    assert scenario.execution.failing is not None or scenario.status == "failed"
    assert scenario.error.message == "limits.max_step_runs (2) reached"
