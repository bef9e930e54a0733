"""Sentences about keys that several write, and what comes from outside, that no other test shows (LANGUAGE §2, §5)."""

from __future__ import annotations

from engine_scenarios import limits, started
from playbook_building import plan_of, workflow

from noetl_stream.model.events import CtxOverwrote

FORK = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
- step: left
  tool: {kind: noop, args: {n: 1}, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 1, l: 1}}}}]}}}
- step: right
  tool: {kind: noop, args: {n: 2}, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 2, r: 2}}}}]}}}
"""


def test_a_patch_to_a_key_that_another_step_run_has_changed_meanwhile_is_said_to_have_overwritten_it() -> None:
    scenario = started(FORK)
    scenario.done("left")
    assert scenario.facts(CtxOverwrote) == []
    writer = scenario.owed("right").step_run_id
    scenario.done("right")
    assert scenario.facts(CtxOverwrote) == [CtxOverwrote(writer, ["seen"])]
    assert scenario.names[scenario.names.index("ctx.overwrote") - 1] == "task.processed"
    assert scenario.ctx == {"seen": 2, "l": 1, "r": 2}


def test_a_key_that_was_changed_before_the_step_run_began_is_not_overwritten() -> None:
    scenario = started(
        FORK.replace("{spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}", "{arcs: [{step: left}]}")
    )
    scenario.done("left")
    scenario.inject("right")
    scenario.done("right")
    assert (scenario.ctx["seen"], scenario.facts(CtxOverwrote)) == (2, [])


def test_a_bare_name_may_be_what_iterations_share() -> None:
    plan = plan_of(
        workflow(
            """
            - step: start
              loop: { in: [1, 2], iterator: n, spec: { mode: parallel } }
              tool:
                kind: noop
                spec: { policy: { rules: [ { else: { then: { do: continue, set_shared: { total: { op: count } } } } } ] } }
              next: { arcs: [ { step: after, when: "{{ total == 2 }}" } ] }
            - step: after
              tool: { kind: noop, args: { n: "{{ total }}" } }
            """
        )
    )
    guard = plan.steps["start"].arcs[0].guard
    assert guard is not None and guard.reads == plan.steps["after"].tasks[0].inputs.reads == {("ctx", "total")}


def test_args_of_an_arc_above_their_limit_fail_the_execution_with_its_name() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: end, args: {text: "{{ event.result }}"}}]}
        - step: end
          tool: {kind: noop}
        """,
        limits(max_ctx_bytes=100),
    )
    scenario.done("start", "x" * 100)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "args of the arc to end have 111 bytes; limits.max_ctx_bytes is 100" in scenario.error.message
