"""Closures and sandbox agree on random expressions; random texts never break the compiler."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from template_rendering import BINDINGS, NAMESPACES, scope

from effort import times
from noetl_stream.model.json.codec import encode
from noetl_stream.template import ExpressionError, TemplateProblem, compile_template, render
from noetl_stream.template.compile.evaluators import (
    ENVIRONMENT,
    direct_expression,
    direct_text,
    sandboxed_expression,
    sandboxed_text,
)
from noetl_stream.template.compile.expressions import ExpressionBinder
from noetl_stream.template.compile.parsing import Findings, Names, parse, single_expression
from noetl_stream.template.compile.statements import StatementBinder
from noetl_stream.template.runtime.evaluation import Expression
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import Scope

SCOPE = scope()

KEYS = ["total", "items", "none", "empty", "name", "rows", "absent_key", "data", "status", "outcome", "error"]
ROOTS = ["ctx", "workload", "iter", "steps.load", "steps.later", "results.list", "results.failed", "outcome", "event"]
ROOTS += ["_prev", "total", "load", "fetch", "page", "vars", "steps", "execution_id"]

links = st.one_of(
    st.sampled_from(KEYS).map(lambda key: f".{key}"),
    st.sampled_from(["[0]", "[-1]", "['name']", "[iter.index]", "[ctx.none]", "[true]", "[1.5]"]),
)
paths = st.builds(lambda root, rest: root + "".join(rest), st.sampled_from(ROOTS), st.lists(links, max_size=3))
literals = st.sampled_from(["0", "1", "-2.5", "7", "true", "none", "''", "'Ada'", "'ok'", "[]", "{}", "[1, 'ok']"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger expressions of the kinds that closures cover."""
    two = st.tuples(inner, inner)
    return st.one_of(
        st.builds(lambda pair, op: f"({pair[0]} {op} {pair[1]})", two, st.sampled_from(COMPARISONS)),
        st.builds(lambda pair, op: f"({pair[0]} {op} {pair[1]})", two, st.sampled_from(["and", "or", "+"])),
        st.builds(lambda value: f"(not {value})", inner),
        st.builds(lambda value, test: f"({value} is {test})", inner, st.sampled_from(TESTS)),
        st.builds(lambda pair: f"({pair[0]} | default({pair[1]}))", two),
        st.builds(lambda pair: f"({pair[0]} | d({pair[1]}, true))", two),
        st.builds(lambda pair: f"[{pair[0]}, {pair[1]}]", two),
        st.builds(lambda value: f"{{'k': {value}}}", inner),
        st.builds(lambda pair, test: f"({pair[0]} if {test} else {pair[1]})", two, inner),
        st.builds(lambda value, test: f"({value} if {test})", inner, inner),
        st.builds(lambda value: f"({value} in ['ok', 'Ada', 7])", inner),
    )


COMPARISONS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
TESTS = ["defined", "not defined", "undefined", "none", "not none"]

expressions = st.recursive(st.one_of(paths, literals), grown, max_leaves=6)


def outcome(expression: Expression, in_scope: Scope) -> Any:
    """The value with its type, or the error's message and hint."""
    try:
        value = expression.value(in_scope, Meter())
    except ExpressionError as error:
        return ("error", error.message, error.hint)
    return ("value", repr(value))


def bound(text: str) -> tuple[Any, Any]:
    tree = parse(ENVIRONMENT, text)
    findings = Findings(text, ())
    binder = ExpressionBinder(Names(NAMESPACES, BINDINGS, frozenset()), findings)
    StatementBinder(binder, findings, only_output=True).body(tree.body)
    assert not findings.problems
    return tree, binder.functions


@settings(max_examples=times(150), deadline=None)
@given(expressions)
@example("(steps.later.data == none)")
@example("(ctx.absent_key | default(ctx.none))")
def test_closures_and_sandbox_give_the_same_value_or_error(expression: str) -> None:
    text = f"{{{{ {expression} }}}}"
    tree, reads = bound(text)
    node = single_expression(tree)
    assert node is not None
    direct = Expression(text, direct_expression(node, reads))
    sandboxed = Expression(text, sandboxed_expression(node, reads))
    assert outcome(direct, SCOPE) == outcome(sandboxed, SCOPE)
    try:
        held: Any = direct.truth(SCOPE, Meter())
    except ExpressionError as error:
        held = error.message
    try:
        also_held: Any = sandboxed.truth(SCOPE, Meter())
    except ExpressionError as error:
        also_held = error.message
    assert held == also_held


@settings(max_examples=times(150), deadline=None)
@given(
    st.lists(st.one_of(expressions.map(lambda text: f"{{{{ {text} }}}}"), st.sampled_from(["a", " b\n"])), max_size=4)
)
def test_closures_and_sandbox_write_the_same_text(pieces: list[str]) -> None:
    text = "x" + "".join(pieces)
    tree, reads = bound(text)
    direct, sandboxed = Expression(text, direct_text(tree, reads)), Expression(text, sandboxed_text(tree, reads))
    assert outcome(direct, SCOPE) == outcome(sandboxed, SCOPE)


MARKS = ["{{", "}}", "{%", "%}", "{#", "#}", "-", "(", ")", "[", "]", "{", "}", ".", ",", ":", "|", "~", "+", "*", "**"]
SIGNS = ["/", "%", "==", "<", "'a'", '"', "1", "2.5", "\r\n", "\n", "\\", "é", "\x00"]
WORDS = ["ctx", "total", "who", "x", "upper", "default", "is", "defined", "not", "and", "or", "loop", "range", "none"]
TAGS = ["for", "in", "if", "else", "endif", "endfor", "set", "endset", "macro", "endmacro", "call", "endcall", "filter"]
TAGS += ["endfilter", "with", "endwith", "import", "include", "block", "endblock", "raw", "endraw", "autoescape"]
SOUP = st.sampled_from([*MARKS, *SIGNS, *WORDS, *TAGS, "namespace", "true"])


def check_value_or_error(text: str) -> None:
    """``text`` is refused with places in it, or it fails as itself, or its value is JSON."""
    try:
        template = compile_template(text, namespaces=NAMESPACES, bindings=BINDINGS)
    except TemplateProblem as problem:
        lines = text.splitlines() or [""]
        for found in problem.problems:
            assert 1 <= found.line <= len(lines) + 1
            assert found.column >= 1
        return
    try:
        assert encode(render(template, SCOPE))
    except ExpressionError as error:
        assert error.expression == text


@settings(max_examples=times(200), deadline=None)
@given(st.lists(SOUP, min_size=1, max_size=14).map(" ".join))
@example("{% autoescape true %}{% endautoescape %}")
@example("{% filter default %}{% endfilter %}")
def test_any_text_is_rendered_or_refused_with_places_in_it(text: str) -> None:
    check_value_or_error(text)


@pytest.mark.parametrize("inner", ["{{ X }}", "{% set x = X %}{{ x }}", "{% if X %}{% endif %}", "a {{ X | d }}"])
@settings(max_examples=times(150), deadline=None)
@given(st.lists(SOUP, min_size=1, max_size=6).map(" ".join))
def test_any_expression_is_evaluated_or_refused(inner: str, soup: str) -> None:
    check_value_or_error(inner.replace("X", soup))
