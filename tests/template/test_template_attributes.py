"""Attribute access: keys of mappings and the listed methods, never attributes of Python objects (LANGUAGE §2)."""

from __future__ import annotations

from typing import Any

import pytest
from template_rendering import codes, failure, rendered


def test_a_dot_on_a_mapping_is_a_key_even_if_it_is_named_like_a_method() -> None:
    assert rendered("{{ ctx.items }}") == "a key"
    assert rendered("{{ workload.keys }}", workload={"keys": 1}) == 1
    assert "`workload.values` is undefined" in failure("{{ workload.values }}").message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ workload.deep.items() }}", [["a", {"b": 1}]]),
        ("{{ workload.deep.keys() }}", ["a"]),
        ("{{ workload.deep.values() }}", [{"b": 1}]),
        ("{{ workload.deep.get('a') }}", {"b": 1}),
        ("{{ workload.deep.get('x') }}", None),
        ("{{ workload.deep.get('x', 3) }}", 3),
        ("{{ workload.deep.get('x', default=3) }}", 3),
        ("{{ workload.deep.get('a').b }}", 1),
        ("{{ workload.deep['a'].items() }}", [["b", 1]]),
        ("{% for k, v in workload.deep.items() %}{{ k }}={{ v.b }}{% endfor %}", "a=1"),
    ],
)
def test_mappings_have_four_methods_by_direct_call(text: str, value: Any) -> None:
    assert rendered(text) == value


def test_a_key_wins_over_a_method_and_cannot_be_called() -> None:
    assert "`items` is a key here" in failure("{{ ctx.items() }}").message


def test_a_method_of_another_type_is_an_error() -> None:
    assert "a list has no method `items`" in failure("{{ ctx.rows.items() }}").message
    assert "a mapping has no method `upper`" in failure("{{ ctx.upper() }}").message
    assert "takes no arguments" in failure("{{ workload.deep.items(1) }}").message


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("upper()", "ADA"),
        ("replace('a', 'x')", "Adx"),
        ("replace('A', 'x', 0)", "Ada"),
        ("split('d')", ["A", "a"]),
        ("partition('d')", ["A", "d", "a"]),
        ("startswith('A')", True),
        ("endswith(['x', 'a'])", True),
        ("join(['1', '2'])", "1Ada2"),
        ("zfill(5)", "00Ada"),
        ("center(7)", "  Ada  "),
        ("removeprefix('A')", "da"),
        ("find('z')", -1),
        ("isdigit()", False),
    ],
)
def test_texts_have_listed_methods(call: str, value: Any) -> None:
    assert rendered(f"{{{{ ctx.name.{call} }}}}") == value


def test_join_names_the_element_that_is_not_text() -> None:
    assert "element 0 is a number" in failure("{{ ','.join(ctx.rows) }}").message


@pytest.mark.parametrize("method", ["format", "format_map", "encode", "translate", "append", "pop", "mro", "__init__"])
def test_other_methods_do_not_exist(method: str) -> None:
    assert codes(f"{{{{ ctx.name.{method}() }}}}") == ["template_syntax"]


@pytest.mark.parametrize(
    "part",
    ["__class__", "__class__.__mro__", "__init__.__globals__", "upper.__self__", "_private", "real", "denominator"],
)
@pytest.mark.parametrize("value", ["ctx.name", "ctx.rows", "ctx.total", "ctx", "''", "load", "outcome.error.kind"])
def test_nothing_of_pythons_objects_can_be_reached(value: str, part: str) -> None:
    assert rendered("{{ " + value + "." + part + " | default('nothing') }}") == "nothing"
    assert rendered(f"{{{{ [{value}] | map(attribute='{part}') | map('default', 'nothing') | first }}}}") == "nothing"


@pytest.mark.parametrize(
    "text",
    [
        "{% macro m() %}{% endmacro %}{{ m.name }}",
        "{% macro m() %}{% endmacro %}{{ m }}",
        "{% for i in [1] %}{{ loop }}{% endfor %}",
        "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
        "{% set ns = namespace() %}{{ ns.__class__ }}",
        "{% set ns = namespace() %}{{ ns._Namespace__attrs }}",
        "{% set f = ctx.name %}{{ f() }}",
        "{{ ctx.name() }}",
        "{{ range(1)() }}",
        "{{ caller() }}",
        "{{ loop.index }}",
        "{{ varargs }}",
    ],
)
def test_machinery_of_templates_is_not_a_value(text: str) -> None:
    assert codes(text) or failure(text).message


def test_an_index_must_be_an_integer_in_range() -> None:
    assert rendered("{{ ctx.rows[true] | default('no') }}") == "no"
    assert rendered("{{ ctx.rows['0'] | default('no') }}") == "no"
    assert rendered("{{ ctx.rows[3] | default('no') }}") == "no"
    assert rendered("{{ ctx.name[0] }}") == "A"
    assert "the length is 3" in failure("{{ ctx.rows[3] }}").message
