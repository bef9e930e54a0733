"""Attributes of spans that a playbook names: what ``check`` accepts and refuses (LANGUAGE §9 *Tracing*)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, plan_of, workflow

from noetl_stream.playbook.compile.view import compiled_text

PLACES = ("executor", "step", "task")


def traced(place: str, attributes: str) -> str:
    """A playbook that names these attributes in one place."""
    policy = f"policy: {{ tracing: {{ attributes: {attributes} }} }}"
    root = f"executor: {{ spec: {{ {policy} }} }}\n" if place == "executor" else ""
    step = f"\n  spec: {{ {policy} }}" if place == "step" else ""
    task = f", spec: {{ {policy} }}" if place == "task" else ""
    return workflow(f"- step: start{step}\n  tool: {{ kind: noop{task} }}", f"workload: {{ n: 1 }}\n{root}")


@pytest.mark.parametrize("place", PLACES)
def test_executor_steps_and_tasks_may_name_attributes(place: str) -> None:
    text = traced(place, '{ shop.order: "{{ workload.n }}", shop.live: true, n: 3, gone: null }')
    assert codes(text) == []
    plan = plan_of(text)
    start = plan.steps["start"]
    found = {"executor": plan.tracing, "step": start.tracing, "task": start.tasks[0].tracing}
    assert [name for name, attributes in found.items() if attributes] == [place]
    assert plan.traces
    assert "shop.order" in compiled_text(plan)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ("[ a ]", "wrong_type"),
        ("{ a: [ 1 ] }", "wrong_type"),
        ("{ noetl.step: mine }", "reserved_name"),
        ("{ shop order: 1 }", "invalid_name"),
        ('{ a: "{{ nowhere }}" }', "unbound_name"),
        ('{ a: "{{ keychain.x }}" }', "namespace_not_here"),
        ("{ " + ", ".join(f"a{n}: 1" for n in range(33)) + " }", "limit_exceeded"),
    ],
)
def test_attributes_that_say_something_wrong_are_refused(place: str, attributes: str, code: str) -> None:
    assert codes(traced(place, attributes)) == [code]


def test_attributes_of_a_loop_stay_reserved() -> None:
    loop = "loop: { in: [1], iterator: i, spec: { policy: { tracing: { attributes: { a: 1 } } } } }"
    assert codes(workflow(f"- step: start\n  {loop}\n  tool: {{ kind: noop }}")) == ["reserved"]


def test_an_empty_tracing_leaves_the_plan_unchanged() -> None:
    assert checked(workflow("- step: start\n  spec: { policy: { tracing: {} } }\n  tool: { kind: noop }")).ok
