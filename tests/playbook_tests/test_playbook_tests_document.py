"""What is wrong in a test document is said with its place and what to write; the JSON Schema agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from playbook_test_stage import FETCH, TESTS, loaded, ran, runner
from ruamel.yaml import YAML

from noetl_stream.playbook_tests.loading import load
from noetl_stream.playbook_tests.schema import playbook_test_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Draft202012Validator(playbook_test_schema())
STUB = "name: a, given: { stubs: { fetch: "

MISTAKES = [
    ("- { nme: a }", "unknown_key", "did you mean `name`?"),
    ("- { then: {} }", "missing_key", "a test needs `name`"),
    ("- { name: a, given: { workloads: {} } }", "unknown_key", "did you mean `workload`?"),
    ("- { name: a, then: { status: complete } }", "invalid_value", "did you mean `completed`?"),
    ("- { name: a, then: { path: fetch } }", "wrong_type", "`path` must be a list, not text"),
    ("- { name: a, then: { calls: { fetch: often } } }", "wrong_type", "`fetch` must be a number"),
    ("- { name: a, when: [ { after: soon } ] }", "invalid_value", "write `30s`, `5m`"),
    ("- { name: a, when: [ {} ] }", "missing_key", "does nothing"),
    ("- { name: a, when: [ { patch: { a: 1 }, cancel: x } ] }", "conflicting_keys", "does one thing"),
    ("- { name: a, when: [ { after: 1h, payload: 1 } ] }", "missing_key", "`payload` goes with `signal`"),
    ("- { name: a, when: [ { patch: 1 } ] }", "wrong_type", "`patch` must be a mapping"),
    ("- { name: a, given: { real: [pyton] } }", "not_real", "did you mean `python`?"),
    (f"- {{ {STUB} {{ attempt: 1 }} }} }} }}", "missing_key", "a stub needs `result`, `error` or `real`"),
    (f"- {{ {STUB} {{ error: {{ message: x }} }} }} }} }}", "missing_key", "`error` needs `kind`"),
    (f"- {{ {STUB} {{ result: {{}}, attempt: 0 }} }} }} }}", "invalid_value", "greater than or equal to 1"),
    (f"- {{ {STUB} {{ result: {{}}, iteration: -1 }} }} }} }}", "wrong_type", "an index from 0"),
    (f"- {{ {STUB} {{ result: {{}}, takes: often }} }} }} }}", "invalid_value", "must be a duration"),
]
"""What the schema knows, too."""

NAMES = [
    ("- { name: a, then: { path: [fetsh] } }", "unknown_step", "did you mean `fetch`?"),
    ("- { name: a, then: { calls: { fetch.gett: 1 } } }", "unknown_task", "did you mean `fetch.get`?"),
    ("- { name: a, when: [ { inject: fetsh } ] }", "unknown_step", "did you mean `fetch`?"),
    ("- { name: a, given: { stubs: { fech: { result: {} } } } }", "unknown_step", "did you mean `fetch`?"),
    (f"- {{ {STUB} {{ error: timeot }} }} }} }}", "invalid_value", "did you mean `timeout`?"),
    (f"- {{ {STUB} {{ result: {{ body: 1 }} }} }} }} }}", "unknown_key", "the body is `data`"),
    (f"- {{ {STUB} {{ result: {{ status: ok }} }} }} }} }}", "wrong_type", "a number from 100 to 599"),
    (f"- {{ {STUB} {{ result: [] }} }} }} }}", "wrong_type", "the result of `http` must be a mapping"),
    (f"- {{ {STUB} {{ real: true }} }} }} }}", "not_real", "write `result` or `error`"),
    ("- { name: a }\n- { name: a }", "duplicate_name", "another test is named `a`"),
    (f"- {{ {STUB} {{ result: {{}} }}, fetch.get: {{ result: {{}} }} }} }} }}", "duplicate_name", "are the same task"),
    ("- { name: a, given: { now: yesterday } }", "invalid_value", "write a time such as"),
    ("- { name: a, given: { due: Monday } }", "invalid_value", "write a time such as"),
    ("- { name: a, given: { catalog: { gone.yaml: } } }", "file_unreadable", "No such file"),
]
"""What only the reader knows."""


def as_plain(tests: str) -> Any:
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load(f"{TESTS}tests:\n{tests}\n")))


@pytest.mark.parametrize(("tests", "code", "words"), [*MISTAKES, *NAMES], ids=lambda one: one[:40])
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, tests: str, code: str, words: str) -> None:
    [found] = loaded(tmp_path, FETCH, tests).diagnostics
    assert found.code == code
    assert words in found.render()
    assert found.line >= 4
    assert found.column > 1


@pytest.mark.parametrize("tests", [tests for tests, _, _ in MISTAKES], ids=lambda one: one[:40])
def test_the_schema_refuses_the_mistake(tests: str) -> None:
    assert not SCHEMA.is_valid(as_plain(tests))


@pytest.mark.parametrize("tests", [tests for tests, _, _ in NAMES], ids=lambda one: one[:40])
def test_the_schema_knows_no_names(tests: str) -> None:
    assert [error.message for error in SCHEMA.iter_errors(as_plain(tests))] == []


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    tests = "- { nme: a }\n- { name: b, then: { pth: [] } }\n- { name: c, when: [ { after: x } ] }"
    assert [one.line for one in loaded(tmp_path, FETCH, tests).diagnostics] == [4, 5, 6]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "yaml_empty"),
        ("a: [", "yaml_syntax"),
        ("apiVersion: noetl.io/v2\nkind: Playbok\ntests: [ { name: a } ]", "invalid_value"),
        ("apiVersion: noetl.io/v2\nkind: PlaybookTest", "missing_key"),
        ("apiVersion: noetl.io/v2\nkind: PlaybookTest\ntests: []", "missing_key"),
        ("a: !!python/object:os.system x", "yaml_tag"),
    ],
)
def test_a_file_that_is_no_test_document_is_reported(tmp_path: Path, text: str, code: str) -> None:

    file = tmp_path / "p.test.yaml"
    file.write_text(text)
    found = load(file, runner().compiled.kinds, runner().compiled.limits)
    assert code in {one.code for one in found.diagnostics}
    assert found.tests == ()


def test_problems_of_the_playbook_are_those_that_check_says(tmp_path: Path) -> None:
    [found] = loaded(tmp_path, FETCH.replace("kind: http", "kind: htp"), "- { name: a }").diagnostics
    assert (Path(found.file).name, found.code, found.hint) == ("p.yaml", "unknown_kind", "did you mean `http`?")


def test_inputs_of_one_test_override_those_of_all_tests(tmp_path: Path) -> None:
    tests = """
given: { workload: { id: 8, deep: { a: 1 } }, stubs: { fetch: { result: { data: all } } } }
tests:
  - { name: as all, then: { result: { got: all }, calls: { fetch: [ { url: "https://example.com/8" } ] } } }
  - name: its own
    given: { workload: { id: 9 }, stubs: { fetch.get: { error: sql } } }
    then: { error: sql, calls: { fetch: [ { url: "https://example.com/9" } ] } }
"""
    outcomes = ran(tmp_path, FETCH, tests)
    assert [problem.message for one in outcomes for problem in one.problems] == []


@pytest.mark.parametrize("file", sorted((ROOT / "playbooks").glob("*.test.yaml")), ids=lambda file: file.name)
def test_the_schema_takes_the_tests_of_the_examples(file: Path) -> None:
    document = json.loads(json.dumps(YAML(typ="safe", pure=True).load(file.read_text())))
    assert [error.message for error in SCHEMA.iter_errors(document)] == []


def test_every_key_of_the_schema_is_described() -> None:
    schema = playbook_test_schema()
    described = {"apiVersion", "kind"}
    for definition in (schema, *schema["$defs"].values()):
        for name, one in definition["properties"].items():
            assert name in described or one.get("description"), name
