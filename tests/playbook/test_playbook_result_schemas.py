"""``spec.result.schema``: what is read, refused, and compared with what templates read (LANGUAGE §10, §15)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import CheckResult, check, check_document
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.results.validator import Unknown, Validator, Walk

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: tests/p }\nworkflow:\n"
USER = "{ type: object, properties: { user: { type: object, properties: { name: { type: string } } }, data: {} } }"


def checked(schema: str, *, after: str = "", arc: str = "", **options: Any) -> CheckResult:
    """A step with task ``fetch`` of this schema, tasks after it, and an arc with a guard."""
    task = f"  - {{ name: fetch, kind: noop, spec: {{ result: {{ schema: {schema} }} }} }}\n"
    others = f"  - {{ name: use, kind: noop, args: {{ a: '{{{{ {after} }}}}' }} }}\n" if after else ""
    arcs = f"  next: {{ arcs: [ {{ step: end, when: '{{{{ {arc} }}}}' }} ] }}\n" if arc else ""
    end = "- step: end\n  tool: { kind: noop }\n" if arc else ""
    return check(f"{HEAD}- step: start\n  tool:\n{task}{others}{arcs}{end}", KINDS, file="p.yaml", **options)


def only(result: CheckResult) -> Diagnostic:
    [found] = result.diagnostics
    return found


def test_a_task_keeps_the_schema_of_its_result_and_the_compiled_form_shows_it() -> None:
    plan = checked(USER).require_plan()
    schema = plan.steps["start"].tasks[0].schema
    assert schema is not None and schema.content["properties"]["user"]["type"] == "object"
    assert plan.named_schemas == frozenset()


def test_a_schema_of_the_catalog_is_named_by_its_path_and_version() -> None:
    plan = checked("{ path: /schemas/user, version: '1.0' }").require_plan()
    assert plan.named_schemas == {"schemas/user@1.0"}
    assert checked("{ path: schemas/user }").require_plan().named_schemas == {"schemas/user"}


@pytest.mark.parametrize(
    ("schema", "code", "words"),
    [
        ("text", "wrong_type", "must be a JSON Schema, not text"),
        ("{ path: a, verson: '1' }", "unknown_key", "did you mean `version`?"),
        ("{ propertis: { } }", "unknown_key", "did you mean `properties`?"),
        ("{ type: object, properties: { a: { tpye: string } } }", "unknown_key", "did you mean `type`?"),
        ("{ type: objekt }", "invalid_schema", "not a JSON Schema"),
        ("{ format: nope }", "invalid_schema", "nope"),
        ("{ definitions: { } }", "invalid_schema", "write `$defs`"),
        ("{ $dynamicRef: '#x' }", "invalid_schema", "write `$ref: '#/$defs/…'`"),
        ("{ $ref: 'https://example.com/schema' }", "invalid_schema", "a reference must be local"),
        ("{ $ref: '#/$defs/none' }", "invalid_schema", "does not exist"),
        ("{ $schema: 'http://json-schema.org/draft-07/schema#' }", "invalid_schema", "draft/2020-12/schema"),
        ("{ items: { $id: x } }", "invalid_schema", "belongs at the root"),
        ("{ pattern: '(a)\\1' }", "invalid_schema", "linear time"),
        ("{ pattern: '(?=a)b' }", "invalid_schema", "linear time"),
        ("{ pattern: 'a{1000}{1000}' }", "invalid_schema", "linear time"),
        ("{ $ref: '#' }", "unbounded_schema", "refers to itself"),
        ("{ allOf: [ { $ref: '#' } ] }", "unbounded_schema", "refers to itself"),
    ],
)
def test_a_forbidden_keyword_of_a_schema_is_an_error_with_a_replacement(schema: str, code: str, words: str) -> None:
    found = only(checked(schema))
    assert (found.severity, found.code) == ("error", code)
    assert words in found.render()


def test_the_error_stands_at_the_part_that_is_wrong() -> None:
    found = only(checked("{ properties: { user: { pattern: '(?=a)' } } }"))
    assert found.pointer == "/workflow/0/tool/0/spec/result/schema/properties/user/pattern"


def twice(word: str) -> dict[str, Any]:
    """A schema whose validation goes down two ways at each level."""
    again = {"properties": {"x": {"$ref": "#/$defs/node"}}}
    return {"$ref": "#/$defs/node", "$defs": {"node": {word: [again, {**again, "required": ["y"]}]}}}


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_recurses_along_two_ways_is_refused(word: str) -> None:
    assert only(checked(json.dumps(twice(word)))).code == "unbounded_schema"


def test_a_schema_that_doubles_at_each_reference_is_refused() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, 30)}
    found = only(checked(json.dumps({"$ref": "#/$defs/d29", "$defs": {"d0": {}, **levels}})))
    assert found.code == "unbounded_schema"


def test_a_long_chain_of_references_is_refused() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n - 1}"} for n in range(1, 500)}
    found = only(checked(json.dumps({"$ref": "#/$defs/d499", "$defs": {"d0": {}, **chain}})))
    assert "references lead to one another" in found.message


def test_a_schema_with_many_alternatives_of_many_keys_is_refused() -> None:
    many = [{"properties": {f"p{n}_{m}": {} for m in range(12)}} for n in range(500)]
    assert "combinations of subschemas" in only(checked(json.dumps({"anyOf": many}))).message


def test_a_recursive_schema_is_refused() -> None:
    side = "{ $ref: '#/$defs/node' }"
    tree = f"{{ $ref: '#/$defs/node', $defs: {{ node: {{ properties: {{ left: {side}, right: {side} }} }} }} }}"
    assert checked(tree).ok


def test_a_schema_is_not_rendered() -> None:
    found = only(checked("{ const: '{{ workload.x }}' }"))
    assert (found.severity, found.code) == ("warning", "template_not_rendered")


@pytest.mark.parametrize(
    ("after", "key", "hint"),
    [
        ("fetch.user.nmae", "`nmae` in `user`", "did you mean `name`?"),
        ("fetch.usr", "`usr`", "did you mean `user`?"),
        ("fetch.user.name.first", "`first` in `user.name`", "it is not a mapping"),
        ("results.fetch.user.nmae", "`nmae` in `user`", "did you mean `name`?"),
    ],
)
def test_a_misspelt_path_into_a_result_is_found(after: str, key: str, hint: str) -> None:
    found = only(checked(USER, after=after))
    assert (found.severity, found.code, found.hint) == ("warning", "unknown_result_key", hint)
    assert found.message == f"the schema of task `fetch`'s result has no {key}"
    assert (found.line, found.column > 40) == (8, True)


@pytest.mark.parametrize("after", ["fetch.user.name", "fetch.data.anything", "fetch.outcome.status", "fetch"])
def test_a_path_that_the_schema_has_or_leaves_open_is_fine(after: str) -> None:
    assert checked(USER, after=after).diagnostics == ()


def test_data_stands_for_a_result_without_such_a_key() -> None:
    schema = "{ properties: { rows: { type: array } } }"
    assert checked(schema, after="fetch.data.rows").diagnostics == ()
    assert only(checked(schema, after="fetch.data.row")).hint == "did you mean `rows`?"


@pytest.mark.parametrize("arc", ["steps.start.usr", "start.results.fetch.usr", "event.result.usr", "start.usr"])
def test_arcs_are_compared_too(arc: str) -> None:
    assert only(checked(USER, arc=arc)).hint == "did you mean `user`?"


ROWS = """
- step: start
  tool:
    kind: noop
    spec: { result: { schema: { properties: { rows: { items: { properties: { id: {}, tags: { items: { type: object,
      properties: { name: {} } } } } } } } } } }
  next: { arcs: [ { step: each } ] }
- step: each
  loop: { in: "{{ start.rows }}", iterator: row, loop: { in: "{{ row.tags }}", iterator: tag } }
  tool: { kind: noop, args: { a: "{{ %s }}" } }
"""


@pytest.mark.parametrize("read", ["tag.name", "iter.parent.row.id", "row.tags", "iter.index", "tag"])
def test_items_of_loops_are_compared_with_schemas_too(read: str) -> None:
    assert check(HEAD + ROWS % read, KINDS).diagnostics == ()


@pytest.mark.parametrize(
    ("read", "key"),
    [
        ("row.idd", "`idd` in `rows[]`"),
        ("tag.nam", "`nam` in `rows[].tags[]`"),
        ("iter.parent.row.x", "`x` in `rows[]`"),
    ],
)
def test_a_misspelt_key_of_an_item_is_found(read: str, key: str) -> None:
    found = only(check(HEAD + ROWS % read, KINDS))
    assert found.code == "unknown_result_key"
    assert found.message.endswith(f"has no {key}")


def test_the_result_of_a_step_that_another_task_may_end_is_not_compared() -> None:
    assert checked(USER, after="fetch.user.name", arc="steps.start.usr").diagnostics == ()


def test_a_named_schema_is_compared_as_far_as_the_catalog_was_asked() -> None:
    named = "{ path: schemas/user }"
    assert checked(named, after="fetch.usr").diagnostics == ()
    known = {"schemas/user": {"properties": {"user": {}}}}
    assert only(checked(named, after="fetch.usr", schemas=known)).code == "unknown_result_key"
    missing = only(checked(named, schemas={}))
    assert (missing.severity, missing.code) == ("warning", "unregistered_schema")


@pytest.mark.parametrize(
    ("schema", "path", "unknown"),
    [
        ({"properties": {"a": {}}}, "b", Unknown(0, ("a",))),
        ({"properties": {"a": {}}, "additionalProperties": True}, "b", None),
        ({"properties": {"a": {}}, "additionalProperties": False}, "b", Unknown(0, ("a",))),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, "b", None),
        ({"properties": {"a": {}}, "unevaluatedProperties": {}}, "b", None),
        ({"additionalProperties": {"properties": {"k": {}}}}, "any.j", Unknown(1, ("k",))),
        ({"type": "array"}, "a", Unknown(0, ())),
        ({"type": ["object", "null"]}, "a", None),
        ({"not": {"type": "string"}}, "a", None),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, "b", None),
        ({"anyOf": [{"type": "null"}, {"properties": {"a": {}}}]}, "b", Unknown(0, ("a",))),
        ({"anyOf": [{}, {"properties": {"a": {}}}]}, "b", None),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"properties": {"c": {}}}}}, "d", Unknown(0, ("c",))),
        ({}, "a.b.c", None),
    ],
)
def test_a_path_is_followed_as_far_as_the_schema_says(
    schema: dict[str, Any], path: str, unknown: Unknown | None
) -> None:
    Walk(schema).check_bounded()
    assert Walk(schema).unknown(path.split(".")) == unknown


def test_a_mismatch_names_both_places_and_never_quotes_the_value() -> None:
    validator = Validator({"properties": {"user": {"properties": {"age": {"type": "integer"}}}}})
    assert validator.mismatch({"user": {"age": 3}}) is None
    found = validator.mismatch({"user": {"age": "hunter2"}})
    assert found is not None and found.pointer == "/user/age"
    assert str(found) == (
        'at `/user/age`: the value is not of type "integer" (`/properties/user/properties/age/type` of the schema)'
    )
    top = validator.mismatch({"user": {"age": 3}}) or Validator({"type": "array"}).mismatch({})
    assert str(top).startswith("at the top: ")


SCHEMA = "apiVersion: noetl.io/v2\nkind: Schema\nmetadata: { name: user, path: schemas/user }\nspec: { type: object }\n"


def test_a_schema_document_is_checked_as_strictly_as_a_playbook() -> None:
    found = check_document(SCHEMA, KINDS)
    assert found.ok and found.schema is not None and found.plan is None
    assert (found.schema.path, found.schema.content) == ("schemas/user", {"type": "object"})
    broken = SCHEMA.replace("type:", "tpe:").replace("name: user, ", "nam: user, ").replace("spec:", "extra: 1\nspec:")
    codes = {(one.code, one.hint) for one in check_document(broken, KINDS).diagnostics}
    assert ("unknown_key", "did you mean `name`?") in codes
    assert ("unknown_key", "did you mean `type`?") in codes
    assert {code for code, _ in codes} == {"unknown_key"}


def test_a_schema_document_is_no_playbook_and_the_hint_says_where_to_name_it() -> None:
    found = check(SCHEMA, KINDS).diagnostics
    assert any(one.code == "invalid_value" and one.hint and "spec: { result: { schema:" in one.hint for one in found)
    assert check_document(HEAD + "- step: a\n  tool: { kind: noop }\n", KINDS).plan is not None
