from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.postgres.statements import split_statements
from noetl_stream.tools.sql import check_params


def texts(sql: str) -> list[str]:
    return [statement.text for statement in split_statements(sql)]


def names(sql: str) -> list[str]:
    return [parameter.name for statement in split_statements(sql) for parameter in statement.parameters]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        (" select 1 ;\n\n select 2 ; ", ["select 1", "select 2"]),
        ("", []),
        (" ;; ; ", []),
        ("-- nothing\n/* at all */", []),
        ("-- a\nselect 1; -- b\n", ["-- a\nselect 1"]),
        ("1", ["1"]),
        ("select ';'; select 2", ["select ';'", "select 2"]),
        ("select 'it''s;'; select 2", ["select 'it''s;'", "select 2"]),
        (r"select E'it\';s'; select 2", [r"select E'it\';s'", "select 2"]),
        (r"select 'a\'; select 2", [r"select 'a\'", "select 2"]),
        ('select 1 as "a;""b"; select 2', ['select 1 as "a;""b"', "select 2"]),
        ("select $$a;b$$; select 2", ["select $$a;b$$", "select 2"]),
        ("select $x$a;$$;b$x$; select 2", ["select $x$a;$$;b$x$", "select 2"]),
        ("select 1 -- a;b\n; select 2", ["select 1 -- a;b", "select 2"]),
        ("select 1 /* a; /* b; */ c; */; select 2", ["select 1 /* a; /* b; */ c; */", "select 2"]),
        ("create rule r as on insert to t do (select 1; select 2); select 3", None),
        (
            "create function f() returns int begin atomic select case when true then 1 end; select 2; end; select 3",
            None,
        ),
        ("begin; select 1; end; select 2", ["begin", "select 1", "end", "select 2"]),
        ("select 'open; select 2", ["select 'open; select 2"]),
        ("select /* open; select 2", ["select /* open; select 2"]),
        ("select $a$ open; select 2", ["select $a$ open; select 2"]),
    ],
)
def test_text_is_split_at_semicolons_that_end_a_statement(sql: str, expected: list[str] | None) -> None:
    if expected is None:
        assert len(split_statements(sql)) == 2
        assert texts(sql)[1] == "select 3"
    else:
        assert texts(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select $a, $b_1, $a", ["a", "b_1", "a"]),
        ("select $1::int, $12", ["1", "12"]),
        ("select $a::int, x.y::text", ["a"]),
        ("select '$a', \"$b\", $$ $c $$, $t$ $d $t$ -- $e\n, /* $f */ $g", ["g"]),
        (r"select E'\'$a', $b", ["b"]),
        ("select name$a, $a", ["a"]),
        ("select $größe", ["größe"]),
        ("select 1; select $b", ["b"]),
    ],
)
def test_parameters_are_found_only_in_sql(sql: str, expected: list[str]) -> None:
    assert names(sql) == expected


def test_a_parameter_knows_its_place_in_its_statement() -> None:
    second = split_statements("select 1;\n  select $a")[1]
    [parameter] = second.parameters
    assert second.text[parameter.start : parameter.end] == "$a"


def test_a_statement_knows_its_first_line() -> None:
    assert [it.line for it in split_statements("\nselect 1;\n\n\nselect 2; select 3")] == [2, 5, 5]


CLOSED = ["a", "1", "$p", "';'", "E'\\';'", '";"', "$$;$$", "$t$;$$;$t$", "(1; 2)", "/* ; /* ; */ */", "-- ;\n"]
"""Pieces of SQL that are whole in themselves."""


STATEMENTS = st.lists(st.sampled_from(CLOSED)).map(lambda pieces: " ".join(["select", *pieces]))


@given(st.lists(STATEMENTS, max_size=5))
def test_statements_are_split_where_they_were_joined(statements: list[str]) -> None:
    assert texts(";".join(statements)) == [statement.strip() for statement in statements]


@given(st.lists(st.sampled_from([*"a$1;'\"-/*\n()eE\\ ", "$$", "$t$", "begin", "atomic"]), max_size=40))
def test_splitting_statements_loses_and_invents_no_text(parts: list[str]) -> None:
    sql = "".join(parts)
    between, position = "", 0
    for text in texts(sql):
        start = sql.index(text, position)
        between += sql[position:start]
        position = start + len(text)
    between += sql[position:]
    if "--" not in sql and "/*" not in sql:  # comments between statements are left out
        assert not between.strip("; \n")


@pytest.mark.parametrize(
    ("params", "named", "message"),
    [
        (None, [["a"]], "statement 1 uses $a, but the task has no params"),
        ({"b": 1, "c": 2}, [["b", "c"], ["a"]], "statement 2 uses $a, but params has b, c"),
        ([1], [["1", "2"]], "statement 1 uses $2, but params is a list of 1"),
        ([1], [["a"]], "statement 1 uses $a, but params is a list of 1; use a mapping for names"),
        ({"a": 1, "b": 2}, [["a"]], "params.b: no statement uses $b"),
        ([1, 2], [["1"]], "params[1]: no statement uses $2"),
    ],
)
def test_parameters_and_statements_must_fit(params: Any, named: list[list[str]], message: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        check_params(params, [("", names) for names in named])
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message == message


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"a": 1, "b": 2}, [["a"], [], ["b", "a"]]),
        ([1, 2], [["2"], ["1", "1"]]),
        (None, [[]]),
        ({}, [[]]),
    ],
)
def test_each_statement_takes_the_parameters_that_it_names(params: Any, named: list[list[str]]) -> None:
    statements = [("", names) for names in named]
    check_params(params, statements)
    with pytest.raises(ToolFailure, match=f"statement {len(named) + 1} uses"):
        check_params(params, [*statements, ("", ["3"])])


@pytest.mark.parametrize(
    ("params", "statement", "written"),
    [
        ({"n": 1}, "select %(n)s as n", "%(n)s"),
        ({"n": 1}, "select :n", ":n"),
        ({"n": 1}, "select @n", "@n"),
        ([1], "select %s", "%s"),
        ([1], "select ?", "?"),
    ],
)
def test_a_placeholder_of_another_driver_is_named_with_its_statement(params: Any, statement: str, written: str) -> None:
    name = "n" if isinstance(params, dict) else "1"
    with pytest.raises(ToolFailure) as failed:
        check_params(params, [("select 1", []), (statement, [])])
    text = f"no statement uses ${name}; statement 2 writes {written}, and parameters are written ${name}"
    assert failed.value.error.message.endswith(text)


@pytest.mark.parametrize("statement", ["select '1'::n", "select :names", "select a ?| b", "select 1"])
def test_other_sql_is_not_taken_for_such_a_placeholder(statement: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        check_params({"n": 1}, [(statement, [])])
    assert failed.value.error.message == "params.n: no statement uses $n"


def test_each_of_many_statements_knows_its_line() -> None:
    found = split_statements("".join(f"select {n}\n  as a;\n" for n in range(1000)))
    assert [statement.line for statement in found] == [2 * n + 1 for n in range(1000)]
