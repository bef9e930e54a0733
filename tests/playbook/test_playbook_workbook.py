"""LANGUAGE §12: the workbook's reusable tasks, run by ``kind: workbook``."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from playbook_building import checked, codes, found, pipeline, task_of, workflow

from noetl_stream.playbook.plan import TaskPlan, Timeouts

GET = """
workbook:
  tasks:
    get:
      kind: http
      endpoint: "{{ workload.base }}"
      params: { units: metric, page: 1 }
      spec:
        timeout: 10
        follow_redirects: false
        policy: { rules: [ { else: { then: { do: fail } } } ] }
"""
CODE = """
workbook:
  - name: shape
    tool: { kind: python, code: return args, args: { a: 1, deep: { x: 1, y: 2 }, list: [ 1, 2 ] } }
"""


def call(written: str, root: str = GET) -> TaskPlan:
    return task_of(pipeline(f"- {{ kind: workbook, {written} }}", dedent(root)))


def inputs(task: TaskPlan) -> Any:
    return {**task.inputs.source, **task.verbatim}  # type: ignore[dict-item]


def test_a_call_becomes_the_entry_under_the_name_of_the_call() -> None:
    task = call("name: first, task: get")
    assert (task.name, task.kind) == ("first", "http")
    assert inputs(task) == {"endpoint": "{{ workload.base }}", "params": {"units": "metric", "page": 1}}
    assert (task.knobs, task.timeouts) == ({"follow_redirects": False}, Timeouts(total=10.0))
    assert task.policy is not None and task.policy.rules[0].do == "fail"
    assert task.origin == "workbook get, line 7"


def test_without_task_the_entry_is_that_of_the_calls_own_name() -> None:
    assert call("name: get").kind == "http"


def test_the_list_form_holds_the_same_entries() -> None:
    task = call("name: t, task: shape", CODE)
    assert (task.kind, inputs(task)["code"]) == ("python", "return args")
    assert task.origin == "workbook shape, line 6"


def test_args_are_laid_over_the_args_of_an_entry_that_has_them() -> None:
    task = call('name: t, task: shape, args: { a: "{{ workload.a }}", deep: { y: 3 }, list: [ 3 ], new: true }', CODE)
    assert inputs(task)["args"] == {"a": "{{ workload.a }}", "deep": {"x": 1, "y": 3}, "list": [3], "new": True}


def test_args_are_laid_over_the_inputs_of_an_entry_without_args() -> None:
    task = call("name: t, task: get, args: { method: PUT, params: { page: 2 } }")
    assert inputs(task)["method"] == "PUT"
    assert inputs(task)["params"] == {"units": "metric", "page": 2}


def test_another_spelling_of_an_input_replaces_that_of_the_entry() -> None:
    assert "endpoint" not in inputs(call("name: t, task: get, args: { url: /a }"))
    assert inputs(call("name: t, task: get, args: { url: /a }"))["url"] == "/a"


def test_an_input_may_be_left_to_the_calls() -> None:
    root = "workbook: { tasks: { get: { kind: http, method: PUT } } }\n"
    assert inputs(call("name: t, task: get, args: { url: /a }", root)) == {"method": "PUT", "url": "/a"}
    assert codes(pipeline("- { name: t, kind: workbook, task: get }", root)) == ["missing_key"]


def test_the_spec_of_the_call_overrides_that_of_the_entry_key_by_key() -> None:
    task = call("name: t, task: get, spec: { timeout: { read: 3 }, follow_redirects: true }")
    assert (task.timeouts, task.knobs) == (Timeouts(total=10.0, read=3.0), {"follow_redirects": True})
    assert task.policy is not None and task.policy.rules[0].do == "fail"


def test_the_policy_of_the_call_replaces_that_of_the_entry() -> None:
    policy = "policy: { on_unmatched: fail, rules: [ { when: true, then: { do: break } } ] }"
    task = call(f"name: t, task: get, spec: {{ {policy} }}")
    assert task.policy is not None and task.policy.on_unmatched == "fail"
    assert [rule.do for rule in task.policy.rules] == ["break"]


def test_the_policy_of_the_call_may_jump() -> None:
    jump = "spec: { policy: { rules: [ { else: { then: { do: jump, to: t } } } ] } }"
    assert call(f"name: t, task: get, {jump}").policy is not None


def test_the_entry_lies_between_the_scopes_around_the_call_and_the_call() -> None:
    root = GET + "executor: { spec: { timeout: { total: 60, connect: 5 } } }\n"
    assert call("name: t, task: get", root).timeouts == Timeouts(total=10.0, connect=5.0)


def test_templates_of_an_entry_are_bound_at_the_call() -> None:
    root = 'workbook: { tasks: { show: { kind: noop, args: { seen: "{{ before }}", n: "{{ item }}" } } } }\n'
    tool = "- { name: before, kind: noop }\n- { name: show, kind: workbook }"
    [problem] = found(pipeline(tool, root), "unbound_name")
    assert "`item`" in problem.message and problem.line == 4


def test_a_problem_in_an_entry_is_reported_once() -> None:
    root = "workbook: { tasks: { get: { kind: http, url: /a, methd: GET } } }\n"
    tool = "- { name: a, kind: workbook, task: get }\n- { name: b, kind: workbook, task: get }"
    assert codes(pipeline(tool, root)) == ["unknown_key"]


def test_an_entry_may_be_called_in_a_construct() -> None:
    tool = "- { name: pick, choose: [ { when: true, then: [ { name: get, kind: workbook } ] } ] }"
    assert task_of(pipeline(tool, dedent(GET)), 1).kind == "http"


def test_an_unused_entry_is_a_warning_and_still_checked() -> None:
    root = 'workbook: { tasks: { get: { kind: http, url: "{{ free.name }}", headers: 7 } } }\n'
    assert codes(pipeline("- { kind: noop }", root)) == ["unused_entry", "invalid_value"]


@pytest.mark.parametrize(
    "template",
    ["{{ workload.a", "{{ a | nofilter }}", "{{ outcome.status }}"],
)
def test_the_templates_of_an_unused_entry_are_checked(template: str) -> None:
    root = f'workbook: {{ tasks: {{ get: {{ kind: http, url: "{template}" }} }} }}\n'
    assert not checked(pipeline("- { kind: noop }", root)).ok


def test_the_policy_of_an_unused_entry_is_checked() -> None:
    def root(when: str, value: str) -> str:
        then = f'{{ do: retry, attempts: 2, delay: "{{{{ {value} }}}}", set_ctx: {{ a: "{{{{ {value} }}}}" }} }}'
        policy = f'{{ rules: [ {{ when: "{{{{ {when} }}}}", then: {then} }} ] }}'
        return f"workbook: {{ tasks: {{ get: {{ kind: noop, spec: {{ policy: {policy} }} }} }} }}\n"

    good = pipeline("- { kind: noop }", root("outcome.error", "anything.n + 1"))
    assert codes(good) == ["unused_entry"]
    assert "namespace_not_here" in codes(pipeline("- { kind: noop }", root("event.name == 'a'", "n")))
    assert "unknown_filter" in codes(pipeline("- { kind: noop }", root("true", "n | nofilter")))


@pytest.mark.parametrize("empty", ["{}", "[]", "null", "{ tasks: {} }", "{ tasks: null }"])
def test_an_empty_workbook_says_nothing(empty: str) -> None:
    assert codes(pipeline("- { kind: noop }", f"workbook: {empty}\n")) == []


@pytest.mark.parametrize("word", ["type", "knd"])
def test_an_entry_that_calls_the_workbook_by_an_older_or_misspelt_kind_is_refused(word: str) -> None:
    text = (
        workflow("- { step: start, tool: { kind: noop } }")
        + f"workbook: {{ tasks: {{ x: {{ {word}: workbook, task: y }} }} }}\n"
    )
    assert "workbook_entry" in codes(text)
