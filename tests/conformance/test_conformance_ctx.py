"""Sentences about what steps share, hand on, and do not see of each other that no other test shows."""

from __future__ import annotations

from engine_scenarios import given, limits, started
from playbook_building import codes, plan_of, workflow

from noetl_stream.engine.effects import child_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import ChildRequested, CtxOverwrote, CtxPatched

WRITERS = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [START]}
- step: left
  tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 1, l: 1}}}}]}}}
  next: {arcs: [LEFT]}
- step: right
  tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 2, r: 2}}}}]}}}
"""


TWO = """
- step: start
  tool: {kind: noop, args: {ctx: "{{ ctx }}"}}
  next: {arcs: [{step: later}]}
- step: later
  tool: {kind: noop, args: {ctx: "{{ ctx }}"}}
"""


def test_a_patch_to_a_key_that_another_step_run_has_changed_is_recorded_as_an_overwrite() -> None:
    scenario = started(WRITERS.replace("START", "{step: left}, {step: right}").replace("LEFT", ""))
    scenario.done("left")
    assert scenario.facts(CtxOverwrote) == []
    writer = scenario.owed("right").step_run_id
    scenario.done("right")
    assert scenario.facts(CtxOverwrote) == [CtxOverwrote(writer, ["seen"])]
    assert scenario.names[scenario.names.index("ctx.overwrote") - 1] == "task.processed"
    assert scenario.ctx == {"seen": 2, "l": 1, "r": 2}


def test_a_key_that_was_changed_before_the_step_run_began_is_not_overwritten() -> None:
    scenario = started(WRITERS.replace("START", "{step: left}").replace("LEFT", "{step: right}"))
    scenario.done("left")
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
                spec:
                  policy: { rules: [ { else: { then: { do: continue, set_shared: { total: { op: count } } } } } ] }
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


def test_a_called_playbook_sees_nothing_of_its_caller_but_the_args_over_its_workload() -> None:
    caller = started(
        "- step: start\n  tool: {kind: playbook, path: library/child, args: {deep: {a: 7}}}\n",
        "workload: {secret: 1}\n",
        ctx={"mine": 2},
    )
    caller.done("start")
    (requested,) = caller.facts(ChildRequested)
    message = child_message(caller.execution, requested, 1)
    assert message is not None
    child = given(
        '- step: start\n  tool: {kind: noop, args: {all: ["{{ workload }}", "{{ ctx }}", "{{ args }}"]}}\n',
        "workload: {deep: {a: 1, b: 2}}\n",
    )
    child.feed(RecordedFact(message.fact))
    assert child.take("start").inputs == {"args": {"all": [{"deep": {"a": 7, "b": 2}}, {}, {}]}}


def test_no_rule_writes_the_workload() -> None:
    steps = "- step: start\n  tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, WORDS}}}]}}}\n"
    workload = "workload: {a: 1}\n"
    assert codes(workflow(steps.replace("WORDS", "set_workload: {a: 2}"), workload)) == ["unknown_key"]
    scenario = started(steps.replace("WORDS", "set_ctx: {a: 2}"), workload)
    scenario.done("start")
    assert (scenario.execution.workload, scenario.ctx) == ({"a": 1}, {"a": 2})


def test_nothing_that_is_asked_changes_the_workload() -> None:
    scenario = started(TWO, "workload: {a: 1}\n")
    scenario.patch(a=2)
    scenario.ask(CtxPatched, patch={"workload": {"a": 3}}, merge=True)
    scenario.inject("later", a=4)
    scenario.signal("a", 5)
    assert scenario.execution.workload == {"a": 1}


def test_a_patch_is_seen_only_by_step_runs_that_begin_afterwards() -> None:
    scenario = started(TWO)
    scenario.patch(seen=True)
    assert scenario.take("start").inputs == {"args": {"ctx": {}}}
    scenario.done("start")
    assert scenario.take("later").inputs == {"args": {"ctx": {"seen": True}}}
