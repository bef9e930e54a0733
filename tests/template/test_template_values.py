"""Values of templates: native values, texts, constants (LANGUAGE §2)."""

from __future__ import annotations

from typing import Any

import pytest
from template_rendering import BINDINGS, NAMESPACES, failure, rendered, scope

from noetl_stream.template import compile_template, render


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.total }}", 7),
        ("  {{ ctx.total }}\n", 7),
        ("{{- ctx.total -}}", 7),
        ("{{ workload['items'] }}", [{"n": 1}, {"n": 2}]),
        ("{{ ctx.none }}", None),
        ("{{ true }}", True),
        ("{{ '007' }}", "007"),
        ("{{ (1, 'a') }}", [1, "a"]),
        ("{{ {'a': ctx.total} }}", {"a": 7}),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ 1 if ctx.total > 5 else 2 }}", 1),
        ("{{ ctx.rows[1:] }}", [1, 2]),
        ("{{ ctx.rows[-1] }}", 2),
        ("{{ execution_id }}", "e1"),
    ],
)
def test_a_text_that_is_one_expression_gives_its_native_value(text: str, value: Any) -> None:
    result = rendered(text)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.total }}{{ ctx.total }}", "77"),
        ("n={{ ctx.total }}", "n=7"),
        ("{{ url }}/{{ page }}", "http://api/1"),
        ("is {{ true }} or {{ none }}", "is True or None"),
        ("got {{ ctx.rows }}", "got [3, 1, 2]"),
        ("got {{ fetch }}", "got {'data': {'rows': [1, 2, 3]}, 'status': 200}"),
        ("{% if true %}{{ ctx.total }}{% endif %}", "7"),
        ("{{ ctx.total }}{# a remark #}", "7"),
        ("{{ ctx.total }} {{ 'x' ~ 1 ~ none }}\n", "7 x1None\n"),
    ],
)
def test_any_other_text_with_a_template_gives_text(text: str, value: str) -> None:
    assert rendered(text) == value


@pytest.mark.parametrize(
    "source", ["plain", "{ {x} }", "100%", "{# no template #}", 5, 1.5, None, True, [], {}, [1, "a"]]
)
def test_a_value_without_templates_is_constant(source: Any) -> None:
    template = compile_template(source, namespaces=NAMESPACES, bindings=BINDINGS)
    assert template.is_constant
    assert template.reads == frozenset()
    assert render(template, scope()) == source


def test_lists_and_mappings_are_rendered_at_any_depth_but_keys_are_not() -> None:
    source = {"{{ key }}": ["{{ ctx.total }}", {"url": "{{ url }}/a", "fixed": [1, "x"]}]}
    assert rendered(source) == {"{{ key }}": [7, {"url": "http://api/a", "fixed": [1, "x"]}]}


def test_a_rendered_value_is_never_rendered_again() -> None:
    assert rendered("{{ ctx.evil }}", ctx={"evil": "{{ 1 + 1 }}"}) == "{{ 1 + 1 }}"
    assert rendered("a {{ ctx.evil }}", ctx={"evil": "{{ 1 + 1 }}"}) == "a {{ 1 + 1 }}"


def test_a_rendered_value_is_a_copy() -> None:
    ctx = {"rows": [[1]]}
    template = compile_template(["{{ ctx.rows }}", {"k": [1]}], namespaces=NAMESPACES, bindings={})
    first = render(template, scope(ctx=ctx))
    first[0][0].append(2)
    first[1]["k"].append(2)
    assert ctx == {"rows": [[1]]}
    assert render(template, scope(ctx=ctx)) == [[[1]], {"k": [1]}]


def test_raw_blocks_and_quoted_braces_write_braces() -> None:
    assert rendered("{% raw %}{{ x }}{% endraw %}") == "{{ x }}"
    assert rendered("{{ '{{' }} x") == "{{ x"


def test_line_ends_and_trailing_lines_are_kept_as_written() -> None:
    assert rendered("a\r\nb {{ ctx.total }}\r\n") == "a\r\nb 7\r\n"
    assert rendered("a\rb{{\r\n ctx.total ~ '\r\n' }}\n\n") == "a\rb7\r\n\n\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ctx.total + 'a' }}", "unsupported operand"),
        ("{{ ctx.total < 'a' }}", "not supported between"),
        ("{{ {1: 2} }}", "a mapping key must be text"),
        ("{{ 1e999 }}", "not a valid JSON number"),
        ("x {{ 1e999 }}", "not a valid JSON number"),
        ("{{ (-8) ** 0.5 }}", "complex"),
        ("{{ namespace(a=1) }}", "which JSON cannot hold"),
        ("{% for i in ctx.total %}{% endfor %}", "a number cannot be iterated"),
        ("{% for i in none %}{% endfor %}", "null cannot be iterated"),
        ("{{ ctx.rows['a':'b'] }}", "slice indices"),
    ],
)
def test_a_failed_evaluation_is_an_error_with_the_expression(text: str, part: str) -> None:
    error = failure(text)
    assert part in error.message
    assert error.expression == text
    assert text in error.message


def test_the_error_shows_a_long_expression_cut_and_on_one_line() -> None:
    error = failure("{{ ctx.missing\n   }} " + "x" * 500)
    assert "\n" not in error.message
    assert len(error.message) < 200


def test_reads_name_the_namespace_and_first_key() -> None:
    source = ["{{ total }}", "{{ steps.load.data.x }} {{ ctx[args.who] }}", "{{ workload }}", "{{ iter['a'] }}"]
    template = compile_template(source, namespaces=NAMESPACES, bindings=BINDINGS)
    assert template.reads == {
        ("ctx", "total"),
        ("steps", "load"),
        ("ctx", None),
        ("args", "who"),
        ("workload", None),
        ("iter", "a"),
    }
    assert template.source is source
