"""The input ``tables``: rows of earlier results as tables of a DuckDB task (see ``docs/reference/tools.md``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from noetl_stream.tools.inputs import invalid_input

_EXACT: Final = range(-(2**53), 2**53 + 1)
"""The integers that a double holds exactly."""
_BIGINT: Final = range(-(2**63), 2**63)
_HUGEINT: Final = range(-(2**127), 2**127)

Table = list[Any] | dict[str, Any]


def rows_of(name: str, table: Table) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the columns and rows of a table, given as a list of rows or as the result of a SQL task.

    Raises:
        ToolFailure: ``invalid_input``, also for an empty list, which has no columns.
    """
    if isinstance(table, dict):
        rows, columns = table.get("rows"), table.get("columns")
        if not isinstance(rows, list) or not isinstance(columns, list) or not columns:
            message = f"tables.{name}: must be a list of rows, or the result of a SQL task that returned rows"
            raise invalid_input(message)
    else:
        rows, columns = table, []
    seen = dict.fromkeys(str(column) for column in columns)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise invalid_input(f"tables.{name}[{number}]: a row must be a mapping of columns to values")
        seen.update(dict.fromkeys(row))
    if not seen:
        raise invalid_input(f"tables.{name}: columns unknown, since it has no rows; pass the result of the SQL task")
    return list(seen), rows


def table_statement(name: str, columns: Iterable[str], rows: list[dict[str, Any]]) -> tuple[str, str]:
    """Returns the statement that creates the table, with ``$1`` for the rows, and the rows as JSON text.

    One statement with one text: a parameter per row would be a hundred times slower. Types follow the values: whole
    numbers BIGINT (HUGEINT if larger), other numbers DOUBLE, booleans BOOLEAN, text VARCHAR, anything else and mixed
    types JSON. Text is never read as a date or a number.
    """
    types = {column: _type_of(row.get(column) for row in rows) for column in columns}
    structure = msgspec.json.encode([types]).decode().replace("'", "''")
    source = f"select unnest(from_json($1::json, '{structure}'), max_depth := 2)"
    return f"create temp table {quote_identifier(name)} as {source}", msgspec.json.encode(rows).decode()


def quote_identifier(name: str) -> str:
    """Quotes ``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Quotes ``value`` as an SQL text."""
    return "'" + value.replace("'", "''") + "'"


def _type_of(values: Iterable[Any]) -> str:
    kinds = {_kind(value) for value in values if value is not None}
    if not kinds:
        return "VARCHAR"
    for name, members in _TYPES.items():
        if kinds <= members:
            return name
    return "JSON"


_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "BOOLEAN": frozenset({"bool"}),
    "BIGINT": frozenset({"int", "long"}),
    "HUGEINT": frozenset({"int", "long", "hugeint"}),
    "DOUBLE": frozenset({"int", "float"}),
    "VARCHAR": frozenset({"str"}),
}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if value in _EXACT:
            return "int"
        return "long" if value in _BIGINT else "hugeint" if value in _HUGEINT else "other"
    return "float" if isinstance(value, float) else "str" if isinstance(value, str) else "other"
