"""Blocks: loops, conditions, assignments, macros (LANGUAGE §2)."""

from __future__ import annotations

import pytest
from template_rendering import codes, failure, problems, rendered


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{% for i in items %}{{ i.n }}{% if not loop.last %},{% endif %}{% endfor %}", "1,2"),
        ("{% for i in ctx.rows if i > 1 %}{{ i }}{% endfor %}", "32"),
        ("{% for i in ctx.empty %}x{% else %}none{% endfor %}", "none"),
        ("{% for i in ctx.rows %}{{ loop.index }}{{ loop.previtem | default('-') }} {% endfor %}", "1- 23 31 "),
        ("{% for i in ctx.rows %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"),
        ("{% for c in 'abc' %}{{ c }}.{% endfor %}", "a.b.c."),
        ("{% if ctx.total > 9 %}a{% elif ctx.total > 5 %}b{% else %}c{% endif %}", "b"),
        ("{% set x = ctx.total %}{{ x }}{{ x + 1 }}", "78"),
        ("{% set x %}<{{ ctx.total }}>{% endset %}{{ x }}", "<7>"),
        ("{% set x | upper %}a{% endset %}{{ x }}", "A"),
        ("{% set a, b = [1, 2] %}{{ a }}{{ b }}", "12"),
        ("{% set n = namespace(t=0) %}{% for i in ctx.rows %}{% set n.t = n.t + i %}{% endfor %}{{ n.t }}", "6"),
        ("{% with a = ctx.total, b = 1 %}{{ a + b }}{% endwith %}", "8"),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b=total) }}", "12 17"),
        ("{% macro m() %}[{{ caller(3) }}]{% endmacro %}{% call(x) m() %}{{ x }}{{ total }}{% endcall %}", "[37]"),
        ("{% filter upper %}a{{ ctx.name }}{% endfilter %}", "AADA"),
        ("{% for k, v in {'a': 1} | dictsort %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for g in items | groupby('n') %}{{ g.grouper }}:{{ g.list | length }} {% endfor %}", "1:1 2:1 "),
        (
            "{% for t in [[1, [[2, []]]]] recursive %}{{ t[0] }}{% if t[1] %}({{ loop(t[1]) }}){% endif %}{% endfor %}",
            "1(2)",
        ),
        ("{% print ctx.total %}", "7"),
    ],
)
def test_blocks_work_as_in_jinja(text: str, value: str) -> None:
    assert rendered(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ total }}{% set total = 1 %}{{ total }}", "71"),
        ("{% for total in [1, 2] %}{{ total }}{% endfor %}{{ total }}", "127"),
        ("{% for total in [total] %}{{ total }}{% endfor %}", "7"),
        ("{% if true %}{% set total = 1 %}{% else %}{{ total }}{% endif %}{{ total }}", "1"),
        ("{% macro m(total) %}{{ total }}{% endmacro %}{{ m(1) }}{{ total }}", "17"),
        ("{% with total = total %}{{ total }}{% endwith %}", "7"),
        ("{% set range = 5 %}{{ range }}", "5"),
    ],
)
def test_an_assigned_name_is_no_longer_a_bare_name(text: str, value: str) -> None:
    assert rendered(text) == value


def test_a_name_assigned_inside_a_loop_is_unbound_after_the_loop() -> None:
    assert (
        codes("{% for i in ctx.rows %}{% set x = i %}{% endfor %}{{ x }}{{ i }}{{ loop.index }}")
        == ["unbound_name"] * 3
    )


@pytest.mark.parametrize(
    "text",
    [
        "{% set ctx = 1 %}",
        "{% for event in ctx.rows %}{% endfor %}",
        "{% macro steps() %}{% endmacro %}",
        "{% macro m(iter) %}{% endmacro %}",
        "{% set ctx.total = 1 %}",
    ],
)
def test_a_template_cannot_assign_to_a_namespace(text: str) -> None:
    assert "statement_not_allowed" in codes(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{% include 'a' %}", "include"),
        ("{% import 'a' as b %}", "import"),
        ("{% from 'a' import b %}", "from"),
        ("{% extends 'a' %}", "extends"),
        ("{% block a %}{% endblock %}", "block"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
    ],
)
def test_statements_that_reach_out_of_the_template_are_refused(text: str, name: str) -> None:
    (problem,) = problems(text)
    assert problem.code == "statement_not_allowed"
    assert f"`{name}`" in problem.message


@pytest.mark.parametrize(
    "text", ["{% if true %}a{% endif %}", "x {% set a = 1 %}", "{% for i in ctx.rows %}{% endfor %}"]
)
def test_blocks_are_refused_where_the_server_evaluates(text: str) -> None:
    assert codes(text, expressions_only=True) == ["statement_not_allowed"]
    assert codes("a {{ ctx.rows | map('int') | list }}", expressions_only=True) == []


def test_errors_inside_blocks_are_expression_errors() -> None:
    assert "`ctx.x` is undefined" in failure("{% if true %}{{ ctx.x }}{% endif %}").message
    assert "takes no keyword argument 'z'" in failure("{% macro m() %}{% endmacro %}{{ m(z=1) }}").message
