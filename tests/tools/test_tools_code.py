"""``check`` reads the Python and SQL of a playbook with the parsers of the kinds, and runs none of it (LANGUAGE §3)."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from noetl_stream.playbook.check.code import MAX_PARSED_CHARS, MAX_PARSED_IN_ALL
from noetl_stream.playbook.compile.compiler import check, check_again
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.tools.postgres.syntax import COMMANDS
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: p }\nworkload: { n: 1 }\nworkflow:\n"


def problems(tasks: str) -> list[Diagnostic]:
    """Those of a pipeline that begins on line 8."""
    text = f"{HEAD}  - step: start\n    tool:\n" + indent(dedent(tasks).strip("\n"), "      ")
    return [one for one in check(text, KINDS).diagnostics if one.code == "code_syntax"]


def of_code(kind: str, code: str) -> list[Diagnostic]:
    name = "code" if kind == "python" else "command"
    task = {"kind": kind, name: code, **({"auth": "db"} if kind == "postgres" else {})}
    return problems(f"- {json.dumps(task)}")


def places(tasks: str) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.severity) for one in problems(tasks)]


def test_python_that_does_not_parse_is_an_error_at_its_line() -> None:
    block = """
        - kind: python
          code: |
            n = 1
            if n
                return n
    """
    [problem] = problems(block)
    assert (problem.line, problem.column, problem.severity) == (11, 15, "error")
    assert problem.message == "`code`: not Python: expected ':'"
    assert places("- { kind: python, code: 'return (1' }") == [(8, 39, "error")]


@pytest.mark.parametrize(
    "code",
    [
        "return 1",
        "if args:\n    return 1\nresult = 2",
        "from __future__ import annotations\nimport os\nreturn os.name",
        "def main(a=1):\n    return a",
        "async def main():\n    return 1",
        "result = {{ 1, 2 }} if False else f'{execution_id}'",
        "-" * 60_000 + "1",  # how deep code may be nested depends on the process
    ],
)
def test_python_that_runs_is_no_problem(code: str) -> None:
    assert of_code("python", code) == []


@pytest.mark.parametrize("code", ["break", "yield 1", "x = (", "return 1 +", "\0", "(" * 5_000])
def test_python_that_cannot_run_is_an_error_however_it_is_wrong(code: str) -> None:
    checked = check(
        HEAD + f"  - step: start\n    tool: {json.dumps({'kind': 'python', 'code': code})}", KINDS
    ).diagnostics
    assert [one.severity for one in checked] == ["error"] * len(checked) != []


def test_a_warning_of_python_is_not_shown() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert of_code("python", "result = 1 is 1") == []
    assert shown == []


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ("- kind: duckdb\n  command: |\n    select 1;\n\n    select 2 form t where and", [(12, 25, "error")]),
        ("- kind: duckdb\n  command: select 1 where and", [(9, 33, "error")]),
        ("- kind: duckdb\n  query: >-\n    select 1\n    where and", [(11, 17, "error")]),
        ('- kind: duckdb\n  commands: ["select 1", "select \'a\' wher and"]', [(9, 49, "error")]),
    ],
    ids=["block", "plain", "folded", "list"],
)
def test_duckdb_judges_its_sql_itself_at_its_place(tasks: str, expected: list[tuple[int, int, str]]) -> None:
    assert places(tasks) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "from t select a",
        "select $a + $b",
        "pivot t on a using sum(b)",
        "summarize t",
        "select * exclude (a) from t;",
        "create table t (a int); insert into t by name select 1 as a; -- end",
        "select [x for x in [1, 2]], {'a': 1}",
        "",
    ],
)
def test_sql_that_duckdb_reads_is_no_problem(sql: str) -> None:
    assert of_code("duckdb", sql) == []


@pytest.mark.parametrize(
    ("sql", "message", "line", "severity"),
    [
        ("select 'a", "`'` is not closed", 8, "error"),
        ('select "a', '`"` is not closed', 8, "error"),
        ("select $q$ a $p$", "`$q$` is not closed", 8, "error"),
        ("select 1 /* a", "`/*` is not closed", 8, "error"),
        ("select (1", "`(` is not closed", 8, "error"),
        ("select 1)", "`)` closes nothing", 8, "error"),
        ("insert into t values (1); commit", "COMMIT is not allowed", 8, "error"),
        ("copy t from stdin", "COPY from or to the client is not supported", 8, "error"),
        ("-- selec\nselec 1", "no statement of Postgres begins with `selec`", 8, "warning"),
    ],
)
def test_check_reports_sql_that_no_version_of_postgres_runs(sql: str, message: str, line: int, severity: str) -> None:
    [problem] = of_code("postgres", sql)
    assert (problem.severity, problem.line) == (severity, line)
    assert problem.message.startswith(f"`command`: {message}")


def test_the_place_in_postgres_sql_is_that_of_the_statement_and_its_hint_the_word() -> None:
    tasks = """
        - kind: postgres
          auth: db
          command: |
            select 1;
            -- next
            updat t set a = (1);
            select ((2);
        - kind: postgres
          auth: db
          command: |
            select 1;
            -- next
            updat t set a = (1)
    """
    assert places(tasks) == [(14, 18, "error"), (20, 11, "warning")]
    assert problems(tasks)[1].hint == "did you mean `update`?"


@pytest.mark.parametrize(
    "sql",
    [
        "(select 1)",
        "select e'it\\'s', 'it''s', $$ ( ' $$, \"a(\" /* ( /* */ ) */ -- '",
        "create function f() returns int begin atomic select 1; select 2; end; select $name",
        "savepoint s; rollback to s; release s",
        *(word for word in sorted(COMMANDS - {"begin", "start", "commit", "end", "rollback", "abort"})),
    ],
)
def test_checks_that_only_the_server_can_make_are_left_to_it(sql: str) -> None:
    assert of_code("postgres", sql) == []


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
def test_rendered_sql_is_left_to_the_run(kind: str) -> None:
    assert of_code(kind, "select {{ workload.n }} form (") == []


@pytest.mark.parametrize(("kind", "wrong"), [("python", "("), ("duckdb", "select 1 form form"), ("postgres", "(")])
def test_a_long_text_is_left_to_the_run(kind: str, wrong: str) -> None:
    comment = "#" if kind == "python" else "--"
    assert of_code(kind, f"{wrong}\n{comment} {'x' * 100}") != []
    assert of_code(kind, f"{wrong}\n{comment} {'x' * MAX_PARSED_CHARS}") == []


def test_of_many_texts_of_code_the_last_are_left_to_the_run() -> None:
    long = f"# {'x' * (MAX_PARSED_CHARS - 10)}\n("
    tasks = "\n".join(f"- {json.dumps({'kind': 'python', 'code': f'{long} {n}'})}" for n in range(4))
    assert len(problems(tasks)) == MAX_PARSED_IN_ALL // MAX_PARSED_CHARS


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        (
            "select %(n)s as n",
            {"n": "{{ workload.n }}"},
            "params.n: no statement uses $n; statement 1 writes %(n)s, and parameters are written $n",
        ),
        (["select $a", "select $b"], {"a": 1}, "statement 2 uses $b, but params has a"),
        ("select $1, $2", [1], "statement 1 uses $2, but params is a list of 1"),
        ("select $a", None, "statement 1 uses $a, but the task has no params"),
        (["select $a", "select $b"], {"a": 1, "b": [1]}, None),
        ("select $a", "{{ workload.n }}", None),
        ("select {{ workload.n }}", {"a": 1}, None),
        ("select ($a", {"b": 1}, None),
    ],
)
def test_params_that_no_run_can_bind_are_an_error(kind: str, sql: Any, params: Any, message: str | None) -> None:
    auth = {"auth": "db"} if kind == "postgres" else {}
    task = {"kind": kind, "command": sql, **auth, **({} if params is None else {"params": params})}
    text = f"{HEAD}  - step: start\n    tool: {json.dumps(task)}"
    found = [one.message for one in check(text, KINDS).diagnostics if one.code == "invalid_value"]
    is_readable = kind == "postgres" or "%" not in str(sql)
    assert found == ([] if message is None or not is_readable else [message])
    assert message is None or check_again(text, KINDS).ok


def test_checking_code_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "made"
    assert of_code("python", f"open({str(file)!r}, 'w').close()") == []
    assert of_code("duckdb", f"copy (select 1) to '{file}'; export database '{file}'; attach '{file}'") == []
    assert not file.exists()


def test_an_alias_is_one_problem_and_an_unused_entry_of_the_workbook_is_read() -> None:
    text = HEAD + dedent("""\
          - step: start
            tool:
              - { kind: python, code: &code "return (" }
              - { kind: python, code: *code }
        workbook:
          tasks:
            unused: { kind: duckdb, command: select from from }
        """)
    found = [(one.code, one.line) for one in check(text, KINDS).diagnostics if one.code == "code_syntax"]
    assert found == [("code_syntax", 8), ("code_syntax", 12)]


def test_an_execution_that_began_does_not_end_because_of_code_that_it_may_never_reach() -> None:
    """Servers and workers compile what was checked when it came in, by an older version perhaps."""
    task: dict[str, Any] = {"kind": "python", "code": "return ("}
    text = HEAD + f"  - step: start\n    tool: {json.dumps(task)}"
    assert not check(text, KINDS).ok
    assert check_again(text, KINDS).ok
