"""``executor.spec.workload``: what it may hold, and what it refuses (LANGUAGE §9 *Schema of the workload*)."""

from __future__ import annotations

from typing import Any

import pytest
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.compile.view import compiled_view
from noetl_stream.playbook.results.validator import Validator, pattern_weight
from noetl_stream.playbook.workload import KEYWORDS, WorkloadSchema, counted

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: tests/p }\n"
FLOW = "workflow:\n  - step: start\n    tool: { kind: noop, args: { a: '{{ %s }}' } }\n"


def checked(schema: str, workload: str = "{}", read: str = "workload.rows") -> CheckResult:
    executor = f"executor: {{ spec: {{ workload: {schema} }} }}\n"
    return check(f"{HEAD}{executor}workload: {workload}\n{FLOW % read}", KINDS, file="p.yaml")


def found(*given: str) -> list[tuple[str, str, int]]:
    return [(one.code, one.pointer, one.line) for one in checked(*given).diagnostics]


def test_a_plan_keeps_the_schema_and_the_compiled_form_shows_it() -> None:
    plan = checked("{ properties: { rows: { type: integer } } }").require_plan()
    assert compiled_view(plan)["workload_schema"] == {"properties": {"rows": {"type": "integer"}}}
    assert "workload_schema" not in compiled_view(checked("null").require_plan())


@pytest.mark.parametrize(
    ("schema", "code", "words"),
    [
        ("text", "wrong_type", "must be a JSON Schema, not text"),
        ("{ city: Rome }", "unknown_key", "unknown keyword `city`"),
        ("{ properties: { rows: { minumum: 1 } } }", "unknown_key", "did you mean `minimum`?"),
        ("{ properties: { rows: { type: int } } }", "invalid_schema", "not a JSON Schema"),
        ("{ properties: { rows: { default: 1 } } }", "invalid_schema", "write it under `workload`"),
        ("{ oneOf: [ { required: [a] } ] }", "invalid_schema", "`oneOf` is not supported"),
        ("{ $ref: '#/$defs/a' }", "invalid_schema", "`$ref` is not supported"),
        ("{ properties: { rows: { pattern: '(a)\\1' } } }", "invalid_schema", "linear time"),
        (f"{{ properties: {{ rows: {{ enum: {list(range(101))} }} }} }}", "limit_exceeded", "max_workload_choices"),
    ],
)
def test_a_forbidden_keyword_of_a_workload_schema_is_an_error_with_a_replacement(
    schema: str, code: str, words: str
) -> None:
    [one] = checked(schema).diagnostics
    assert one.code == code
    assert words in one.render()


def test_a_default_that_does_not_match_is_an_error_at_its_place() -> None:
    schema = "{ properties: { rows: { type: integer }, order: { properties: { state: { enum: [open] } } } } }"
    assert found(schema, "\n  rows: ten\n  order: { state: gone }") == [
        ("invalid_default", "/workload/rows", 6),
        ("invalid_default", "/workload/order/state", 7),
    ]


def test_a_key_that_the_start_may_complete_is_no_error() -> None:
    order = "{ type: object, required: [id], properties: { id: { type: string } } }"
    schema = f"{{ required: [rows, order], properties: {{ rows: {{ type: integer }}, order: {order} }} }}"
    assert found(schema, "{ rows: null, order: {} }") == []


def test_keys_that_defaults_lack_are_not_listed() -> None:
    """There may be a thousand for each mapping."""
    rows = {"items": {"required": ["id"], "properties": {"id": {"required": ["b"], "type": "object"}}}}
    part = {"properties": {"rows": rows}, "additionalProperties": {"required": ["a"]}, "required": ["c"]}
    assert WorkloadSchema(part).mismatches({"rows": [{}, {"id": {}}], "more": {}}) == []
    [one] = WorkloadSchema(part).mismatches({"rows": [{}, {"id": 1}]})
    assert (one.pointer, one.keyword) == ("/rows/1/id", "type")


def test_a_default_that_no_key_may_have_is_an_error() -> None:
    assert [code for code, *_ in found("{ additionalProperties: false }", "{ rows: 1 }")] == ["invalid_default"]
    assert [code for code, *_ in found("{ type: array }", "{ rows: 1 }")] == ["invalid_default"]


def test_a_declared_key_is_a_bare_name() -> None:
    assert checked("{ properties: { rows: {} } }", read="rows").ok
    assert [one.code for one in checked("{}", read="rows").diagnostics] == ["unbound_name"]


@pytest.mark.parametrize(
    ("schema", "workload", "words"),
    [
        ({"required": ["order"]}, {}, 'at the top: "order" is a required property (`/required` of the schema)'),
        ({"properties": {"a/b": {"maximum": 3}}}, {"a/b": 4}, "at `/a~1b`: the value is greater than the maximum of 3"),
        ({"properties": {"l": {"items": {"type": "string"}}}}, {"l": ["x", 7]}, "at `/l/1`: the value is not of type"),
        ({"properties": {"c": {"pattern": "^[0-9]+$"}}}, {"c": "secret"}, "at `/c`: the value does not match"),
    ],
)
def test_a_refusal_says_where_and_why_and_quotes_no_value(schema: Any, workload: Any, words: str) -> None:
    refused = WorkloadSchema(schema).refusal(workload)
    assert refused is not None
    assert refused.message.startswith(f"the workload does not match its schema {words}")
    assert "secret" not in refused.message


def test_a_workload_that_matches_is_not_refused() -> None:
    schema = {"properties": {"rows": {"type": "integer", "minimum": 1}, "city": {"enum": ["Rome", None]}}}
    assert WorkloadSchema(schema).refusal({"rows": 10**30, "city": None, "more": [1]}) is None


def test_each_keyword_applies_one_subschema_to_a_value() -> None:
    """Else the time that a server takes would grow with the schema, too."""
    again = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "contains"}
    assert again & KEYWORDS == set()


def refusal(part: Any, value: Any) -> tuple[str, str] | None:
    refused = WorkloadSchema({"properties": {"rows": part}}).refusal({"rows": value})
    return None if refused is None else (refused.pointer, refused.message)


def alternatives(count: int) -> str:
    """A pattern whose compiled form grows with ``count``, and is slow to match."""
    return "|".join(f"([a-{chr(98 + number % 24)}{number}]+[b-y]*)+!" for number in range(count))


@pytest.mark.parametrize(
    ("part", "value", "pointer"),
    [
        ({"pattern": alternatives(300)}, "x" * 100_000, "/rows"),
        ({"items": {"pattern": alternatives(50)}}, ["!"] * 70 + ["x" * 100_000] * 2, "/rows/70"),
        ({"additionalProperties": {"pattern": alternatives(300)}}, {"a/b": "x" * 100_000}, "/rows/a~1b"),
        ({"items": {"enum": [1.5 + number for number in range(100)]}}, [1.5] * 10_000, "/rows/8916"),
        ({"items": {"enum": [[number] for number in range(100)]}}, [[0]] * 100_000, "/rows/21897"),
        ({"items": {"enum": list(range(100))}}, [1e-300] * 10_000, "/rows/1126"),
        ({"items": {"minimum": 1e-300, "maximum": 1e300}}, [1e-300] * 50_000, "/rows/28032"),
    ],
)
def test_a_workload_that_takes_too_many_comparisons_is_refused_before_the_first(
    part: Any, value: Any, pointer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Validator, "mismatch")
    at, message = refusal(part, value) or ("", "")
    assert at == pointer
    assert f"at `{pointer}`: up to here it takes more than 150,000,000 comparisons" in message
    assert "(max_workload_comparisons): shorten its texts" in message


def test_a_megabyte_with_ordinary_patterns_is_not_expensive() -> None:
    uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    row = {
        "properties": {"id": {"pattern": uuid}, "state": {"enum": ["open", "paid", None]}, "count": {"enum": [1, 2]}}
    }
    rows = [{"id": "01234567-89ab-cdef-0123-456789abcdef", "state": "open", "count": 1}] * 13_000
    assert refusal({"items": row}, rows) is None
    assert refusal({"pattern": "^[a-z0-9]+$"}, "x" * 1024 * 1024) is None
    assert refusal({"items": {"pattern": uuid}}, ["01234567-89ab-cdef-0123-456789abcdef"] * 26_000) is None
    assert refusal({"items": {"enum": list(range(100))}}, [99] * 250_000) is None
    assert refusal({"items": {"enum": [*map(str, range(99)), None]}}, ["98"] * 200_000) is None
    assert refusal({"items": {"minimum": 0.5}}, [number + 0.25 for number in range(1, 150_000)]) is None


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"pattern": "^[a-z0-9]+$"}, "x" * 100_000),
        ({"items": {"pattern": "^[a-z0-9]+$"}}, ["x"] * 100_000),
        ({"items": {"minimum": 0}}, [0.25] * 250_000),
        ({"items": {"properties": {"a": {"enum": list(range(100))}}}}, [{"a": 1}] * 10_000),
        ({"items": {"properties": {f"k{number}": {"minimum": 1} for number in range(10_000)}}}, [{}] * 20_000),
    ],
)
def test_an_ordinary_workload_is_compared_at_once(part: Any, value: Any) -> None:
    assert WorkloadSchema({"properties": {"rows": part}}).comparisons({"rows": value}) is not None


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"pattern": "^[a-z0-9]+$"}, "x" * 1024 * 1024),
        ({"items": {"items": {"minimum": 0}}}, [[]] * 300_000),
        ({"items": {"enum": [None, *map(str, range(99))]}}, ["98"] * 100_000),
    ],
)
def test_a_comparison_longer_than_a_server_may_stand_is_expensive(part: Any, value: Any) -> None:
    schema = WorkloadSchema({"properties": {"rows": part}})
    assert schema.comparisons({"rows": value}) is None
    assert schema.refusal({"rows": value}) is None


def test_a_pattern_weighs_more_the_larger_its_compiled_form_is() -> None:
    weights = [pattern_weight(alternatives(count)) for count in (1, 5, 25, 75, 300)]
    assert weights == sorted(set(weights))


def test_only_workloads_that_cost_more_than_reading_are_counted() -> None:
    """Else to count would take longer than to compare."""
    cheap = {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["x", "y"]}}}
    assert counted({"additionalProperties": False, "items": cheap, "properties": {"a": {"minLength": 1}}}) is None


def test_a_default_that_takes_too_many_comparisons_is_an_error_at_its_place() -> None:
    schema = f"{{ properties: {{ rows: {{ pattern: '{alternatives(300)}' }} }} }}"
    [one] = checked(schema, f"\n  order: 1\n  rows: {'x' * 10_000}").diagnostics
    assert (one.code, one.pointer, one.line) == ("limit_exceeded", "/workload/rows", 7)
    assert "(max_workload_comparisons)" in one.message


def test_of_very_many_defaults_that_do_not_match_none_is_named() -> None:
    choices = ", ".join(f"{letter * 30_000}" for letter in "abc")
    schema = f"{{ properties: {{ rows: {{ items: {{ enum: [{choices}] }} }} }} }}"
    [one] = checked(schema, f"\n  rows: [{', '.join(['d'] * 2_000)}]").diagnostics
    assert (one.code, one.line) == ("limit_exceeded", 6)
    assert "too many to name" in one.message


def test_a_schema_has_a_bounded_number_of_patterns() -> None:
    def schema(count: int) -> str:
        return f"{{ properties: {{ rows: {{}}, {', '.join(f'k{n}: {{ pattern: a }}' for n in range(count))} }} }}"

    assert checked(schema(500)).diagnostics == ()
    [one] = checked(schema(501)).diagnostics
    assert (one.code, one.pointer) == ("limit_exceeded", "/executor/spec/workload/properties/k500/pattern")
    assert "(max_schema_patterns)" in one.message


def test_defaults_that_take_long_are_compared_when_an_execution_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(Validator, "mismatch", lambda self, value: compared.append(value))
    assert checked("{ properties: { rows: { pattern: '^[a-z]+$' } } }", f"\n  rows: {'x' * 400_000}!").diagnostics == ()
    assert compared == [{}], "which compiles the schema"
