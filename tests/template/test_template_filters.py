"""Filters and tests (LANGUAGE §2: deterministic, plain JSON values only)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from template_rendering import NAMESPACES, failure, rendered, scope

from noetl_stream.template import ExpressionError, ReferenceNeeded, TemplateProblem, compile_template, render


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("ctx.name | upper | lower | title | capitalize", "Ada"),
        ("' a ' | trim", "a"),
        ("ctx.rows | length", 3),
        ("ctx.rows | count", 3),
        ("ctx.rows | sort", [1, 2, 3]),
        ("ctx.rows | sort(reverse=true) | first", 3),
        ("ctx.rows | last", 2),
        ("ctx.rows | min", 1),
        ("ctx.rows | max", 3),
        ("ctx.rows | sum", 6),
        ("items | sum(attribute='n', start=10)", 13),
        ("[[1], [2]] | sum(start=[])", [1, 2]),
        ("ctx.rows | reverse", [2, 1, 3]),
        ("'abc' | reverse", "cba"),
        ("ctx.rows | map('string') | join('-')", "3-1-2"),
        ("ctx.rows | join(', ')", "3, 1, 2"),
        ("items | join(',', attribute='n')", "1,2"),
        ("items | map(attribute='n')", [1, 2]),
        ("items | map(attribute='x', default=0)", [0, 0]),
        ("items | selectattr('n', 'eq', 2)", [{"n": 2}]),
        ("items | rejectattr('x', 'defined') | list | length", 2),
        ("ctx.rows | select('odd')", [3, 1]),
        ("ctx.rows | reject('odd')", [2]),
        ("[1, 1, 2] | unique", [1, 2]),
        ("[1, 2, 3] | batch(2)", [[1, 2], [3]]),
        ("[1, 2, 3] | batch(2, 0)", [[1, 2], [3, 0]]),
        ("[1, 2, 3] | slice(2)", [[1, 2], [3]]),
        ("[1, 2, 3] | slice(2, 0)", [[1, 2], [3, 0]]),
        ("{'b': 1, 'a': 2} | dictsort", [["a", 2], ["b", 1]]),
        ("workload.deep | items", [["a", {"b": 1}]]),
        ("'12' | int + 1", 13),
        ("'x' | int", 0),
        ("'x' | int(-1)", -1),
        ("'1.5' | float", 1.5),
        ("2.567 | round(1)", 2.6),
        ("-3 | abs", 3),
        ("ctx.total | string", "7"),
        ("none | string", "None"),
        ("'a.b' | replace('.', '-')", "a-b"),
        ("'%s=%s' | format('a', 1)", "a=1"),
        ("'%(k)s' | format(k='v')", "v"),
        ("'%05.1f' % 3.14159", "003.1"),
        ("'a b&c' | urlencode", "a%20b%26c"),
        ("'a b c' | wordcount", 3),
        ("'abcdef' | truncate(3, true, '', 0)", "abc"),
        ("'a' | center(3)", " a "),
        ("'a\nb' | indent(2)", "a\n  b"),
        ("'a\nb' | indent('> ', first=true)", "> a\n> b"),
        ("'<b>' | e", "&lt;b&gt;"),
        ("dict(a=1)", {"a": 1}),
    ],
)
def test_filters_of_templates(expression: str, value: Any) -> None:
    assert rendered("{{ " + expression + " }}") == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{'b': [1, none, true], 'a': '<é>'} | tojson", '{"b": [1, null, true], "a": "<é>"}'),
        ("outcome.error | tojson", "null"),
        ("fetch | tojson", '{"data": {"rows": [1, 2, 3]}, "status": 200}'),
        ("[1] | tojson(indent=1)", "[\n 1\n]"),
        ("([1] | tojson) ~ '<' + '>'", "[1]<>"),
    ],
)
def test_tojson_writes_plain_json_in_the_order_given(expression: str, value: str) -> None:
    assert rendered("{{ " + expression + " }}") == value


@pytest.mark.parametrize(
    "expression",
    [
        *("3 is odd", "4 is even", "4 is divisibleby 2", "'a' is string", "1 is number", "1.5 is float"),
        *("1 is integer", "true is boolean", "true is true", "[] is sequence", "{} is mapping", "[] is iterable"),
        *("'a' is lower", "1 is in [1]", "1 is eq 1", "2 is gt 1", "none is none", "1 is not none", "1 is defined"),
        *("[] is not mapping", "outcome.error is not iterable"),
    ],
)
def test_tests_of_templates(expression: str) -> None:
    assert rendered("{{ " + expression + " }}") is True


def test_an_empty_selection_is_false_and_has_a_length() -> None:
    assert rendered("{{ 'some' if ctx.rows | select('gt', 9) else 'none' }}") == "none"
    assert rendered("{{ ctx.rows | select('gt', 1) | length }}") == 2


def test_batch_of_a_table_gives_parts_of_it_also_of_a_part() -> None:
    table = {"key": "e/c/1.1.n/0/parts-1", "size": 9, "checksum": "sha256:0", "seal": "AAAA", "rows": 5, "columns": []}
    parts = rendered("{{ ctx.table | batch(2) }}", ctx={"table": table})
    assert [(part["first"], part["rows"]) for part in parts] == [(0, 2), (2, 2), (4, 1)]
    assert parts[0] == {**table, "first": 0, "rows": 2}
    inner = rendered("{{ (ctx.table | batch(3))[1] | batch(1) }}", ctx={"table": table})
    assert [(part["first"], part["rows"]) for part in inner] == [(3, 1), (4, 1)]
    assert rendered("{{ ctx.table | batch(2) }}", ctx={"table": {**table, "rows": 0}}) == []
    message = failure("{{ ctx.table | batch(0) }}", ctx={"table": table}).message
    assert "`batch` takes a whole number of rows of at least 1" in message


TABLE = {"key": "e/c/1.1.n/0/parts-1", "size": 9, "checksum": "sha256:0", "seal": "AAAA", "rows": 3, "columns": []}


def test_head_of_a_table_asks_for_its_first_rows_and_gives_as_many_as_are_wanted() -> None:
    head = compile_template("{{ ctx.table | head(2) }}", bindings={}, namespaces=NAMESPACES)
    given = scope(ctx={"table": TABLE})
    with pytest.raises(ReferenceNeeded) as needed:
        render(head, given)
    reference = needed.value.reference
    assert (reference.store, reference.key) == ("head", "e/c/1.1.n/0/head")
    assert reference.table is not None and reference.table.seal == "AAAA"
    loaded = replace(given, references={reference.key: [{"a": 1}, {"a": 2}, {"a": 3}]})
    assert render(head, loaded) == [{"a": 1}, {"a": 2}]
    with pytest.raises(ExpressionError, match="`head` has 1 rows of this table"):
        render(head, replace(given, references={reference.key: [{"a": 1}]}))


@pytest.mark.parametrize(
    ("table", "rows", "message", "hint"),
    [
        (TABLE, "20 + 1", "`head` gives 1 to 20 rows, not 21", "kind duckdb"),
        (TABLE, "1 - 1", "`head` gives 1 to 20 rows, not 0", "kind duckdb"),
        ({**TABLE, "first": 2}, "1", "not a part of one", "kind duckdb"),
        ([1], "1", "`head` takes a table by reference, not a list", "write [:10] of a list"),
    ],
)
def test_head_says_what_it_cannot_give(table: Any, rows: str, message: str, hint: str) -> None:
    found = failure(f"{{{{ ctx.table | head({rows}) }}}}", ctx={"table": table})
    assert message in found.message and hint in (found.hint or "")


@pytest.mark.parametrize("rows", ["50", "0", "rows=21", "'all'", "true"])
def test_a_number_of_first_rows_that_no_table_has_is_refused_before_any_run(rows: str) -> None:
    with pytest.raises(TemplateProblem, match="`head` gives 1 to 20 rows, not") as refused:
        compile_template(f"{{{{ ctx.table | head({rows}) }}}}", bindings={}, namespaces=NAMESPACES)
    assert "kind duckdb" in (refused.value.problems[0].hint or "")


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("1 | tojson(indent=99)", "`indent` of `tojson`"),
        ("1.5 | round(1000)", "`precision` of `round`"),
        ("ctx.rows | items", "takes a mapping"),
        ("'%*d' % [9, 1]", "`%` does not start a placeholder"),
        ("'%s' | format(1, a=2)", "not both"),
        ("'%s %s' % [1]", "not enough arguments"),
        ("ctx.rows | sort(attribute='x')", "`x` is undefined"),
        ("ctx.rows | batch", "missing 1 required"),
        ("[1, 'a'] | sort", "not supported between"),
        ("outcome.error | int", "filter `int` does not accept an absent value"),
    ],
)
def test_filters_reject_invalid_values(expression: str, part: str) -> None:
    assert part in failure("{{ " + expression + " }}").message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ 'a' | replace }}", "`replace` missing 2 required positional arguments"),
        ("{{ [1] | groupby }}", "`groupby` missing 1 required positional argument"),
        ("{{ 'a' | truncate(size=1) }}", "`truncate` got an unexpected keyword argument 'size'"),
        ("{{ 1 | default(1, 2, 3) }}", "`default` takes from 1 to 3 positional arguments"),
        ("{{ 1 is divisibleby }}", "`divisibleby` missing 1 required positional argument"),
        ("{{ 1 is in }}", "`in` missing 1 required positional argument"),
        ("{{ ctx.get() }}", "`get` missing 1 required positional argument"),
    ],
)
def test_an_invalid_call_is_reported_by_its_template_name(text: str, message: str) -> None:
    assert failure(text).message.startswith(message)
