"""Sentences about the document that no other test shows: what stands where, and what is refused elsewhere."""

from __future__ import annotations

import pytest
from playbook_building import HEAD, checked, codes, found, pipeline, plan_of, playbook, start_of, task_of, workflow

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.plan import Timeouts

ONE = "workflow: [ { step: start, tool: { kind: noop } } ]\n"
ROOT = {key: f"{key}: {value}\n" for key, _, value in (line.partition(": ") for line in (HEAD + ONE).splitlines())}


def step(extra: str, tool: str = "{ kind: noop }") -> str:
    """A playbook of one step with these keys beside ``tool``."""
    return workflow(f"- step: start\n  {extra}\n  tool: {tool}")


@pytest.mark.parametrize("key", ["apiVersion", "kind", "metadata", "workflow"])
def test_each_obligatory_root_key_is_missed_by_name(key: str) -> None:
    text = "".join(line for name, line in ROOT.items() if name != key)
    [problem] = found(text, "missing_key")
    assert f"`{key}`" in problem.message


@pytest.mark.parametrize("key", ["name", "path"])
def test_metadata_needs_a_name_and_a_path(key: str) -> None:
    metadata = {"name": "name: a", "path": "path: b"}
    del metadata[key]
    text = HEAD.replace("name: test, path: tests/test", ", ".join(metadata.values())) + ONE
    [problem] = found(text, "missing_key")
    assert f"`{key}`" in problem.message


@pytest.mark.parametrize("section", ["executor", "workload", "metadata"])
def test_a_root_section_of_the_wrong_shape_is_refused(section: str) -> None:
    rest = "".join(line for name, line in ROOT.items() if name != section)
    assert "wrong_type" in codes(f"{rest}{section}: [1]\n")


@pytest.mark.parametrize("extra", ["desc: 7", "spec: [1]", "loop: [1]", "next: 7"])
def test_a_step_key_of_the_wrong_shape_is_refused(extra: str) -> None:
    assert codes(step(extra)) in (["wrong_type"], ["next_shape"])


@pytest.mark.parametrize(
    "text",
    [
        step("admit: { rules: [ { else: { then: { allow: true } } } ] }"),
        step("spec: { admit: { rules: [ { else: { then: { allow: true } } } ] } }"),
        step("next: { spec: { admit: { rules: [] } }, arcs: [] }"),
        pipeline("- { kind: noop, spec: { admit: { rules: [] } } }"),
        pipeline("- { kind: noop, spec: { policy: { admit: {}, rules: [ { else: { then: { do: fail } } } ] } } }"),
    ],
)
def test_admission_has_one_place(text: str) -> None:
    assert not checked(text).ok


def test_the_pool_is_default_unless_the_playbook_or_the_step_names_one() -> None:
    assert start_of(step("desc: a")).pool == "default"
    assert start_of(playbook("executor: { spec: { pool: main } }\n" + ONE)).pool == "main"
    assert start_of(step("spec: { pool: own }")).pool == "own"


SCOPES = ("defaults", "executor", "step", "loop", "task")


@pytest.mark.parametrize("innermost", SCOPES)
@pytest.mark.parametrize("as_number", [True, False])
def test_timeouts_are_laid_over_each_other_from_the_outside_in(innermost: str, as_number: bool) -> None:
    timeout = dict.fromkeys(SCOPES, "{}")
    for seconds, scope in enumerate(SCOPES[: SCOPES.index(innermost) + 1], start=1):
        timeout[scope] = str(seconds) if as_number else f"{{ total: {seconds}, connect: {seconds} }}"
    text = playbook(
        f"""
        executor: {{ spec: {{ timeout: {timeout["executor"]},
          policy: {{ defaults: {{ timeouts: {timeout["defaults"]} }} }} }} }}
        workflow:
          - step: start
            spec: {{ timeout: {timeout["step"]} }}
            loop: {{ in: [1], iterator: item, spec: {{ timeout: {timeout["loop"]} }} }}
            tool: {{ kind: noop, spec: {{ timeout: {timeout["task"]} }} }}
        """
    )
    seconds = float(SCOPES.index(innermost) + 1)
    assert task_of(text).timeouts == Timeouts(total=seconds, connect=None if as_number else seconds)


@pytest.mark.parametrize(
    "text",
    [
        playbook("executor: { spec: { mode: parallel } }\n" + ONE),
        playbook("executor: { spec: { max_in_flight: 2 } }\n" + ONE),
        playbook("executor: { spec: { join: all } }\n" + ONE),
        step("spec: { mode: parallel }"),
        step("spec: { max_in_flight: 2 }"),
        step("loop: { in: [1], iterator: item, spec: { pool: own } }"),
        step("loop: { in: [1], iterator: item, spec: { join: all } }"),
        pipeline("- { kind: noop, spec: { pool: own } }"),
        pipeline("- { kind: noop, spec: { join: all } }"),
        pipeline("- { kind: noop, spec: { mode: parallel } }"),
    ],
)
def test_knobs_of_one_scope_are_refused_in_any_other(text: str) -> None:
    assert codes(text) == ["unknown_key"]


def test_a_limit_of_another_name_is_refused_with_the_names_there_are() -> None:
    text = playbook("executor: { spec: { policy: { limits: { some_bytes_at_most: 1 } } } }\n" + ONE)
    [problem] = found(text, "unknown_key")
    assert problem.hint is not None and problem.hint.startswith("known limits: ")
    assert all(name in problem.hint for name in DEFAULT_LIMITS.__struct_fields__[:10])
    older = playbook("executor: { spec: { policy: { limits: { max_payload_bytes: 1 } } } }\n" + ONE)
    assert codes(older) == ["unknown_key"]


def test_free_mappings_take_any_key() -> None:
    words = "when: 1, vars: 2, set_ctx: 3, a-b: 4, loop: 5"
    metadata = f"{{ name: a, path: b, labels: {{ {words} }}, annotations: {{ {words}, deep: {{ {words} }} }} }}"
    inputs = f"params: {{ {words} }}, headers: {{ when: a, x-y: b }}, json: {{ {words}, deep: [ {{ {words} }} ] }}"
    text = f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {metadata}
workload: {{ {words}, steps: {{ {words} }} }}
workflow:
  - step: start
    tool:
      - {{ kind: noop, args: {{ {words} }} }}
      - {{ kind: http, url: a, {inputs} }}
"""
    assert codes(text) == []


def naming(name: str, what: str) -> str:
    """A playbook whose step, task or iterator has this name."""
    names = {"step": "start", "task": "work", "iterator": "item"} | {what: f'"{name}"'}
    return workflow(
        f"- step: {names['step']}\n  loop: {{ in: [1], iterator: {names['iterator']} }}\n"
        f"  tool: {{ name: {names['task']}, kind: noop }}"
    )


@pytest.mark.parametrize("what", ["step", "task", "iterator"])
@pytest.mark.parametrize("name", ["fetch-all", "2nd", "a.b", "größe", "a b", "{{ workload.name }}"])
def test_a_name_that_is_not_an_identifier_is_refused_and_never_rendered(name: str, what: str) -> None:
    assert codes(naming(name, what)) == ["invalid_name"]


NAMESPACES = "workload ctx vars iter args keychain execution_id steps results _prev _task _attempt outcome event"


@pytest.mark.parametrize("what", ["step", "task", "iterator"])
@pytest.mark.parametrize("name", NAMESPACES.split())
def test_the_name_of_a_namespace_is_refused(name: str, what: str) -> None:
    assert codes(naming(name, what)) == ["reserved_name"]


@pytest.mark.parametrize("kind", ["sink", "loop"])
def test_storing_and_looping_are_not_tool_kinds(kind: str) -> None:
    assert codes(pipeline(f"- {{ kind: {kind} }}")) == ["unknown_kind"]


def test_a_loop_stands_at_the_step_and_not_at_a_task() -> None:
    [problem] = found(pipeline("- { kind: noop, loop: { in: [1], iterator: item } }"), "legacy_syntax")
    assert problem.hint is not None and "on the step" in problem.hint


@pytest.mark.parametrize("then", ["{ do: jump, to: other }", "{ do: continue, step: other }", "{ do: other }"])
def test_a_jump_never_leaves_its_pipeline(then: str) -> None:
    rule = f"{{ else: {{ then: {then} }} }}"
    text = workflow(
        f"""
        - step: start
          tool: {{ name: work, kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}
          next: {{ arcs: [ {{ step: other }} ] }}
        - step: other
          tool: {{ kind: noop }}
        """
    )
    assert not checked(text).ok


CONTROL = ["do: retry", "attempts: 3", "set_ctx: { a: 1 }", "rules: [ { else: { then: { do: fail } } } ]"]


@pytest.mark.parametrize("words", CONTROL)
@pytest.mark.parametrize(
    "place",
    [
        "executor: {{ spec: {{ policy: {{ {} }} }} }}",
        "spec: {{ policy: {{ {} }} }}",
        "loop: {{ in: [1], iterator: item, spec: {{ policy: {{ {} }} }} }}",
        "next: {{ spec: {{ policy: {{ {} }} }}, arcs: [] }}",
        "next: {{ arcs: [ {{ step: start, {} }} ] }}",
        "spec: {{ policy: {{ admit: {{ rules: [ {{ else: {{ then: {{ allow: true, {} }} }} }} ] }} }} }}",
    ],
)
def test_control_actions_outside_a_tasks_policy_are_refused(place: str, words: str) -> None:
    written = place.format(words)
    assert not checked(playbook(f"{written}\n{ONE}") if written.startswith("executor") else step(written)).ok


@pytest.mark.parametrize("word", ["expr", "if", "unless", "condition", "case"])
def test_synonyms_of_when_are_refused(word: str) -> None:
    guard = f'{word}: "{{{{ true }}}}"'
    assert not checked(pipeline(f"- {{ kind: noop, {guard} }}")).ok
    assert not checked(step(f"next: {{ arcs: [ {{ step: start, {guard} }} ] }}")).ok
    rule = f"{{ {guard}, then: {{ do: fail }} }}"
    assert not checked(pipeline(f"- {{ kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}")).ok


def test_each_shape_of_tool_is_the_same_list_of_named_tasks() -> None:
    single, listed = "{ kind: noop, args: { a: 1 } }", "[ { name: start_task, kind: noop, args: { a: 1 } } ]"
    for shape in (single, listed, single.replace("{ kind", "{ name: start_task, kind")):
        plan = plan_of(workflow(f"- step: start\n  tool: {shape}"))
        assert [(task.name, task.kind, task.inputs.source) for task in plan.steps["start"].tasks] == [
            ("start_task", "noop", {"args": {"a": 1}})
        ]


def test_iter_parent_cannot_be_written() -> None:
    rule = "{ else: { then: { do: continue, set_iter: { parent: 1 } } } }"
    tool = f"{{ kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}"
    assert codes(step("loop: { in: [1], iterator: item }", tool)) == ["read_only"]
