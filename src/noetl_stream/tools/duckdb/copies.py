"""Loads tables copied by :mod:`~noetl_stream.tools.duckdb.attach` into DuckDB: each value by an expression of its type.

Postgres writes every value as text in one form, whatever its settings are; arrays as JSON with such texts. DuckDB's own
reading of dates and intervals in CSV files drops ``BC`` and refuses ``+``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tables import quote_identifier, quote_text

MAX_LINE_BYTES: Final = 16_000_000
"""The most bytes of a copied row, as text."""
NULL: Final = r"\N"
COPIED_CSV: Final = (
    "header = false, auto_detect = false, new_line = '\\n', delim = ',', quote = '\"', escape = '\"', "
    f"nullstr = '{NULL}', allow_quoted_nulls = false, parallel = false, max_line_size = {MAX_LINE_BYTES}"
)
"""How DuckDB reads such text."""
_BEFORE_CHRIST: Final = (
    r"case when ends_with({0}, 'BC') then regexp_replace({0}, '^(\S+) (.*) BC$', '\1 (BC) \2') else {0} end"
)
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "smallint": ("SMALLINT", "{}"),
    "integer": ("INTEGER", "{}"),
    "bigint": ("BIGINT", "{}"),
    "real": ("FLOAT", "{}"),
    "double precision": ("DOUBLE", "{}"),
    "boolean": ("BOOLEAN", "{}"),
    "date": ("DATE", "replace({}, ' BC', ' (BC)')"),
    "time without time zone": ("TIME", "{}"),
    "time with time zone": ("TIMETZ", "{}"),
    "timestamp without time zone": ("TIMESTAMP", _BEFORE_CHRIST),
    "timestamp with time zone": ("TIMESTAMPTZ", _BEFORE_CHRIST),
    "interval": ("INTERVAL", "replace({}, '+', '')"),
    "uuid": ("UUID", "{}"),
    "json": ("JSON", "{}"),
    "jsonb": ("JSON", "{}"),
    "bytea": ("BLOB", "unhex({}[3:])"),
}
"""By type of Postgres, the type of DuckDB, and the expression cast to it, given the text."""
_DECIMAL_DIGITS: Final = 38
_COMMON_DIGITS: Final = 18
"""The digits of a DECIMAL that DuckDB computes with fast, and that leave room for sums."""

Query = Callable[[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """A column and its type in Postgres, that of the items of an array; ``labels``: those of an enum."""

    name: str
    kind: str
    modifier: int
    is_array: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table copied to a text file. ``place`` names it in errors; ``schema`` is its schema in DuckDB."""

    place: str
    schema: str
    name: str
    columns: tuple[CopiedColumn, ...]
    file: str


@dataclass(frozen=True, slots=True)
class CopiedDatabase:
    """The copy of ``attach.<alias>``. ``file`` is the name of its DuckDB database."""

    alias: str
    file: str
    tables: tuple[CopiedTable, ...]


def load(database: CopiedDatabase, folder: str, query: Query) -> None:
    """Loads the copied files in ``folder`` into a database and attaches it read-only.

    Raises:
        ToolFailure: ``sql``; a column has values that DuckDB cannot hold.
    """
    alias, place = quote_identifier(database.alias), quote_text(f"{folder}/{database.file}")
    query(f"attach {place} as {alias}")
    for schema in dict.fromkeys(table.schema for table in database.tables):
        query(f"create schema if not exists {alias}.{quote_identifier(schema)}")
    for table in database.tables:
        target = f"{alias}.{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
        query(f"create table {target} as {copied_rows(table, folder, query)}")
    query(f"detach {alias}")
    query(f"attach {place} as {alias} (read_only)")


def copied_rows(table: CopiedTable, folder: str, query: Query) -> str:
    """Returns the query that reads a copied file in ``folder``.

    Raises:
        ToolFailure: ``sql``; a column has values that DuckDB cannot hold.
    """
    loading = _Loading(table, folder, query)
    columns = ", ".join(loading.column(column) for column in table.columns)
    return f"select {columns} from {loading.source}"


class _Loading:
    """Makes the expressions that read the columns of one table. Its types may depend on the values."""

    def __init__(self, table: CopiedTable, folder: str, query: Query) -> None:
        columns = ", ".join(f"{quote_text(column.name)}: 'VARCHAR'" for column in table.columns)
        self.source = f"read_csv({quote_text(f'{folder}/{table.file}')}, columns = {{{columns}}}, {COPIED_CSV})"
        self._table = table
        self._query = query

    def column(self, column: CopiedColumn) -> str:
        """Returns the expression of a column's values, with its name."""
        name = quote_identifier(column.name)
        if not column.is_array:
            return f"{self._value(column, name, name)} as {name}"
        depth = self._depth(column)
        items = _strings(name, depth)
        flat = f"unnest({'flatten(' * (depth - 1)}{items}{')' * (depth - 1)})"
        value = self._value(column, "item", flat)
        for level in range(depth):
            value = f"[{value} for item in {'item' if level < depth - 1 else items}]"
        return f"{value} as {name}"

    def _value(self, column: CopiedColumn, text: str, texts: str) -> str:
        """Returns the expression that reads ``text`` as a value. ``texts`` are all texts of the column."""
        if column.labels:
            return f"{text}::ENUM({', '.join(map(quote_text, column.labels))})"
        if column.kind == "numeric":
            return f"{text}::{self._decimal(column, texts)}"
        kind, source = _TYPES.get(column.kind, ("VARCHAR", "{}"))
        return f"({source.format(text)})::{kind}"

    def _decimal(self, column: CopiedColumn, texts: str) -> str:
        """Returns a DECIMAL type that holds all numbers of the column: as declared, else as its values need."""
        digits, places = (column.modifier - 4) >> 16, (column.modifier - 4) & 0x7FF
        if column.modifier >= 4 and places <= digits <= _DECIMAL_DIGITS:
            return f"DECIMAL({digits},{places})"
        # Postgres writes one zero before a point, and no other in front.
        whole = (
            "if(instr(text, '.') = 0, length(text), instr(text, '.') - 1) "
            "- if(starts_with(text, '-'), 1, 0) - if(starts_with(ltrim(text, '-'), '0'), 1, 0)"
        )
        fraction = "if(instr(text, '.') = 0, 0, length(rtrim(text, '0')) - instr(text, '.'))"
        finite = "text not in ('NaN', 'Infinity', '-Infinity')"
        measured = f"max({whole}), max({fraction}), bool_and({finite})"
        ((digits, places, is_finite),) = self._query(
            f"select {measured} from (select {texts} as text from {self.source})"
        )
        if is_finite is False:
            raise self._cannot(column, "NaN or an infinity")
        needed = (digits or 0) + (places or 0)
        if needed > _DECIMAL_DIGITS:
            raise self._cannot(column, f"numbers of {needed} digits")
        return f"DECIMAL({max(needed, _COMMON_DIGITS)},{places or 0})"

    def _depth(self, column: CopiedColumn) -> int:
        """Returns the dimensions of a column's arrays."""
        name = quote_identifier(column.name)
        depth = f"case when {name} <> '[]' then length({name}) - length(ltrim({name}, '[')) end"
        ((least, most),) = self._query(f"select min({depth}), max({depth}) from {self.source}")
        if least != most:
            raise self._cannot(column, "arrays of several dimensions")
        return most or 1

    def _cannot(self, column: CopiedColumn, what: str) -> ToolFailure:
        advice = "cast it to text in a view, or fetch it with a postgres task"
        return ToolFailure.of(
            "sql", f"{self._table.place}: DuckDB cannot hold column {column.name}, with {what}; {advice}"
        )


def _strings(name: str, depth: int) -> str:
    """Returns the expression of the texts in an array, given as JSON."""
    return f"from_json({name}, '{'[' * depth}\"VARCHAR\"{']' * depth}')"
