"""Joins: their values, which of them each step can reach, and the args they merge (LANGUAGE §7)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, found, plan_of, start_of, workflow


def graph(*lines: str) -> str:
    """Steps as ``name [join=…] > target target``; without ``>`` a step has a tool."""
    steps = []
    for line in lines:
        head, _, targets = line.partition(">")
        name, _, join = head.strip().partition(" join=")
        spec = f", spec: {{ join: {join} }}" if join else ""
        arcs = ", ".join(f"{{ step: {target} }}" for target in targets.split())
        rest = f", next: {{ arcs: [ {arcs} ] }}" if arcs else ", tool: { kind: noop }"
        steps.append(f"- {{ step: {name}{spec}{rest} }}")
    return workflow("\n".join(steps))


@pytest.mark.parametrize(("written", "tokens"), [("all", "all"), ("any", "any"), ("1", 1), ("3", 3), ("'all'", "all")])
def test_a_step_joins_all_any_or_a_number(written: str, tokens: object) -> None:
    text = f"- step: start\n  spec: {{ join: {written} }}\n  tool: {{ kind: noop }}"
    assert start_of(workflow(text)).join == tokens


def test_a_step_joins_nothing_by_default() -> None:
    plan = plan_of(graph("start > end", "end"))
    assert plan.steps["end"].join is None
    assert plan.reaches == {}


def test_each_step_knows_the_joins_it_can_reach() -> None:
    plan = plan_of(
        graph(
            "start > left right",
            "left > both",
            "right > lost both",
            "lost",
            "both join=all > last",
            "last join=2 > done",
            "done",
        )
    )
    assert {name: set(joins) for name, joins in plan.reaches.items()} == {
        "start": {"both", "last"},
        "left": {"both", "last"},
        "right": {"both", "last"},
        "lost": set(),
        "both": {"last"},
        "last": set(),
        "done": set(),
    }


def test_a_join_reaches_itself_only_around_a_cycle() -> None:
    plan = plan_of(graph("start > both", "both join=any > again end", "again > both", "end"))
    assert plan.reaches["both"] == {"both"}
    assert plan.reaches["again"] == {"both"}
    assert plan.reaches["end"] == frozenset()


def test_an_arc_to_a_join_may_not_name_what_the_join_adds() -> None:
    text = """
    - step: start
      next: { arcs: [ { step: both, args: { by_step: 1, rows: 2 } }, { step: other, args: { by_step: 1 } } ] }
    - step: both
      spec: { join: all }
      tool: { kind: noop }
    - step: other
      tool: { kind: noop }
    """
    [problem] = checked(workflow(text)).diagnostics
    assert (problem.code, problem.pointer) == ("reserved_name", "/workflow/0/next/arcs/0/args/by_step")


def test_a_joining_step_reads_what_the_join_adds_by_its_bare_name() -> None:
    text = """
    - step: start
      next: { arcs: [ { step: both } ] }
    - step: both
      %s
      tool: { kind: noop, args: { a: "{{ by_step.start.x }}", b: "{{ args.arrivals }}", c: "{{ arrivals | length }}" } }
    """
    assert codes(workflow(text % "spec: { join: all }")) == []
    assert codes(workflow(text % "desc: joins nothing")) == ["unbound_name", "unbound_name"]


WRITE = "spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { total: 1 } } } } ] } }"


def concurrent_writers(*lines: str) -> list[tuple[str, str]]:
    """The pairs of steps reported as concurrent, for steps as in :func:`graph`; those with ``!`` set a key.

    A step whose arcs are written with ``>>`` is inclusive.
    """
    steps = []
    for line in lines:
        head, _, targets = line.replace(">>", ">").partition(">")
        name, _, join = head.strip().partition(" join=")
        arcs = ", ".join(f"{{ step: {target}, when: true }}" for target in targets.split())
        steps.append(f"- step: {name.strip('! ')}")
        if join:
            steps.append(f"  spec: {{ join: {join} }}")
        steps.append(f"  tool: {{ kind: noop, {WRITE if '!' in name else 'args: {}'} }}")
        steps.append(
            f"  next: {{ spec: {{ mode: {'inclusive' if '>>' in line else 'exclusive'} }}, arcs: [ {arcs} ] }}"
        )
    warnings = found(workflow("\n".join(steps)), "competing_writes")
    return sorted((warning.message.split("`")[1], warning.message.split("`")[3]) for warning in warnings)


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (["start >> a b", "a! >", "b! >"], [("a", "b")]),
        (["start > a b", "a! >", "b! >"], []),
        (["start! > a", "a! >"], []),
        (["start >> a b", "a! > c", "b >", "c! >"], []),
        (["start >> a b", "a > c", "b! >", "c! >"], [("b", "c")]),
        (["start >> a b", "a! > j", "b > j", "j! join=all >"], []),
        (["start >> a b", "a! > j", "b > j", "j join=all > c", "c! >"], []),
        (["start >> a b", "a! > j", "b > j", "j! join=any >"], [("a", "j")]),
        (["start >> a b", "a > j", "b! > j", "j! join=2 >"], []),
        (["start >> a b c", "a > j", "b! > j", "c > j", "j! join=2 >"], [("b", "j")]),
        (["start >> a b c", "a > j", "b > j", "c! >", "j join=all > d", "d! >"], [("c", "d")]),
        (["start >> j b", "b! > j", "j! join=all >"], []),
        (["start >> a b c d", "a > j", "b > j", "c > k", "d > k", "j! join=all >", "k! join=all >"], [("j", "k")]),
        (["start >> a b", "a > j", "b > k", "j! join=all > k", "k! join=all >"], []),
        (["start >> a b", "a > start", "b! >", "start2! >"], []),
    ],
)
def test_steps_on_two_branches_of_a_fork_run_together_up_to_a_join_of_all(
    lines: list[str], pairs: list[tuple[str, str]]
) -> None:
    assert concurrent_writers(*lines) == pairs


def test_each_step_is_warned_about_once_for_a_key() -> None:
    lines = ["start >> a b c d", "a! >", "b! >", "c! >", "d! >"]
    assert concurrent_writers(*lines) == [("a", "b"), ("a", "c"), ("a", "d")]


def test_steps_that_share_a_key_do_not_compete() -> None:
    share = WRITE.replace("set_ctx: { total: 1 }", "set_shared: { total: { op: add, value: 1 } }")
    steps = "".join(f"- {{ step: {name}, tool: {{ kind: noop, {share} }} }}\n" for name in ("a", "b"))
    fork = "- step: start\n  next: { spec: { mode: inclusive }, arcs: [ { step: a }, { step: b } ] }\n"
    assert codes(workflow(fork + steps)) == []
