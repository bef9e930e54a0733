"""LANGUAGE §9: how an execution begins and ends, its workload, its result; §2 *Results*; §5 what a step run sees."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import BEST_EFFORT, given, started

from noetl_stream.engine.advance import Advanced, InvalidPlan, advance
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    CtxPatched,
    ExecutionEvaluated,
    ExecutionFinished,
    ExecutionRequested,
    ExecutionStarted,
    PlaybookProcessed,
    StepScheduled,
    TokenClaimed,
)
from noetl_stream.model.json.values import deep_merge
from noetl_stream.model.messages import FORMAT

ONE = "- step: start\n  tool: {kind: noop}\n"


def test_a_request_is_evaluated_started_and_gives_the_entry_step_a_token() -> None:
    scenario = started(ONE)
    assert scenario.names == [
        "execution.requested",
        "execution.evaluated",
        "execution.started",
        "token.enqueued",
        "token.claimed",
        "step.scheduled",
    ]
    assert scenario.status == "running"


def test_the_start_pins_digest_format_limits_and_workload() -> None:
    scenario = started(ONE, "workload: {a: 1, b: 2}\n", workload={"b": 3})
    (fact,) = scenario.facts(ExecutionStarted)
    assert (fact.digest, fact.path, fact.format) == (scenario.plan.digest, "tests/test", FORMAT)
    assert (fact.workload, fact.limits) == ({"a": 1, "b": 3}, scenario.plan.limits)


def test_the_ctx_of_a_request_is_the_first_patch() -> None:
    scenario = started(ONE, ctx={"c": 4})
    (fact,) = scenario.facts(CtxPatched)
    assert (fact.patch, fact.merge) == ({"c": 4}, False)
    assert scenario.names[:4] == ["execution.requested", "execution.evaluated", "execution.started", "ctx.patched"]
    assert (scenario.ctx, scenario.execution.ctx_version) == ({"c": 4}, 4)
    (claimed,) = scenario.facts(TokenClaimed)
    assert scenario.execution.runs[claimed.step_run_id].ctx == {"c": 4}
    assert started(ONE).facts(CtxPatched) == []


def test_the_entry_step_is_the_one_the_playbook_names() -> None:
    scenario = started(
        "- step: start\n  tool: {kind: noop}\n- step: other\n  tool: {kind: noop}\n",
        "executor: {spec: {entry_step: other}}\n",
    )
    assert scenario.working == [("other", None)]


def test_a_second_request_changes_nothing() -> None:
    scenario = started(ONE)
    before = scenario.state
    assert scenario.start({"other": 1}) == ()
    assert scenario.state is before


def test_only_a_request_begins_an_execution() -> None:
    plan = given(ONE).plan
    advanced = advance(plan, None, RecordedFact(StepScheduled("a", "b")), "execution-1")
    assert advanced == Advanced(None, False, ())


def test_a_refused_playbook_ends_as_failed_with_its_diagnostics() -> None:
    diagnostics = [{"code": "unknown_key", "line": 3}]
    refusal = InvalidPlan("line 3: unknown key", diagnostics)
    advanced = advance(refusal, None, RecordedFact(ExecutionRequested("request-1", "digest")), "execution-1")
    state = advanced.state
    assert state is not None and state.outcome is not None and state.outcome.error is not None
    assert (state.status, state.refused, state.processed) == ("failed", diagnostics, True)
    assert (state.outcome.error.kind, state.outcome.error.message) == ("invalid_playbook", "line 3: unknown key")
    kinds = [ExecutionEvaluated, ExecutionFinished, PlaybookProcessed]
    assert [type(fact) for fact in advanced.journal] == kinds and state.position == 4


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
    ],
)
def test_the_requests_workload_is_merged_deeply_over_the_defaults(base: Any, over: Any, merged: Any) -> None:
    assert deep_merge(base, over) == merged


INPUTS = """
executor: {spec: {workload: {required: [order], properties: {rows: {type: integer, minimum: 1}}}}}
workload: {rows: 1}
"""


def test_a_workload_that_does_not_match_its_schema_starts_nothing() -> None:
    scenario = started(ONE, INPUTS, workload={"order": "1001", "rows": 0})
    state = scenario.execution
    assert (state.status, scenario.working) == ("failed", [])
    error = state.outcome.error if state.outcome is not None else None
    assert error is not None and (error.kind, error.code) == ("invalid_workload", "/rows")
    assert error.message.startswith("the workload does not match its schema at `/rows`: the value is less than")
    assert state.refused == [{"code": "invalid_workload", "message": error.message, "pointer": "/rows"}]


def test_a_schema_describes_the_merged_workload() -> None:
    assert started(ONE, INPUTS, workload={"order": "1001"}).status == "running"
    assert started(ONE, INPUTS).status == "failed"


# --- results ----------------------------------------------------------------------------------------------------------


def test_without_result_it_is_that_of_the_step_that_fired_no_arc() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: b}]}
        - step: b
          tool: {kind: noop}
        """
    )
    scenario.done("start", "first")
    scenario.done("b", "second")
    assert scenario.result == "second"


THREE_ENDS = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: z}, {step: y}, {step: x}]}
- step: x
  tool: {kind: noop}
- step: y
  tool: {kind: noop}
- step: z
  tool: {kind: noop}
"""


@pytest.mark.parametrize("order", ["xyz", "zyx", "yzx"])
def test_the_last_end_in_the_file_counts_whenever_it_ended(order: str) -> None:
    scenario = started(THREE_ENDS)
    for step in order:
        scenario.done(step, f"of {step}")
    assert scenario.result == "of z"


def test_only_successful_step_runs_count() -> None:
    scenario = started(THREE_ENDS, BEST_EFFORT)
    scenario.done("x", "of x")
    scenario.done("y", "of y")
    scenario.failed("z")
    assert scenario.result == "of y"


def test_the_last_run_counts_of_a_step_that_ends_several_branches() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: x}, {step: x}]}
        - step: x
          tool: {kind: noop}
        """
    )
    first, second = (scenario.take("x") for _ in range(2))
    assert first.command.command_id == second.command.command_id
    scenario.done("x", "first")
    scenario.done("x", "second")
    assert scenario.result == "second"


def test_a_step_whose_arc_fired_is_not_an_end() -> None:
    steps = """
    - step: start
      tool: {kind: noop}
    - step: b
      tool: {kind: noop}
      next: {arcs: [{step: start}]}
    """
    scenario = started(steps, "executor: {spec: {entry_step: b}}\n")
    scenario.done("b", "of b")
    scenario.done("start", "of start")
    assert scenario.result == "of start"


def test_a_step_without_tool_gives_null_and_noop_its_args() -> None:
    scenario = started("- step: start\n  next: {arcs: [{step: b, when: false}]}\n- step: b\n  tool: {kind: noop}\n")
    assert (scenario.status, scenario.result) == ("completed", None)
    scenario = started("- step: start\n  tool: {kind: noop, args: {a: 1}}\n")
    scenario.done("start")
    assert scenario.result == {"a": 1}


def test_the_playbooks_own_result_is_rendered_from_what_there_is_in_the_end() -> None:
    root = """
    executor: {spec: {result: {n: "{{ start.n }}", seen: "{{ ctx.seen }}", for: "{{ workload.who }}", none: "{{ b }}"}}}
    workload: {who: me}
    """
    policy = "{policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: true}}}}]}}"
    steps = f"- step: start\n  tool: {{kind: noop, spec: {policy}}}\n- step: b\n  tool: {{kind: noop}}\n"
    scenario = started(steps, root)
    scenario.done("start", {"n": 3})
    assert scenario.result == {"n": 3, "seen": True, "for": "me", "none": None}


def test_a_result_that_cannot_be_evaluated_fails_the_execution() -> None:
    scenario = started(ONE, 'executor: {spec: {result: "{{ ctx.never }}"}}\n')
    scenario.done("start")
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "executor.spec.result" in scenario.error.message


def test_the_result_of_a_pipeline_is_that_of_the_task_run_last() -> None:
    scenario = started(
        """
        - step: start
          tool:
          - name: one
            kind: noop
            spec: {policy: {rules: [{when: "{{ outcome.result == 1 }}", then: {do: break}}]}}
          - name: two
            kind: noop
        """
    )
    scenario.take("start").answer(1)
    assert (scenario.status, scenario.result) == ("completed", 1)


TWICE = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: x, args: {n: 1}}, {step: x, args: {n: 2}}, {step: reader}]}
- step: x
  tool: {kind: noop}
  next: {arcs: [{step: reader, when: "{{ event.status in ['success', 'error'] }}"}]}
- step: reader
  tool: {kind: noop, args: {x: "{{ x }}"}}
"""


def test_the_last_finished_run_of_a_step_is_read() -> None:
    scenario = started(TWICE)
    scenario.done("reader")
    scenario.done("x", "first")
    assert scenario.take("reader").inputs == {"args": {"x": "first"}}
    scenario.done("x", "second")
    scenario.done("reader")
    assert scenario.take("reader").inputs == {"args": {"x": "second"}}


def test_a_step_whose_last_run_failed_has_no_result() -> None:
    scenario = started(TWICE)
    scenario.done("reader")
    scenario.done("x", "first")
    scenario.done("reader")
    scenario.failed("x")
    assert scenario.take("reader").inputs == {"args": {"x": None}}


# --- what a step run sees of ctx --------------------------------------------------------------------------------------

WRITERS = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: writer}, {step: reader}]}
- step: writer
  tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {mark: writer}}}}]}}}
- step: reader
  tool:
  - name: own
    kind: noop
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {own: 1}}}}]}}
  - name: read
    kind: noop
    args: {ctx: "{{ ctx }}", writer: "{{ writer }}"}
"""


def test_a_step_run_sees_ctx_and_results_as_they_were_when_its_token_was_claimed_plus_its_own_patches() -> None:
    scenario = started(WRITERS, ctx={"given": 0})
    run = scenario.take("reader")
    scenario.done("writer", "done")
    run.answer()
    assert run.inputs == {"args": {"ctx": {"given": 0, "own": 1}, "writer": None}}
    assert scenario.ctx == {"given": 0, "mark": "writer", "own": 1}


def test_a_step_run_sees_the_same_after_redelivery() -> None:
    scenario = started(WRITERS, ctx={"given": 0})
    scenario.take("reader").answer()
    scenario.done("writer", "done")
    again = scenario.take("reader")
    scenario.claim(again)
    assert again.task == "read"
    assert again.inputs == {"args": {"ctx": {"given": 0, "own": 1}, "writer": None}}


def test_two_step_runs_that_write_one_key_the_fold_order_decides() -> None:
    steps = WRITERS.replace("set_ctx: {own: 1}", "set_ctx: {mark: reader}")
    scenario = started(steps)
    scenario.done("writer")
    scenario.take("reader").answer()
    assert scenario.ctx == {"mark": "reader"}


def test_a_patch_stays_when_the_step_fails_later() -> None:
    scenario = started(WRITERS, BEST_EFFORT)
    run = scenario.take("reader")
    run.answer()
    run.fail()
    assert scenario.ctx == {"own": 1}


def test_a_command_carries_only_what_the_steps_templates_read() -> None:
    scenario = started(
        '- step: start\n  tool: {kind: noop, args: {a: "{{ workload.a }}", c: "{{ ctx.c }}"}}\n',
        "workload: {a: 1, b: 2}\n",
        ctx={"c": 3, "d": 4},
    )
    command = scenario.take("start").command
    assert (command.workload, command.ctx, command.steps) == ({"a": 1}, {"c": 3}, {})
