"""The input ``attach``: tables of a Postgres database, copied for a DuckDB task (see ``docs/reference/tools.md``).

DuckDB's Postgres extension is not used: it must be downloaded, and SQL with access to it can reach any database that
the worker can (its ``postgres_scan`` ignores ``enable_external_access``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import Field

from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.duckdb.copies import NULL, CopiedColumn, CopiedDatabase, CopiedTable
from noetl_stream.tools.duckdb.tables import quote_identifier
from noetl_stream.tools.inputs import Auth, Inputs, auth_field, invalid_input
from noetl_stream.tools.postgres.failures import failures_translated
from noetl_stream.tools.postgres.pool import ConnectionPools

if TYPE_CHECKING:
    from asyncpg.cursor import Cursor

    from noetl_stream.tools.postgres.domain_connection import DomainConnection
    from noetl_stream.tools.postgres.pool import Connection
    from noetl_stream.tools.postgres.received_bytes import ReceivedBytes

MAX_ATTACHED_BYTES: Final = 256 * 1024 * 1024
_FIRST_ROWS: Final = 16
_BATCH_ROWS: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
_ROW_BYTES: Final = 16
"""The bytes that Postgres sends with each row in addition to its text."""
_FORMAT: Final = """
set local datestyle = 'ISO'; set local intervalstyle = 'postgres'; set local timezone = 'UTC';
set local extra_float_digits = 1; set local bytea_output = 'hex'
"""
FIND_TABLE: Final = """
select n.nspname as schema, c.relname as name, cardinality(parse_ident($1)) > 1 as is_qualified,
       concat_ws('.', current_database(), n.nspname, c.relname) as whole_name
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1)
"""
_COLUMNS: Final = """
with recursive resolved (number, name, type, modifier) as (
    {source}
    union all
    select r.number, r.name, t.typbasetype, t.typtypmod
      from resolved r join pg_type t on t.oid = r.type where t.typtype = 'd'
)
select r.name, coalesce(item.oid, t.oid)::regtype::text as kind, r.modifier, item.oid is not null as is_array,
       array(select enumlabel::text from pg_enum where enumtypid = coalesce(item.oid, t.oid) order by enumsortorder)
           as labels
  from resolved r join pg_type t on t.oid = r.type left join pg_type item on item.typarray = t.oid
 where t.typtype <> 'd'
 order by r.number
"""
_TABLE_COLUMNS: Final = _COLUMNS.format(
    source="select attnum::bigint, attname::text, atttypid, atttypmod from pg_attribute "
    "where attrelid = to_regclass($1) and attnum > 0 and not attisdropped"
)
QUERY_COLUMNS: Final = _COLUMNS.format(
    source="select number, name, type, -1 from unnest($1::oid[], $2::text[]) "
    "with ordinality as given (type, name, number)"
)
"""The columns of a query, given their types and names."""


async def columns_of(connection: Connection, query: str, *given: Any) -> tuple[CopiedColumn, ...]:
    """Returns the columns that :data:`QUERY_COLUMNS` or the query for a table finds."""
    return tuple(
        CopiedColumn(row["name"], row["kind"], row["modifier"], row["is_array"], tuple(row["labels"]))
        for row in await connection.fetch(query, *given)
    )


class Attach(Inputs):
    """A database and the tables to read from it."""

    auth: Auth = auth_field(..., "As for `postgres`.")
    tables: list[str] = Field(min_length=1, description="Names of tables and views: `orders`, `sales.orders`.")
    read_only: Literal[True] = Field(default=True, description="Attached tables are copies and read-only.")


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
                        tables.append(await _copy(call, connection, place.text, name, file, budget))
        databases.append(CopiedDatabase(alias, f"{number}.duckdb", tuple(tables)))
    return databases


@dataclass(slots=True)
class _ByteBudget:
    """The bytes of tables that may still be copied."""

    left_bytes: int

    def take(self, size_bytes: int, place: str) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise _too_large(place)


def _too_large(place: str) -> ToolFailure:
    message = f"{place}: the attached tables exceed max_attached_bytes; select rows in a postgres task, or raise it"
    return ToolFailure.of("result_too_large", message)


async def _copy(
    call: ToolCall, connection: Connection, place: str, name: str, file: Path, budget: _ByteBudget
) -> CopiedTable:
    timeout_s, table = call.timeouts.read, await connection.fetchrow(FIND_TABLE, name)
    if table is None:
        raise ToolFailure.of("not_found", f"{place}: no such table or view")
    columns = await columns_of(connection, _TABLE_COLUMNS, name)
    if not columns:
        raise invalid_input(f"{place}: the table has no columns")
    source = f"{quote_identifier(table['schema'])}.{quote_identifier(table['name'])}"
    line = " || ',' || ".join(map(_field, columns))
    # By cursor, since the driver cannot cancel a COPY whose data it has not read.
    rows = await connection.cursor(f"select {line} from {source}", timeout=timeout_s)
    own = cast("DomainConnection", connection)
    call.data.note(own.server, table["whole_name"], written=False)
    received, wanted = own.received, _FIRST_ROWS
    with file.open("wb") as sink:
        while batch := await _fetch(received, rows, wanted, place, budget, timeout_s):
            data = "".join(f"{row[0]}\n" for row in batch).encode()
            budget.take(len(data), place)
            sink.write(data)
            wanted = max(1, min(_BATCH_ROWS, _BATCH_BYTES * len(batch) // len(data)))
    schema = table["schema"] if table["is_qualified"] else "main"
    return CopiedTable(place, schema, table["name"], columns, file.name)


async def _fetch(
    received: ReceivedBytes, rows: Cursor, count: int, place: str, budget: _ByteBudget, timeout_s: float | None
) -> list[Any]:
    most_bytes = budget.left_bytes + count * _ROW_BYTES
    with received.at_most(most_bytes, partial(_too_large, place)):
        batch: list[Any] = await rows.fetch(count, timeout=timeout_s)
    return batch


def _field(column: CopiedColumn) -> str:
    """Returns SQL for a column's quoted text, unquoted where it is null."""
    name = quote_identifier(column.name)
    # Unlike a cast to text, it keeps the spaces at the end of a character(n).
    text = f"array_to_json({name}::text[])::text" if column.is_array else f"concat({name})"
    return f"""case when {name} is null then E'\\{NULL}' else '"' || replace({text}, '"', '""') || '"' end"""
