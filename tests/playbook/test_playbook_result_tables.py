"""``spec.result.table``: what is read of it, and what is refused (LANGUAGE §10)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.compile.view import compiled_view
from noetl_stream.playbook.plan import ColumnPlan, Tolerated
from noetl_stream.playbook.results.result_table import column_faults
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.tools.shell import ShellTool

KINDS = {tool.spec.kind: tool.spec for tool in (DuckdbTool, HttpTool, NoopTool, ShellTool)}
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: tests/p }\nworkflow:\n"


def checked(table: str, tool: str = "kind: duckdb, command: select 1 as id, into: table") -> CheckResult:
    task = f"{{ {tool}, spec: {{ result: {{ table: {table} }} }} }}"
    return check(f"{HEAD}- step: start\n  tool: {task}\n", KINDS, file="p.yaml")


def columns(text: str) -> tuple[ColumnPlan, ...]:
    table = checked(f"{{ columns: {{ {text} }} }}").require_plan().steps["start"].tasks[0].table
    assert table is not None
    return table.columns


def test_a_task_says_what_the_columns_of_its_table_are() -> None:
    rules = "type: bigint, nullable: false, unique: true, minimum: 1, maximum: 9.5"
    text = f"{{ columns: {{ id: {{ {rules} }}, note: text }}, tolerated: 0.5% }}"
    plan = checked(text).require_plan()
    table = plan.steps["start"].tasks[0].table
    assert table is not None and table.tolerated == Tolerated(Decimal("0.5"), percent=True)
    assert table.columns == (
        ColumnPlan("id", "BIGINT", nullable=False, unique=True, minimum="1", maximum="9.5"),
        ColumnPlan("note", "VARCHAR"),
    )
    [shown] = compiled_view(plan)["steps"][0]["tasks"]
    assert shown["table"]["tolerated"] == "0.5%" and shown["table"]["columns"][1]["type"] == "VARCHAR"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("int8", "BIGINT"),
        ("numeric(9, 2)", "DECIMAL(9,2)"),
        ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
        ("text[]", "VARCHAR[]"),
        ("struct", "STRUCT"),
    ],
)
def test_types_are_words_of_sql(written: str, stored: str) -> None:
    assert columns(f'a: "{written}"')[0].type == stored


def test_dates_and_times_have_bounds_too() -> None:
    [day] = columns("day: { type: DATE, minimum: 2026-01-31, maximum: 2026-02-01 }")
    assert (day.minimum, day.maximum) == ("'2026-01-31'::DATE", "'2026-02-01'::DATE")


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ("text", "wrong_type", "`spec.result.table` must be a mapping"),
        ("{ columns: { } }", "missing_key", "`columns` is empty"),
        ("{ tolerated: 1 }", "missing_key", "needs `columns`"),
        ("{ columns: { a: BIGINT }, tolerated: -1 }", "invalid_value", "a whole number of rows"),
        ("{ columns: { a: BIGIN } }", "invalid_value", "did you mean `BIGINT`?"),
        ("{ columns: { a: HUGEINT } }", "invalid_value", "a table keeps it as DECIMAL(38,0)"),
        ("{ columns: { a: 'VARCHAR(20)' } }", "invalid_value", "no column has the type `VARCHAR(20)`"),
        ("{ columns: { a: 'DECIMAL(39,2)' } }", "invalid_value", "at most 38 digits"),
        ("{ columns: { a: { typ: BIGINT } } }", "unknown_key", "did you mean `type`?"),
        ("{ columns: { a: { nullable: 'no' } } }", "wrong_type", "`nullable`"),
        ("{ columns: { a: BIGINT, A: BIGINT } }", "duplicate_name", "`A` and `a` are the same column"),
        ("{ columns: { a: { type: BIGINT, minimum: 2, maximum: 1 } } }", "conflicting_keys", "no value of `a`"),
        ("{ columns: { a: { minimum: 2 } } }", "invalid_value", "give the column such a `type`"),
        ("{ columns: { a: { type: VARCHAR, maximum: z } } }", "invalid_value", "of a number, a date or a time"),
        ("{ columns: { a: { type: BIGINT, minimum: '1' } } }", "invalid_value", "`minimum` must be a number"),
        ("{ columns: { a: { type: DATE, minimum: soon } } }", "invalid_value", "a date or time as ISO 8601"),
        ('{ columns: { a: { type: DATE, minimum: "2026-01-01\' or true --" } } }', "invalid_value", "ISO 8601"),
    ],
)
def test_an_impossible_table_is_an_error_with_a_replacement(table: str, code: str, words: str) -> None:
    [found] = checked(table).diagnostics
    assert (found.severity, found.code) == ("error", code)
    assert words in found.render()


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("kind: duckdb, command: select 1", "write into: table"),
        ("kind: duckdb, command: select 1, into: file, format: csv", "write into: table"),
        ("kind: http, url: 'https://example.com', into: file", "write into: table"),
        ("kind: shell, command: ls", "in the task that makes the table"),
        ("kind: wait, for_s: 1", "in the task that makes the table"),
    ],
)
def test_a_result_that_has_no_table_is_an_error_before_the_run(tool: str, words: str) -> None:
    [found] = checked("{ columns: { id: BIGINT } }", tool).diagnostics
    assert (found.severity, found.code) == ("error", "no_effect")
    assert words in found.render()


def test_a_result_is_described_by_a_schema_or_a_table() -> None:
    [found] = check(f"{HEAD}- step: start\n  tool: {{ kind: noop, spec: {{ result: {{ }} }} }}\n", KINDS).diagnostics
    assert (found.code, found.message) == ("missing_key", "`spec.result` needs `schema` or `table`")


def test_columns_that_are_missing_or_of_another_type_are_named() -> None:
    table = checked("{ columns: { id: BIGINT, tags: LIST, size: DECIMAL, gone: DATE } }").require_plan()
    plan = table.steps["start"].tasks[0].table
    assert plan is not None
    found = [("id", "VARCHAR"), ("tags", "BIGINT[]"), ("size", "DECIMAL(9,2)"), ("more", "BLOB")]
    assert column_faults(plan, found) == ["column `id` is VARCHAR, not BIGINT", "it has no column `gone`"]
