"""LANGUAGE §6 ``set_shared``: how iterations change one key together, exactly once each, whatever their timing."""

from __future__ import annotations

import math
from itertools import permutations
from random import Random
from typing import Any

import pytest
from engine_scenarios import limits, started
from random_workers import RandomRun

from effort import times
from noetl_stream.model.events import CtxOverwrote, LoopDone, StepFailed, TaskProcessed
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import Scenario

PARALLEL = "mode: parallel"


def sharing(
    rule: str, spec: str = PARALLEL, items: str = "[3, 1, 2]", present: Any = None, root: str = "", more: str = ""
) -> Scenario:
    """A loop whose every iteration contributes to ``ctx.k``, then to ``after``."""
    return started(
        f"""
- step: start
  loop: {{in: {items}, iterator: n, spec: {{{spec}}}}}
  tool:
  - name: work
    kind: noop
    spec: {{policy: {{rules: [{{when: "{{{{ outcome.status == 'ok' }}}}", then: {{do: continue, set_shared: {rule}}}}}],
                     on_unmatched: fail}}}}
{more}
  next: {{arcs: [{{step: after, when: "{{{{ event.name in ['loop.done', 'step.failed'] }}}}"}}]}}
- step: after
  tool: {{kind: noop, args: {{k: "{{{{ ctx.k }}}}"}}}}
""",
        root,
        ctx={} if present is None else {"k": present},
    )


def one(op: str, value: str | None = "{{ outcome.result }}") -> str:
    shown = "" if value is None else f', value: "{value}"'
    return f"{{k: {{op: {op}{shown}}}}}"


CASES = [
    ("add", [3, 1, 2], None, 6),
    ("add", [0.5, 1, 2], 10, 13.5),
    ("min", [3, 1, 2], None, 1),
    ("min", [3, 1, 2], 0, 0),
    ("max", [3, 1, 2], None, 3),
    ("max", [3, 1, 2], 9, 9),
    ("append", [3, None, {"x": [1]}], None, [3, None, {"x": [1]}]),
    ("append", [3, 1, 2], [0], [0, 3, 1, 2]),
    ("extend", [[3], [], [1, 2]], None, [3, 1, 2]),
    ("extend", [[3], [], [1, 2]], [0], [0, 3, 1, 2]),
    ("union", [[3, 1], [1, 1.0], [{"a": 1}, {"a": 1}]], None, [3, 1, 1.0, {"a": 1}]),
    ("union", [[3, 1], [0], [2]], [0, 0, 1], [0, 1, 3, 2]),
    ("merge", [{"a": 1}, {"b": 2}, {"a": {"c": 3}}], None, {"a": {"c": 3}, "b": 2}),
    ("merge", [{"a": 1}, {}, {"b": 2}], {"z": 0, "a": 0}, {"z": 0, "a": 1, "b": 2}),
]


@pytest.mark.parametrize(("op", "values", "present", "expected"), CASES)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_each_operation_starts_from_the_present_value_in_index_order_for_any_order_of_answers(
    op: str, values: list[Any], present: Any, expected: Any, order: tuple[int, ...]
) -> None:
    scenario = sharing(one(op), present=present)
    for index in order:
        scenario.done("start", values[index], index=index)
    assert scenario.ctx["k"] == expected
    assert repr(scenario.ctx["k"]) == repr(expected), "1 and 1.0 are told apart"


@pytest.mark.parametrize(("present", "expected"), [(None, 3), (4, 7)])
def test_count_counts_iterations(present: Any, expected: int) -> None:
    scenario = sharing(one("count", None), present=present)
    for index in range(3):
        scenario.done("start", index=index)
    assert scenario.ctx["k"] == expected


def test_floats_add_up_to_the_same_sum_in_any_order_of_answers() -> None:
    values = [0.1, 1e16, -1e16, 0.3]
    totals = set()
    for order in permutations(range(4)):
        scenario = sharing(one("add"), items="[1, 2, 3, 4]")
        for index in order:
            scenario.done("start", values[index], index=index)
        totals.add(scenario.ctx["k"])
    assert totals == {0.1 + 1e16 - 1e16 + 0.3} and not math.isclose(totals.pop(), sum(sorted(values)))


def test_a_reducer_leaves_the_earlier_value_unchanged() -> None:
    present = [0]
    scenario = sharing(one("append"), present=present)
    before = scenario.ctx
    for index in range(3):
        scenario.done("start", index, index=index)
    assert before == {"k": [0]} and present == [0]


def test_a_contribution_is_invisible_inside_the_loop_and_counts_when_it_ends() -> None:
    scenario = sharing(one("append"), "mode: parallel, max_in_flight: 1")
    scenario.done("start", "a", index=0)
    assert scenario.ctx == {}
    assert scenario.take("start", index=1).command.ctx == {}
    scenario.done("start", "b", index=1)
    scenario.done("start", "c", index=2)
    assert scenario.ctx == {"k": ["a", "b", "c"]}
    assert scenario.take("after").inputs["args"] == {"k": ["a", "b", "c"]}


@pytest.mark.parametrize(
    "spec", ["mode: sequential", "mode: sequential, exec: distributed", "mode: parallel, exec: local"]
)
def test_every_placement_gives_the_same(spec: str) -> None:
    scenario = sharing(one("extend", "{{ [n, iter.index] }}"), spec)
    while "start" in dict(scenario.working):
        scenario.done("start", index=scenario.working[0][1])
    assert scenario.ctx == {"k": [3, 0, 1, 1, 2, 2]}


def test_held_tokens_and_arcs_see_contributions_at_the_loops_end() -> None:
    scenario = sharing(one("add"))
    scenario.done("start", 1, index=1)
    assert scenario.working[-1] == ("start", 2)
    for index in (0, 2):
        scenario.done("start", 1, index=index)
    assert scenario.ctx == {"k": 3}


# --- once -------------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_after_its_task_was_recorded_does_not_count_it_twice() -> None:
    scenario = sharing(one("append"), more="  - {name: more, kind: noop}")
    lost = scenario.take("start", index=0)
    lost.answer("once")
    again = scenario.take("start", index=0)
    scenario.claim(again)
    again.finish("end")
    for index in (1, 2):
        scenario.done("start", index, index=index)
    assert scenario.ctx == {"k": ["once", 1, 2]}


def test_each_attempt_and_each_jump_that_is_recorded_contributes() -> None:
    rule = '{k: {op: append, value: "{{ _attempt }}"}}'
    scenario = started(
        f"""
        - step: start
          loop: {{in: [1, 2], iterator: n, spec: {{mode: parallel}}}}
          tool:
            name: work
            kind: noop
            spec:
              policy:
                rules:
                - {{when: "{{{{ outcome.status == 'error' }}}}", then: {{do: retry, attempts: 2, set_shared: {rule}}}}}
                - {{else: {{then: {{do: continue, set_shared: {rule}}}}}}}
        """
    )
    run = scenario.take("start", index=1)
    run.answer(error=ErrorInfo("exception", "it broke"))
    run.answer()
    scenario.done("start", index=0)
    assert scenario.ctx == {"k": [1, 1, 2]}


@pytest.mark.parametrize("seed", range(times(30)))
def test_through_duplicates_crashes_and_takeovers_every_iteration_counts_once(seed: int) -> None:
    random = Random(seed)
    spec = random.choice([PARALLEL, "mode: parallel, exec: local", "mode: sequential"])
    scenario = Scenario(
        f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: test, path: tests/test}}
workflow:
- step: start
  loop:
    in: [[0, 1], [2], [], [3, 4]]
    iterator: row
    spec: {{{spec}, policy: {{failure: {{mode: best_effort}}}}}}
    loop: {{in: "{{{{ row }}}}", iterator: n, spec: {{{spec}, policy: {{failure: {{mode: best_effort}}}}}}}}
  tool:
  - name: work
    kind: noop
    args: {{n: "{{{{ n }}}}"}}
    spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_shared: {{
        all: {{op: append, value: "{{{{ n }}}}"}}, times: {{op: count}}}}}}}}}}]}}}}
  - {{name: more, kind: noop}}
"""
    )
    RandomRun(scenario, random).run()
    processed = [fact for fact in scenario.facts(TaskProcessed) if fact.task == "work"]
    assert scenario.ctx == {"all": [0, 1, 2, 3, 4], "times": 5}
    assert len(processed) == 5


# --- failure ----------------------------------------------------------------------------------------------------------


def test_a_failed_loop_keeps_what_was_recorded() -> None:
    scenario = sharing(one("append"))
    scenario.done("start", "kept", index=2)
    scenario.failed("start", index=0)
    assert scenario.facts(StepFailed) and scenario.ctx == {"k": ["kept"]}
    assert scenario.take("after").inputs["args"] == {"k": ["kept"]}


def test_under_best_effort_failed_iterations_contribute_nothing() -> None:
    scenario = sharing(one("append"), "mode: parallel, policy: {failure: {mode: best_effort}}")
    scenario.done("start", "last", index=2)
    scenario.failed("start", index=1)
    scenario.done("start", "first", index=0)
    assert scenario.facts(LoopDone)[0].failed == 1
    assert scenario.ctx == {"k": ["first", "last"]}


@pytest.mark.parametrize(
    ("op", "value", "takes"),
    [
        ("add", "text", "a number"),
        ("add", True, "a number"),
        ("min", None, "a number"),
        ("extend", 1, "a list"),
        ("union", {"a": 1}, "a list"),
        ("merge", [1], "a mapping"),
    ],
)
def test_a_value_of_the_wrong_type_fails_its_task(op: str, value: Any, takes: str) -> None:
    scenario = sharing(one(op))
    scenario.done("start", value, index=1)
    (processed,) = scenario.facts(TaskProcessed)
    assert processed.do == "fail" and processed.error is not None and processed.set_shared == {}
    assert processed.error.kind == "expression_error" and f"{op} takes {takes}" in processed.error.message


@pytest.mark.parametrize(
    ("op", "value", "present"),
    [
        ("add", 1, "text"),
        ("append", 1, {}),
        ("union", [1], 3),
        ("merge", {}, [1]),
        ("count", None, True),
        ("max", 1, []),
    ],
)
def test_a_key_that_holds_what_the_operation_cannot_continue_from_fails_the_execution(
    op: str, value: Any, present: Any
) -> None:
    scenario = sharing(one(op, None if op == "count" else "{{ outcome.result }}"), present=present)
    for index in range(3):
        scenario.done("start", value, index=index)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "ctx.k is" in scenario.error.message and f"; {op} needs" in scenario.error.message
    assert scenario.ctx == {"k": present}


def test_more_contributions_than_the_limit_fail_the_execution_with_its_name() -> None:
    scenario = sharing(one("append"), root=limits(max_shared_bytes=100))
    scenario.done("start", "x" * 60, index=0)
    assert scenario.status == "running"
    scenario.done("start", "y" * 60, index=1)
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert "limits.max_shared_bytes is 100" in scenario.error.message


def test_a_ctx_that_becomes_too_large_by_it_fails_the_execution() -> None:
    scenario = sharing(one("append"), root=limits(max_ctx_bytes=100))
    for index in range(3):
        scenario.done("start", "x" * 40, index=index)
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert "limits.max_ctx_bytes is 100" in scenario.error.message


# --- outside loops ----------------------------------------------------------------------------------------------------

OUTSIDE = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
- step: a
  tool:
  - {name: one, kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_shared: SHARED}}}]}}}
  - {name: two, kind: noop, args: {seen: "{{ ctx.k }}"}}
- step: b
  tool:
  - {name: one, kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_shared: SHARED}}}]}}}
  - {name: two, kind: noop, args: {seen: "{{ ctx.k }}"}}
"""


def test_a_contribution_outside_loops_counts_at_once_for_everybody() -> None:
    scenario = started(OUTSIDE.replace("SHARED", '{k: {op: append, value: "{{ outcome.result }}"}}'))
    a, b = scenario.take("a"), scenario.take("b")
    a.answer("a")
    assert scenario.ctx == {"k": ["a"]}
    b.answer("b")
    assert scenario.ctx == {"k": ["a", "b"]}
    assert a.inputs["args"] == {"seen": ["a"]}, "a step run sees ctx as it was claimed, and what it did itself"
    assert b.inputs["args"] == {"seen": ["b"]}


def test_a_reducer_overwrites_nothing_unawares() -> None:
    scenario = started(OUTSIDE.replace("SHARED", "{k: {op: count}}"))
    for step in "ab":
        scenario.done(step)
    assert scenario.ctx == {"k": 2}
    assert scenario.facts(CtxOverwrote) == []


def test_a_key_that_changed_its_type_meanwhile_fails_the_execution() -> None:
    scenario = started(OUTSIDE.replace("SHARED", "{k: {op: count}}"))
    run = scenario.take("a")
    run.begin()
    scenario.patch(k="text")
    run.answer()
    assert scenario.execution.failing is not None and "ctx.k is text" in scenario.execution.failing.message


def test_a_step_run_still_sees_its_own_contributions_on_another_worker() -> None:
    scenario = started(OUTSIDE.replace("SHARED", '{k: {op: append, value: "{{ outcome.result }}"}}'))
    scenario.take("a").answer("a")
    scenario.take("b").answer("b")
    again = scenario.take("a")
    scenario.claim(again)
    assert again.inputs["args"] == {"seen": ["a"]}, "its own, and nothing of the others"
