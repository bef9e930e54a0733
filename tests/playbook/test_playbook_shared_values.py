"""`set_shared`, how it combines with `set_ctx`, and `set_label` (LANGUAGE §5, §6)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, found, plan_of, task_of, workflow

PARALLEL = "loop: { in: [1], iterator: item, spec: { mode: parallel } }"


def step(then: str, name: str = "start", loop: str = "desc: no loop") -> str:
    rule = f"{{ else: {{ then: {{ do: continue, {then} }} }} }}"
    return f"- step: {name}\n  {loop}\n  tool: {{ kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}\n"


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("add", "1.5"),
        ("min", "-3"),
        ("max", '"{{ _prev }}"'),
        ("append", "null"),
        ("append", "{ a: 1 }"),
        ("extend", "[1, 2]"),
        ("union", '"{{ item.tags }}"'),
        ("merge", '{ a: "{{ item }}" }'),
    ],
)
@pytest.mark.parametrize("loop", [PARALLEL, "desc: no loop", "loop: { in: [1], iterator: item }"])
def test_an_operation_takes_a_value_in_any_step(op: str, value: str, loop: str) -> None:
    text = workflow(
        step(f"set_shared: {{ total: {{ op: {op}, value: {value} }} }}", loop=loop), "workload: { item: 1 }\n"
    )
    assert [item.code for item in checked(text).diagnostics if item.severity == "error"] == []
    policy = task_of(text).policy
    assert policy is not None
    shared = policy.rules[0].set_shared["total"]
    assert shared.op == op and shared.value is not None


def test_count_takes_no_value() -> None:
    policy = task_of(workflow(step("set_shared: { seen: { op: count } }"))).policy
    assert policy is not None
    assert (policy.rules[0].set_shared["seen"].op, policy.rules[0].set_shared["seen"].value) == ("count", None)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[total]", "`set_shared` must be a mapping, not a list"),
        ("{ total: 1 }", "`total` of `set_shared` must be a mapping with `op`, not a number"),
        ("{ total: { value: 1 } }", "a key of `set_shared` needs `op`"),
        ("{ total: { op: add } }", "`op: add` needs a `value`"),
        ("{ total: { op: count, value: 1 } }", "`op: count` takes no `value`"),
        ("{ total: { op: add, value: [1] } }", "`op: add` takes a number, not a list"),
        ("{ total: { op: extend, value: 1 } }", "`op: extend` takes a list, not a number"),
        ("{ total: { op: merge, value: [] } }", "`op: merge` takes a mapping, not a list"),
        ("{ total: { op: max, value: true } }", "`op: max` takes a number, not a boolean"),
        ("{ 'a b': { op: count } }", "a key of `set_shared` must match [A-Za-z_][A-Za-z0-9_]*, not `a b`"),
    ],
)
def test_each_invalid_form_has_its_own_message(written: str, message: str) -> None:
    [problem] = checked(workflow(step(f"set_shared: {written}"))).diagnostics
    assert problem.message == message


def test_shared_keys_are_names_of_ctx() -> None:
    text = step("set_shared: { total: { op: count } }", loop=PARALLEL)
    text += "  next: { arcs: [ { step: show, when: '{{ total > 1 }}' } ] }\n"
    text += '- step: show\n  tool: { kind: noop, args: { a: "{{ total }}" } }\n'
    assert plan_of(workflow(text)).steps["show"].tasks[0].inputs.reads == {("ctx", "total")}


def test_a_command_carries_the_reads_of_shared_values() -> None:
    text = workflow(step('set_shared: { total: { op: add, value: "{{ ctx.a + workload.b }}" } }'))
    reads = plan_of(text).steps["start"].reads
    assert (reads.ctx, reads.workload) == (frozenset(["a"]), frozenset(["b"]))


@pytest.mark.parametrize("together", [True, False])
def test_a_key_is_written_one_way_in_the_whole_playbook(together: bool) -> None:
    shared = "set_shared: { total: { op: count } }"
    one = (
        step(f"{shared}, set_ctx: {{ total: 0 }}") if together else step(shared) + step("set_ctx: { total: 0 }", "end")
    )
    [problem] = found(workflow(one), "conflicting_keys")
    assert "`set_shared` here and with `set_ctx` on line" in problem.message


def test_a_key_may_be_shared_by_several_steps_and_operations() -> None:
    steps = step("set_shared: { total: { op: count } }") + step("set_shared: { total: { op: add, value: 2 } }", "end")
    assert [code for code in codes(workflow(steps)) if code != "unreachable_step"] == []


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ('acme/order: "{{ outcome.result }}", tier: 1, gone: null', []),
        ("'a=b': 1", ["the name of label `a=b` must have 1 to 64 characters, and no `=`"]),
        ("rows: [1]", ["label `rows` must be a text, a number, a boolean or null"]),
    ],
)
def test_a_rule_may_set_what_may_be_a_label(labels: str, says: list[str]) -> None:
    text = workflow(step(f"set_label: {{ {labels} }}"))
    assert [one.message for one in checked(text).diagnostics if one.severity == "error"] == says
