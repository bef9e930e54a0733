"""What existing playbooks write beside ``kind`` is accepted, and means what its canonical form means (LANGUAGE §12)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl_stream.playbook.compile.compiler import check, compile_playbook
from noetl_stream.playbook.plan import TaskPlan
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
SCHEMA = Draft202012Validator(playbook_schema(KINDS))
HTTP = {"kind": "http", "url": "http://h/"}


def playbook(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "p", "path": "p"}}
    return {**head, **more, "workflow": [{"step": "s", "tool": task}]}


def task_of(task: dict[str, Any], **more: Any) -> TaskPlan:
    return compile_playbook(json.dumps(playbook(task, **more)), KINDS).steps["s"].tasks[0]


@pytest.mark.parametrize(
    ("beside", "spec"),
    [
        ({"verify_ssl": False}, {"verify_tls": False}),
        ({"follow_redirects": False}, {"follow_redirects": False}),
        ({"timeout": 30}, {"timeout": 30}),
        ({"timeout": {"connect": 5, "read": 15}}, {"timeout": {"connect": 5, "read": 15}}),
    ],
)
def test_a_setting_of_http_may_stand_beside_its_kind(beside: dict[str, Any], spec: dict[str, Any]) -> None:
    plan, canonical = task_of({**HTTP, **beside}), task_of({**HTTP, "spec": spec})
    assert (plan.knobs, plan.timeouts, plan.inputs.source) == (
        canonical.knobs,
        canonical.timeouts,
        canonical.inputs.source,
    )
    assert SCHEMA.is_valid(playbook({**HTTP, **beside}))


def test_a_synonym_overrides_the_settings_of_enclosing_scopes() -> None:
    executor = {"spec": {"verify_tls": True, "timeout": 90}}
    plan = task_of({**HTTP, "verify_ssl": False, "timeout": 5}, executor=executor)
    assert (plan.knobs, plan.timeouts.total) == ({"verify_tls": False}, 5)


@pytest.mark.parametrize(
    "task",
    [
        {**HTTP, "verify_ssl": False, "spec": {"verify_tls": False}},
        {**HTTP, "follow_redirects": True, "spec": {"follow_redirects": True}},
        {**HTTP, "timeout": 5, "spec": {"timeout": 5}},
        {**HTTP, "data": {"a": 1}, "json": {"a": 1}},
        {**HTTP, "data": {"a": 1}, "payload": {"a": 1}},
    ],
)
def test_a_setting_in_both_forms_is_an_error(task: dict[str, Any]) -> None:
    text = json.dumps(playbook(task))
    assert [problem.code for problem in check(text, KINDS).diagnostics] == ["conflicting_keys"]
    assert not SCHEMA.is_valid(playbook(task))


@pytest.mark.parametrize("beside", [{"verify_ssl": "no"}, {"timeout": "soon"}, {"timeout": -1}])
def test_its_value_is_checked_like_that_of_the_canonical_form(beside: dict[str, Any]) -> None:
    checked = check(json.dumps(playbook({**HTTP, **beside}, workload={"t": 1})), KINDS)
    assert not checked.ok
    assert not SCHEMA.is_valid(playbook({**HTTP, **beside}))


def test_an_entry_of_the_workbook_may_have_it_and_a_call_replaces_it() -> None:
    call = {"kind": "workbook", "task": "fetch", "spec": {"timeout": 60}}
    plan = task_of(call, workbook={"tasks": {"fetch": {**HTTP, "timeout": 5, "verify_ssl": False}}})
    assert (plan.knobs, plan.timeouts.total) == ({"verify_tls": False}, 60)


def test_only_some_kinds_have_synonyms() -> None:
    text = json.dumps(playbook({"kind": "shell", "command": "true", "timeout": 5}))
    assert [problem.code for problem in check(text, KINDS).diagnostics] == ["legacy_syntax"]


@pytest.mark.parametrize(
    ("task", "ok"),
    [
        ({"kind": "duckdb", "command": "select 1", "database": ":memory:"}, True),
        ({"kind": "postgres", "auth": "db", "command": "select 1", "pool": {"max_size": 2, "timeout_s": 5}}, True),
        ({"kind": "postgres", "auth": "db", "command": "select 1", "pool": {"max_size": 0}}, False),
        ({"kind": "postgres", "auth": "db", "command": "select 1", "pool": {"min_size": 1}}, False),
        ({**HTTP, "method": "POST", "data": {"a": 1}}, True),
    ],
)
def test_the_inputs_of_existing_playbooks_are_known(task: dict[str, Any], ok: bool) -> None:
    assert check(json.dumps(playbook(task)), KINDS).ok is ok
    assert SCHEMA.is_valid(playbook(task)) is ok
