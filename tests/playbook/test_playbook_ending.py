"""Compensations and ``finally``: what ``check`` accepts, refuses and warns of (LANGUAGE §9)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, workflow

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.drawing import graph_of
from noetl_testkit.scenario.scenario import installed_kinds

FINALLY = "executor: { spec: { policy: { finally: last } } }\n"
UNDOABLE = "spec: { policy: { compensation: { tool: { kind: noop } } } }"


def steps(*written: str) -> str:
    return "\n".join(f"- {{ {one} }}" for one in written)


def test_a_compensation_and_a_finally_are_accepted_without_a_word() -> None:
    last = 'step: last, tool: { kind: noop, args: { was: "{{ execution.status }}", why: "{{ execution.error }}" } }'
    text = workflow(steps(f"step: start, tool: {{ kind: noop }}, {UNDOABLE}", last), FINALLY)
    assert codes(text) == []
    plan = checked(text).require_plan()
    assert (plan.finally_step, dict(plan.undoes)) == ("last", {"start": True})
    assert plan.steps["last"].deadline_s == 600
    assert [*plan.steps] == ["start", "last"] and plan.steps["start__compensation"].tasks


START = "step: start, tool: { kind: noop }"
REFUSED = [
    ((START,), "unknown_step"),
    ((f"{START}, next: {{ arcs: [ {{ step: last }} ] }}", "step: last, tool: { kind: noop }"), "conflicting_keys"),
    ((START, "step: last, tool: { kind: noop }, next: { arcs: [ { step: start } ] }"), "no_effect"),
    ((START, f"step: last, tool: {{ kind: noop }}, {UNDOABLE}"), "no_effect"),
    ((START, "step: last, tool: { kind: noop }, spec: { join: all }"), "no_effect"),
    (("step: last, tool: { kind: noop }",), "conflicting_keys"),
    ((START, "step: last, next: { arcs: [] }"), "missing_key"),
]


@pytest.mark.parametrize(("written", "code"), REFUSED)
def test_nothing_leads_to_the_step_of_finally_and_it_leads_nowhere(written: tuple[str, ...], code: str) -> None:
    assert code in codes(workflow(steps(*written), FINALLY))


@pytest.mark.parametrize(
    ("policy", "code"),
    [("on: [done]", "invalid_value"), ("on: failed", "wrong_type"), ("timeout_s: 0", "invalid_value")],
)
def test_a_mistake_in_compensations_or_their_time_is_refused(policy: str, code: str) -> None:
    root = f"executor: {{ spec: {{ policy: {{ compensation: {{ {policy} }} }} }} }}\n"
    assert codes(workflow(steps(f"{START}, {UNDOABLE}"), root)) == [code]


def test_a_compensation_without_anything_to_undo_has_no_effect() -> None:
    assert codes(workflow("- step: start\n  next: { arcs: [] }\n  " + UNDOABLE)) == ["no_effect"]
    assert codes(workflow(steps(START), "executor: { spec: { policy: { compensation: { on: [failed] } } } }\n")) == [
        "no_effect"
    ]


def test_the_end_can_be_read_in_the_step_of_finally_alone() -> None:
    assert codes(workflow(steps('step: start, tool: { kind: noop, args: { a: "{{ execution.status }}" } }'))) != []
    attempts = "{ do: retry, attempts: \"{{ 2 if execution.status == 'failed' else 1 }}\" }"
    rules = (
        f"spec: {{ policy: {{ rules: [ {{ when: \"{{{{ outcome.status == 'error' }}}}\", then: {attempts} }} ] }} }}"
    )
    bounded = f"step: last, tool: {{ kind: noop, {rules} }}"
    assert codes(workflow(steps(START, bounded), FINALLY)) == []
    last = 'step: last, tool: { kind: noop, args: { a: "{{ execution.state }}" } }'
    assert codes(workflow(steps(START, last), FINALLY)) == ["unknown_name"]


BRANCHES = """
- step: start
  next: {{ spec: {{ mode: inclusive }}, arcs: [ {{ step: left }}, {{ step: right }} ] }}
- {{ step: left, tool: {{ kind: noop }} }}
- step: right
  tool: {{ kind: noop }}
  spec: {{ policy: {{ compensation: {{ tool: {{ kind: noop, args: {{ a: "{{{{ {read} }}}}" }} }} }} }} }}
"""


@pytest.mark.parametrize(
    ("read", "warned"),
    [("left", ["absent_result"]), ("left | default(none)", []), ("right", []), ("steps.left.a", ["absent_result"])],
)
def test_a_compensation_that_reads_what_may_not_be_there_is_warned_of(read: str, warned: list[str]) -> None:
    assert codes(workflow(BRANCHES.format(read=read))) == warned


@pytest.mark.parametrize(
    ("tool", "warned"),
    [
        ("kind: python, code: 'print(1)'", ["not_idempotent"]),
        ("kind: python, code: 'print(idempotency_key)'", []),
        ("kind: http, method: POST, url: 'http://localhost'", []),
    ],
)
def test_a_compensation_that_may_have_its_effect_twice_is_warned_of(tool: str, warned: list[str]) -> None:
    undone = f"spec: {{ policy: {{ compensation: {{ tool: {{ {tool} }} }} }} }}"
    assert codes(workflow(steps(f"{START}, {undone}"))) == warned


def test_a_function_has_its_key_with_its_context() -> None:
    undone = "spec: { policy: { compensation: { tool: { kind: python, function: 'shop.orders:refund' } } } }"
    found = check(workflow(steps(f"{START}, {undone}")), installed_kinds())
    assert "not_idempotent" not in [one.code for one in found.diagnostics]


def test_a_drawing_says_what_undoes_a_step_and_what_runs_at_every_end() -> None:
    text = workflow(steps(f"{START}, {UNDOABLE}", "step: last, tool: { kind: noop }"), FINALLY)
    start, last = graph_of(checked(text).require_plan()).nodes
    assert start.lines == ["start", "noop", "undone by noop"]
    assert (last.lines, last.is_reached) == (["last", "noop", "finally"], True)
