"""Random expressions end in one of two errors or in a value, which is always the same and the same as Jinja's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined, Undefined
from template_rendering import BINDINGS, NAMESPACES, scope

from effort import times
from noetl_stream.model.json.codec import encode
from noetl_stream.template import (
    ExpressionError,
    Scope,
    TemplateProblem,
    compile_guard,
    compile_template,
    holds,
    render,
)
from noetl_stream.template.filters.values import FILTERS, TESTS
from noetl_stream.template.runtime.operators import METHODS

VALUES: dict[str, Any] = {
    "n": 7,
    "f": 2.5,
    "s": "Ada Lovelace",
    "t": "b,a,,c",
    "l": [3, 1, 2, 1],
    "w": ["b", "A", "c"],
    "r": [{"k": 2, "v": "x"}, {"k": 1, "v": "y"}],
    "d": {"k": 5, "z": None},
    "none": None,
    "yes": True,
}
SCOPE = Scope({"ctx": VALUES})
JINJA = Environment(undefined=StrictUndefined, autoescape=False)
"""Jinja without sandbox or limits, for expressions of the grammar below only."""


# --- what the language shares with Jinja, by type ---

LEAVES = {
    "number": ["0", "1", "7", "2.5", "-3", "ctx.n", "ctx.f", "ctx.d.k", "ctx.l[0]", "ctx.l[-1]", "ctx.r[1].k"],
    "text": ["''", "'a'", "'Ab cd'", "ctx.s", "ctx.t", "ctx.w[0]", "ctx.r[0].v", "ctx['s']"],
    "list": ["[]", "[1]", "[2, 1, 3]", "ctx.l", "(range(4) | list)", "(ctx.r | map(attribute='k') | list)"],
    "truth": ["true", "false", "ctx.yes", "(ctx.none is none)", "(ctx.missing is defined)", "('k' in ctx.d)"],
}
GROWN = {
    "number": [
        *(f"(<number> {sign} <number>)" for sign in ("+", "-", "*", "/", "//", "%")),
        *(f"(<number> | {name})" for name in ("abs", "round", "round(1)", "round(0, 'floor')", "int", "float")),
        *(f"(<text> | {name})" for name in ("length", "wordcount", "int", "int(5)", "float", "count")),
        *(f"(<list> | {name})" for name in ("sum", "length")),
        *(f"(<list> | {name} | default(0))" for name in ("max", "min", "first", "last")),
        *("(<text>.count('a'))", "(<text>.find('a'))", "(- <number>)", "(<list>[0] | default(1))"),
        *("(<number> if <truth> else <number>)", "(ctx.missing | default(<number>))", "(ctx.d.get('k', <number>))"),
    ],
    "text": [
        *("(<text> ~ <text>)", "(<text> + <text>)", "(<text> ~ <number>)", "(<text> * 2)", "(<list> | string)"),
        *(f"(<text> | {name})" for name in ("upper", "lower", "title", "capitalize", "trim", "reverse", "string", "e")),
        *(f"(<text> | {name})" for name in ("center(9)", "indent(2, true)", "truncate(8)", "urlencode", "trim('ab')")),
        *(f"<text>.{name}" for name in ("upper()", "strip()", "replace('a', '-')", "title()", "rjust(5)")),
        *("<text>[1:]", "<text>[:-1]", "<text>[::2]", "(<list> | join)", "(<list> | join(', '))"),
        *("('%s-%05d' | format(<text>, <list> | length))", "(<text> | replace('a', <text>))"),
        *("(<text> if <truth> else <text>)", "(ctx.none | default(<text>, true))", "(<text>.split(',') | join('+'))"),
    ],
    "list": [
        *("[<number>, <number>]", "(<list> + <list>)", "<list>[1:]", "<list>[:2]", "<list>[::-1]", "(<list> * 2)"),
        *(f"(<list> | {name} | list)" for name in ("sort", "sort(reverse=true)", "unique", "reverse", "map('abs')")),
        *(
            f"(<list> | {name} | list)"
            for name in ("select('odd')", "reject('gt', 1)", "batch(2) | map('sum')", "list")
        ),
        *("(<list> if <truth> else <list>)", "(ctx.d | dictsort | map('length') | list)"),
        *(
            "(ctx.r | selectattr('k', 'gt', <number>) | map(attribute='k') | list)",
            "(<list> | slice(2) | map('sum') | list)",
        ),
        *("(ctx.r | groupby('v') | map('length') | list)", "(ctx.r | sort(attribute='k') | map(attribute='k') | list)"),
    ],
    "truth": [
        *(
            f"(<{kind}> {sign} <{kind}>)"
            for kind in ("number", "text", "list")
            for sign in ("==", "!=", "<", "<=", ">")
        ),
        *(
            "(<number> < <number> <= <number>)",
            "(<number> in <list>)",
            "(<number> not in <list>)",
            "(<text> in <text>)",
        ),
        *("(<truth> and <truth>)", "(<truth> or <truth>)", "(not <truth>)", "(not <list>)", "(not <text>)"),
        *(f"(<list> is {name})" for name in ("sequence", "iterable", "not mapping", "defined", "not none")),
        *(f"(<text> is {name})" for name in ("string", "lower", "upper", "not number", "eq 'a'")),
        *(f"(<number> is {name})" for name in ("number", "integer", "divisibleby 3", "odd", "even", "float", "gt 3")),
        *("(<text>.startswith('a'))", "(<text>.isdigit())", "(<text>.endswith(<text>))"),
    ],
}


@st.composite
def shared(draw: st.DrawFn, kind: str, depth: int = 3) -> str:
    """An expression of this type."""
    form = draw(st.sampled_from(LEAVES[kind] + GROWN[kind] if depth else LEAVES[kind]))
    return re.sub(r"<(\w+)>", lambda part: draw(shared(part[1], depth - 1)), form)


def plain(value: Any) -> Any:
    """Jinja's value as JSON; fails if a part of it is undefined."""
    assert not isinstance(value, Undefined)
    if isinstance(value, list | tuple | Iterator):
        return [plain(element) for element in value]
    return str(value) if isinstance(value, str) else value


def by_jinja(expression: str) -> tuple[str, Any]:
    try:
        value = JINJA.compile_expression(expression, undefined_to_none=False)(ctx=VALUES)
        return "value", repr(plain(value))
    except Exception:  # whatever Jinja lets through
        return "error", None


def by_us(expression: str) -> tuple[str, Any]:
    template = compile_template(f"{{{{ {expression} }}}}", namespaces=NAMESPACES, bindings={})
    try:
        return "value", repr(render(template, SCOPE))
    except ExpressionError:
        return "error", None


@settings(max_examples=times(200), deadline=None)
@given(st.sampled_from(sorted(LEAVES)).flatmap(shared))
def test_an_expression_has_the_same_value_as_in_jinja(expression: str) -> None:
    assert by_us(expression) == by_jinja(expression)


# --- anything at all ---

ROOTS = ["ctx", "workload", "iter", "steps", "results", "outcome", "event", "_prev", "load", "fetch", "args", "vars"]
KEYS = ["total", "items", "none", "rows", "data", "outcome", "error", "status", "results", "n", "a", "name"]
ATOMS = [
    "0",
    "-1",
    "3",
    "10 ** 9",
    "1e300",
    "true",
    "none",
    "''",
    "'a b'",
    "'%s %5d'",
    "[]",
    "{}",
    "[1, 'a']",
    "range(9)",
]
ARGS = ["", "()", "(1)", "('a')", "(-9)", "('n', 'gt', 1)", "(attribute='n')", "('upper')", "(*[1, 2])", "(1, 2, 3)"]

atoms = st.one_of(
    st.sampled_from(ATOMS),
    st.builds(
        lambda root, keys: ".".join([root, *keys]), st.sampled_from(ROOTS), st.lists(st.sampled_from(KEYS), max_size=3)
    ),
)


def either(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    pieces = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*pieces).map(lambda made: f"({' '.join(made)})")


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or"]
    return st.one_of(
        joined(inner, st.sampled_from(operators), inner),
        joined(
            inner, "|", st.sampled_from(sorted(FILTERS)).flatmap(lambda name: either(*(name + args for args in ARGS)))
        ),
        joined(
            inner,
            "is",
            st.sampled_from(sorted(name for name in TESTS if name.isidentifier())),
            either("", "(1)", "([1])"),
        ),
        st.builds(
            lambda value, name, args: f"{value}.{name}{args or '()'}", inner, either(*sorted(METHODS)), either(*ARGS)
        ),
        joined(inner, "[", inner, "]"),
        joined(inner, "[", inner, ":", inner, "]"),
        joined(inner, "if", inner, "else", inner),
        joined("{'k':", inner, "}"),
        joined("[", inner, ",", inner, "]"),
        joined(either("not", "-"), inner),
    )


anything = st.recursive(atoms, grown, max_leaves=8)


def rendered(text: str, in_scope: Scope) -> tuple[str, Any]:
    try:
        template = compile_template(text, namespaces=NAMESPACES, bindings=BINDINGS)
        return "value", encode(render(template, in_scope))
    except TemplateProblem as problem:
        return "problem", problem.message
    except ExpressionError as error:
        return "error", error.message


@settings(max_examples=times(300), deadline=None)
@given(anything)
def test_any_expression_ends_in_a_problem_an_error_or_json_and_always_in_the_same(expression: str) -> None:
    text = f"{{{{ {expression} }}}}"
    first = rendered(text, scope())
    assert rendered(text, scope()) == first
    in_text = rendered(f"a {text}", scope())[0]
    assert in_text == first[0] or {in_text, first[0]} == {"value", "error"}


@settings(max_examples=times(200), deadline=None)
@given(anything)
def test_any_guard_is_refused_or_fails_or_decides_and_always_the_same(expression: str) -> None:
    try:
        guard = compile_guard(f"{{{{ {expression} }}}}", namespaces=NAMESPACES, bindings=BINDINGS)
    except TemplateProblem:
        return
    decisions = set()
    for _ in range(2):
        try:
            decisions.add(holds(guard, scope()))
        except ExpressionError as error:
            decisions.add(error.message)
    assert len(decisions) == 1


BLOCKS = [
    "{% for x in EXPRESSION %}{{ x }}{{ loop.index }}{% else %}none{% endfor %}",
    "{% set x = EXPRESSION %}{{ x ~ x }}",
    "{% set n = namespace(x=EXPRESSION) %}{% set n.x = [n.x, n.x] %}{{ n.x }}",
    "{% macro m(a, b=EXPRESSION) %}{{ a }}{{ b }}{% endmacro %}{{ m(EXPRESSION) }}",
    "{% if EXPRESSION %}{{ EXPRESSION }}{% elif ctx.total %}{% endif %}",
    "{% call(x) m(EXPRESSION) %}{{ x }}{% endcall %}",
    "{% macro m(a) %}{{ caller(a) }}{% endmacro %}{% call(x) m(EXPRESSION) %}{{ x }}{% endcall %}",
    "{% filter upper %}{{ EXPRESSION }}{% endfilter %}",
    "{% with x = EXPRESSION %}{{ x }}{% endwith %}",
    "{% for x in EXPRESSION recursive %}{{ loop(x) if loop.depth < 3 else x }}{% endfor %}",
    "{% for a, b in EXPRESSION if a %}{{ a }}{{ b }}{% endfor %}",
]


@settings(max_examples=times(200), deadline=None)
@given(st.sampled_from(BLOCKS), anything)
def test_any_block_ends_in_a_problem_an_error_or_text_and_always_in_the_same(block: str, expression: str) -> None:
    text = block.replace("EXPRESSION", expression)
    assert rendered(text, scope()) == rendered(text, scope())
