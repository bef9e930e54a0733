"""The input ``attach``: tables of a Postgres database, copied for a DuckDB task (see ``docs/reference/tools.md``).

DuckDB's Postgres extension is not used: it must be downloaded, and SQL with access to it can reach any database that
the worker can (its ``postgres_scan`` ignores ``enable_external_access``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.duckdb.tables import quoted
from noetl_stream.tools.inputs import Auth, Inputs, auth_field, invalid_input
from noetl_stream.tools.postgres.failures import failures_translated
from noetl_stream.tools.postgres.pool import ConnectionPools

if TYPE_CHECKING:
    from noetl_stream.tools.postgres.pool import Connection

MAX_ATTACHED_BYTES: Final = 256 * 1024 * 1024
MAX_LINE_BYTES: Final = 16_000_000
"""Length of a copied row, as text."""
_BATCH_ROWS: Final = 500
_NULL: Final = r"\N"
_CSV: Final = (
    "header = false, auto_detect = false, new_line = '\\n', delim = ',', quote = '\"', escape = '\"', "
    f"nullstr = '{_NULL}', allow_quoted_nulls = false, parallel = false, max_line_size = {MAX_LINE_BYTES}"
)
_FORMAT: Final = "set local datestyle = 'ISO'; set local intervalstyle = 'postgres'; set local timezone = 'UTC'"
_FIND: Final = """
select n.nspname as schema, c.relname as name, cardinality(parse_ident($1)) > 1 as is_qualified
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1)
"""
_COLUMNS: Final = """
select a.attname as name, coalesce(nullif(t.typbasetype, 0), t.oid)::regtype::text as type, a.atttypmod as modifier
  from pg_attribute a join pg_type t on t.oid = a.atttypid
 where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
 order by a.attnum
"""
_TYPES: Final[Mapping[str, str]] = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
}
_MAX_DECIMAL_DIGITS: Final = 38


class Attach(Inputs):
    """A database and the tables to read from it."""

    auth: Auth = auth_field(..., "As for `postgres`.")
    tables: list[str] = Field(min_length=1, description="Names of tables and views: `orders`, `sales.orders`.")
    read_only: Literal[True] = Field(default=True, description="Attached tables are copies and read-only.")


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table copied to a text file. ``columns`` are names and DuckDB types; ``schema`` is its schema in DuckDB."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]
    file: Path


@dataclass(frozen=True, slots=True)
class CopiedDatabase:
    """The copy of ``attach.<alias>``. ``file`` is the path of its DuckDB database."""

    alias: str
    file: Path
    tables: tuple[CopiedTable, ...]


async def copy_databases(
    call: ToolCall, attach: Mapping[str, Attach], pools: ConnectionPools, folder: Path, max_bytes: int
) -> list[CopiedDatabase]:
    """Copies the tables to files in ``folder``, those of one database from a single snapshot.

    Raises:
        ToolFailure: As for ``postgres``; ``not_found`` for a table; ``result_too_large`` above ``max_bytes`` in total.
    """
    budget = _ByteBudget(max_bytes)
    databases = []
    for number, (alias, given) in enumerate(attach.items()):
        tables: list[CopiedTable] = []
        async with pools.connection(call, given.auth) as connection:
            with failures_translated() as place:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    await connection.execute(_FORMAT)
                    for name in given.tables:
                        place.text = f"attach.{alias}.{name}"
                        file = folder / f"{number}-{len(tables)}.csv"
                        tables.append(await _copy(connection, place.text, name, file, budget, call.timeouts.read))
        databases.append(CopiedDatabase(alias, folder / f"{number}.duckdb", tuple(tables)))
    return databases


@dataclass(slots=True)
class _ByteBudget:
    """The bytes that may still be copied."""

    left_bytes: int

    def take(self, size_bytes: int, place: str) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            message = (
                f"{place}: the attached tables exceed max_attached_bytes; select rows in a postgres task, or raise it"
            )
            raise ToolFailure.of("result_too_large", message)


async def _copy(
    connection: Connection, place: str, name: str, file: Path, budget: _ByteBudget, timeout_s: float | None
) -> CopiedTable:
    table = await connection.fetchrow(_FIND, name)
    if table is None:
        raise ToolFailure.of("not_found", f"{place}: no such table or view")
    columns = [(row["name"], row["type"], row["modifier"]) for row in await connection.fetch(_COLUMNS, name)]
    if not columns:
        raise invalid_input(f"{place}: the table has no columns")
    source = f"{quoted(table['schema'])}.{quoted(table['name'])}"
    line = " || ',' || ".join(_field(quoted(column), kind) for column, kind, _ in columns)
    # By cursor, since the driver cannot cancel a COPY whose data it has not read.
    rows = await connection.cursor(f"select {line} from {source}", timeout=timeout_s)
    with file.open("wb") as sink:
        while batch := await rows.fetch(_BATCH_ROWS, timeout=timeout_s):
            data = "".join(f"{row[0]}\n" for row in batch).encode()
            budget.take(len(data), place)
            sink.write(data)
    typed = tuple((column, _type(kind, modifier)) for column, kind, modifier in columns)
    return CopiedTable(table["schema"] if table["is_qualified"] else "main", table["name"], typed, file)


def _field(column: str, kind: str) -> str:
    """SQL for a column's quoted text, unquoted where it is null."""
    text = f"translate(encode({column}, 'base64'), E'\\n', '')" if kind == "bytea" else f"{column}::text"
    return f"""coalesce('"' || replace({text}, '"', '""') || '"', E'\\{_NULL}')"""


def _type(kind: str, modifier: int) -> str:
    if kind != "numeric":
        return _TYPES.get(kind, "VARCHAR")
    digits, places = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    return f"DECIMAL({digits},{places})" if modifier >= 4 and places <= digits <= _MAX_DECIMAL_DIGITS else "DOUBLE"


def load_statements(database: CopiedDatabase) -> Iterator[str]:
    """SQL that loads the copied files into a database and attaches it read-only."""
    alias, place = quoted(database.alias), _text(str(database.file))
    yield f"attach {place} as {alias}"
    for schema in dict.fromkeys(table.schema for table in database.tables):
        yield f"create schema if not exists {alias}.{quoted(schema)}"
    for table in database.tables:
        target = f"{alias}.{quoted(table.schema)}.{quoted(table.name)}"
        columns = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in table.columns)
        yield f"create table {target} as from read_csv({_text(str(table.file))}, columns = {{{columns}}}, {_CSV})"
    yield f"detach {alias}"
    yield f"attach {place} as {alias} (read_only)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
