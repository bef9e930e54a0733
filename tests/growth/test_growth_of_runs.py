"""Ten times the values, items, tokens, patches or secrets is about ten times the work of what takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from counted import Act, Door, assert_near_linear
from grown_documents import GROWN, document, step

from effort import in_gate
from noetl_stream.cli.base.output import print_table
from noetl_stream.engine.advance import advance
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.operations.differences import playbook_diff
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.compile.view import compiled_view, explain_names
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.drawing import graph_of, mermaid
from noetl_stream.playbook.editing.changes import rename
from noetl_stream.playbook.editing.completion import Language, SchemaWords, complete
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.outline import outline
from noetl_stream.playbook.editing.tree import read_tree
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.playbook.svg import lay_out
from noetl_stream.playbook.upgrade.upgrade import upgrade
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.template import Scope, compile_template, render
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_testkit.scenario.scenario import Scenario

KINDS = kinds_of(load_tools())
PARTS: Final = 15
PARTS_AT_ONCE: Final = 25
"""As each of them takes much work by itself, fewer would not show how it grows."""

DOORS: Final[dict[str, Door]] = {}


def door(make: Door) -> Door:
    DOORS[make.__name__] = make
    return make


def filtered(expression: str) -> Door:
    template = compile_template(
        f"{{{{ {expression} }}}}", namespaces=frozenset(["workload"]), bindings={"rows": ("workload", "rows")}
    )

    def rendering(count: int) -> Act:
        rows = [{"k": n, "t": f"text {n}"} for n in range(count)]
        return lambda: render(template, Scope({"workload": {"rows": rows, "text": "a,b " * count}}))

    return rendering


EXPRESSIONS: Final = [
    "rows",
    "rows | map(attribute='k') | list",
    "rows | selectattr('k', 'gt', 3) | list",
    "rows | rejectattr('k', 'in', [1, 2]) | list",
    "rows | map(attribute='t') | unique | list",
    "rows | groupby('k') | list",
    "rows | sort(attribute='k', reverse=true)",
    "rows | map(attribute='t') | join(', ')",
    "rows | sum(attribute='k')",
    "rows | batch(3) | list",
    "rows | tojson",
    "rows + rows",
    "rows | map(attribute='k') | max",
    "workload.text | replace('a', 'b') | upper",
    "workload.text.split(',') | length",
    "workload.text | wordcount",
]
DOORS |= {expression: filtered(expression) for expression in EXPRESSIONS}


@door
def items_of_a_loop(count: int) -> Act:
    loop = {"in": "{{ range(workload.count) | list }}", "iterator": "n", "spec": {"exec": "distributed"}}
    scenario = Scenario(document(workload={"count": count}, workflow=[step("start", loop=loop)]))

    def run() -> None:
        scenario.start()
        for index in range(count):
            scenario.done("start", index=index)
        assert scenario.status == "completed"

    return run


@door
def arcs_at_run_time(count: int) -> Act:
    arcs = [{"step": "end", "when": f"{{{{ event.result.v == {n} }}}}"} for n in range(count)]
    scenario = Scenario(document(workflow=[step("start", *arcs, mode="exclusive"), step("end")]))

    def run() -> None:
        scenario.start()
        scenario.done("start", {"v": count - 1})
        scenario.done("end")

    return run


@door
def patches(count: int) -> Act:
    scenario = Scenario(document(workflow=[step("start")]))

    def run() -> None:
        scenario.start()
        for n in range(count):
            scenario.patch(key=n)

    return run


def steps_in_turn(**arc: str) -> Door:
    def running(count: int) -> Act:
        steps = [step(f"s{n}", {"step": f"s{n + 1}"} | arc) for n in range(count)]
        scenario = Scenario(document(workflow=[*steps, step(f"s{count}")]))

        def run() -> None:
            scenario.start()
            for n in range(count + 1):
                scenario.done(f"s{n}", {"v": 1})
            assert scenario.status == "completed"

        return run

    return running


DOORS["steps one after the other"] = steps_in_turn()
DOORS["steps one after the other by what the first said"] = steps_in_turn(when="{{ steps.s0.v == 1 }}")


def taken_again(scenario: Scenario) -> Act:
    """The inputs of a scenario, without its checks, which look at its whole state."""
    assert scenario.status == "completed"

    def run() -> None:
        state: Execution | None = None
        for fact in scenario.inputs:
            state = advance(scenario.plan, state, fact, scenario.execution_id).state

    return run


def grant(scenario: Scenario) -> None:
    """Gives everything that waits for a slot of a limit one."""
    waiting = {holder: slot for holder, slot in scenario.execution.slots.items() if not slot.granted}
    for holder, slot in waiting.items():
        granted = events.SlotGranted(slot.key, slot.step_run_id, slot_id=holder if slot.task else "")
        scenario.feed(RecordedFact(granted))


def empty_loops(items: str, **spec: Any) -> Door:
    """Steps one after the other whose loops are empty, after one whose result they read."""

    def running(count: int) -> Act:
        loop = {"in": items, "iterator": "x"}
        steps = [step(f"s{n}", f"s{n + 1}", loop=loop, spec=spec) for n in range(1, count)]
        scenario = Scenario(document(workflow=[step("s0", "s1"), *steps, step(f"s{count}")]))
        scenario.start()
        scenario.done("s0", {"none": [], "key": "k"})
        while scenario.execution.slots:
            grant(scenario)
        scenario.done(f"s{count}")
        return taken_again(scenario)

    return running


LIMITED: Final = {"policy": {"limit": {"key": "{{ steps.s0.key }}", "concurrency": 1}}}
DOORS |= {
    "loops over what the first said": empty_loops("{{ steps.s0.none }}"),
    "limits by what the first said": empty_loops("{{ [] }}", **LIMITED),
}


def go_on(scenario: Scenario) -> None:
    """Runs what can run, gives slots to what waits for one, ends the executions that were called."""
    for name, index in scenario.working:
        scenario.done(name, index=index)
    grant(scenario)
    while scenario.execution.children:
        scenario.child_ended()


def branches(**keys: Any) -> Door:
    """Branches that are at the same place at once."""

    def running(count: int) -> Act:
        names = [f"s{n}" for n in range(count)]
        steps = [step("start", *names, mode="inclusive"), *(step(name, **keys) for name in names)]
        scenario = Scenario(document(workflow=steps))
        scenario.start()
        while scenario.status == "running":
            go_on(scenario)
        return taken_again(scenario)

    return running


def iterations(**keys: Any) -> Door:
    """Iterations that are at the same place at once."""

    def running(count: int) -> Act:
        spec = {"exec": "distributed", "mode": "parallel", "max_in_flight": count}
        loop = {"in": "{{ range(workload.count) | list }}", "iterator": "n", "spec": spec}
        scenario = Scenario(document(workload={"count": count}, workflow=[step("start", loop=loop, **keys)]))
        scenario.start()
        while scenario.status == "running":
            go_on(scenario)
        return taken_again(scenario)

    return running


def turns(**arc: str) -> Door:
    """Tokens along arcs with a partition, which come to a step at once."""

    def running(count: int) -> Act:
        arcs = [{"step": "end", "args": {"n": n}, "spec": {"partition": f"{n}"} | arc} for n in range(count)]
        scenario = Scenario(document(workflow=[step("start", *arcs, mode="inclusive"), step("end")]))
        scenario.start()
        while scenario.status == "running":
            for name, index in scenario.working:
                scenario.done(name, index=index)
        return taken_again(scenario)

    return running


ONE_KEY: Final = {"policy": {"limit": {"key": "k", "concurrency": 9}}}
AT_ONCE: Final[dict[str, Door]] = {
    "slots of branches": branches(spec=ONE_KEY),
    "slots of tasks": branches(tool={"kind": "noop", "spec": ONE_KEY}),
    "slots of iterations": iterations(tool={"kind": "noop", "spec": ONE_KEY}),
    "turns in one partition": turns(partition="all"),
    "turns in many partitions": turns(),
    "calls of iterations": iterations(tool={"kind": "playbook", "path": "a/b"}),
}


def joined(join: str, **spec: Any) -> Door:
    """Branches that join."""

    def running(count: int) -> Act:
        names = [f"s{n}" for n in range(count)]
        steps = [*(step(name, "end", spec=spec) for name in names), step("end", spec={"join": join})]
        scenario = Scenario(document(workflow=[step("start", *names, mode="inclusive"), *steps]))
        scenario.start()
        scenario.done("start")
        scenario.patch(open=True)
        for name in [*names, "end"]:
            scenario.done(name)
        return taken_again(scenario)

    return running


WHEN_OPEN: Final = {"rules": [{"when": "{{ ctx.open | default(false) }}", "then": {"allow": True}}]}
DOORS |= {
    "joins": joined("all"),
    "joins of the first": joined("any"),
    "branches with a timeout": joined("all", policy={"lifecycle": {"timeout_s": 60}}),
    "branches that wait": joined("all", policy={"admit": WHEN_OPEN | {"wait": {"timeout_s": 60}}}),
}


@door
def values_of_json(count: int) -> Act:
    value = [{"k": n, "t": [n, str(n)]} for n in range(count)]
    return lambda: codec.decode_json(codec.encode(value))


@door
def rows_of_a_table(count: int) -> Act:
    return lambda: print_table(["a", "b"], [[n, f"text {n}"] for n in range(count)])


@door
def text_with_secrets(count: int) -> Act:
    redactor = Redactor()
    redactor.learn({"a": "correct-horse", "b": "battery/staple"})
    text = "some text, correct-horse, more\n" * count
    return lambda: redactor.text(text)


def of_texts(act: Callable[[str], object]) -> dict[str, Door]:
    """What is done with a playbook, by what grows in it."""

    def made(name: str) -> Door:
        def acting(count: int) -> Act:
            text = GROWN[name](count)
            return lambda: act(text)

        return acting

    names = ["steps_in_a_row", "tasks_that_read_tasks", "arcs_to_one_step"]
    return {f"{act.__name__} {name}": made(name) for name in names}


def explain(text: str) -> None:
    source, plan = read_source(text, Problems("")), check(text, KINDS).require_plan()
    assert source is not None
    list(explain_names(plan, source.root))
    compiled_view(plan)


def draw(text: str) -> None:
    graph = graph_of(check(text, KINDS).require_plan())
    lay_out(graph)
    mermaid(graph)


def upgrading(text: str) -> None:
    upgrade(text, KINDS, file="", limits=DEFAULT_LIMITS)


LANGUAGE: Final = Language(SchemaWords(playbook_schema(KINDS)), {})


def edit(text: str) -> None:
    spread = json.dumps(json.loads(text), indent=1)
    tree = read_tree(spread)
    names = TextNames(spread, tree)
    outline(tree)
    place = spread.rindex('"step": "') + 10
    complete(spread, place, LANGUAGE)
    rename(spread, names, place, "renamed")


def compare(text: str) -> None:
    playbook_diff(None, None, json.dumps(json.loads(text), indent=1))


DOORS |= of_texts(explain) | of_texts(draw) | of_texts(upgrading) | of_texts(edit) | of_texts(compare)


@pytest.mark.parametrize("name", in_gate(DOORS, 3))
def test_a_run_grows_with_what_it_is_given(name: str) -> None:
    assert_near_linear(DOORS[name], PARTS)


@pytest.mark.parametrize("name", in_gate(AT_ONCE, 3))
def test_a_run_grows_with_what_waits_at_once(name: str) -> None:
    assert_near_linear(AT_ONCE[name], PARTS_AT_ONCE)
