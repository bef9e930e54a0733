"""Rows of a table that break the rules of ``spec.result.table``, found by SQL (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from noetl_stream.playbook.plan import ColumnPlan, TablePlan
from noetl_stream.tools.contract import BadRows
from noetl_stream.tools.duckdb.tables import quote_identifier

CHECKED: Final = "checked_table"
"""The name of the table in the statements."""
MOST_SHOWN: Final = 5
"""The maximum number of bad rows in a message."""


class RowRule(NamedTuple):
    """A rule of one column: the description of a row that breaks it, and the SQL condition that finds such rows.

    ``condition`` is empty for the rule that values are unique.
    """

    column: str
    words: str
    condition: str = ""


def rules_of(plan: TablePlan) -> list[RowRule]:
    """Returns the rules for the rows of a table."""
    return [rule for column in plan.columns for rule in _rules(column)]


def _rules(column: ColumnPlan) -> Iterable[RowRule]:
    name = quote_identifier(column.name)
    if not column.nullable:
        yield RowRule(column.name, "is null", f"{name} is null")
    if column.minimum:
        yield RowRule(column.name, f"is below {_shown(column.minimum)}", f"{name} < {column.minimum}")
    if column.maximum:
        yield RowRule(column.name, f"is above {_shown(column.maximum)}", f"{name} > {column.maximum}")
    if column.unique:
        yield RowRule(column.name, "has the value of an earlier row")


def _shown(literal: str) -> str:
    return literal.partition("::")[0].strip("'")


def bad_rows_command(rules: Sequence[RowRule]) -> list[str]:
    """Returns the statements that find the first bad rows: ``bad_rows`` (their total), ``row_number``, ``rule``.

    Where memory does not suffice, DuckDB spills to disk.
    """
    number = "row_number"
    while number in {rule.column.lower() for rule in rules}:
        number += "_"
    columns = ", ".join(dict.fromkeys(quote_identifier(rule.column) for rule in rules))
    numbered = f"(select row_number() over () as {number}, {columns} from {CHECKED})"
    broken = [_broken_at_once(rules, number, numbered)] if any(rule.condition for rule in rules) else []
    for place, rule in enumerate(rules):
        if not rule.condition:
            name = quote_identifier(rule.column)
            values = f"select {name}, min({number}) as first_row from {numbered} where {name} is not null"
            again = f"({values} group by {name} having count(*) > 1)"
            broken.append(f"select a.{number}, {place} from {numbered} a join {again} b using ({name}) "
                          f"where a.{number} > b.first_row")  # fmt: skip
    found = "bad_rows_found"
    return [
        f"create temp table {found} (row_number bigint, rule integer)",
        *(f"insert into {found} {one}" for one in broken),
        f"select (select count(distinct row_number) from {found}) as bad_rows, row_number, rule from {found} "
        f"order by row_number, rule limit {MOST_SHOWN}",
    ]


def _broken_at_once(rules: Sequence[RowRule], number: str, numbered: str) -> str:
    """Returns the query for rows that break a rule by their own values, without regard to other rows."""
    conditions = [(place, rule.condition) for place, rule in enumerate(rules) if rule.condition]
    places = ", ".join(f"case when {condition} then {place} end" for place, condition in conditions)
    some = " or ".join(f"({condition})" for _, condition in conditions)
    broken = f"select {number} as broken_row, unnest([{places}]) as rule from {numbered} where {some}"
    return f"select broken_row, rule from ({broken}) where rule is not null"


def bad_rows_of(rows: Sequence[dict[str, Any]], rules: Sequence[RowRule]) -> BadRows:
    """Converts the result rows of :func:`bad_rows_command`."""
    first = [f"row {row['row_number']:,}: `{rules[row['rule']].column}` {rules[row['rule']].words}" for row in rows]
    return BadRows(rows[0]["bad_rows"] if rows else 0, first)
