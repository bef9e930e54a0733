"""``noetl-stream execution table``: the columns and first rows of a table that an execution holds."""

from __future__ import annotations

from typing import Any, Final

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document, print_table, say
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.ports.operations.executions import StepRunRange
from noetl_stream.ports.operations.reading.table_views import (
    DEFAULT_ROWS,
    MAX_ROWS,
    StoredTableDocument,
    TableColumnDocument,
)
from noetl_stream.sealing.data_references import DataReference, read_reference

_BARS: Final = " ▁▂▃▄▅▆▇█"
_NAMED: Final = 10
"""The maximum number of tables in an error message."""


@click.command()
@click.argument("execution_id", metavar="ID")
@click.argument("name", metavar="[NAME]", default="")
@click.option(
    "--rows", type=click.IntRange(0, MAX_ROWS), default=DEFAULT_ROWS, show_default=True, help="Maximum number of rows."
)
@form_option("text")
@target_options
def table(execution_id: str, name: str, rows: int, output: str, target: Target) -> None:
    """Show the columns and first rows of a table.

    NAME is where templates find it: `load`, or `load.table` if the result of the step has several. Without it, it is
    the one in the result of the execution.
    """

    async def read(session: Session) -> StoredTableDocument:
        reference = await chosen_table(session, execution_id, name)
        return await session.operations.executions.table(execution_id, reference, rows)

    print_document(with_session(target, read), output, "execution_id", show_table)


def show_table(found: StoredTableDocument) -> None:
    columns = ("column", "type", "nulls", "lowest", "highest", "values")
    print_table(columns, [(one.column, one.type, one.nulls, one.low, one.high, _bars(one)) for one in found.columns])
    if found.columns_left_out:
        say(f"… and {found.columns_left_out:,} more columns")
    if found.note:
        say(found.note)
    say()
    print_table(tuple(one.column for one in found.columns), found.first_rows)
    say(f"{len(found.first_rows):,} of {found.rows:,} rows")


def _bars(column: TableColumnDocument) -> str:
    """The histogram of a column: a bar for each range of values, or for each value, in order."""
    most = max((one.rows for one in column.counts), default=0)
    return "".join(_BARS[-(-one.rows * (len(_BARS) - 1) // most)] for one in column.counts)


async def chosen_table(session: Session, execution_id: str, name: str) -> DataReference:
    """Returns the reference to the table with this name.

    Raises:
        NotFound: there is no such step or table.
        UsageError: there are several tables.
    """
    executions = session.operations.executions
    step, *path = name.split(".")
    if not step:
        value = (await executions.result(execution_id)).result
    else:
        newest = StepRunRange(limit=1, step=step)
        page = await executions.runs(execution_id, newest)
        if page.count is not None and page.count > 1:
            page = await executions.runs(execution_id, StepRunRange(first=page.count - 1, limit=1, step=step))
        if not page.items:
            hint = "`execution lineage` lists which step has a table"
            raise NotFound(f"execution {execution_id} has no step run of {step}", hint=hint)
        value = (await executions.run_result(execution_id, page.items[0].step_run_id)).result
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise NotFound(f"the result has no {key}: {name}")
    tables = {one.key: (where, one) for where, one in _tables_in(value, name or "result")}
    if not tables:
        hint = "`execution lineage` lists which step has one"
        raise NotFound(f"there is no table in {name or 'the result'}", hint=hint)
    if len(tables) > 1:
        names = ", ".join(where for where, _ in list(tables.values())[:_NAMED])
        raise UsageError(f"there are {len(tables):,} tables in {name or 'the result'}", hint=f"choose one: {names}")
    return next(iter(tables.values()))[1]


def _tables_in(value: Any, where: str) -> list[tuple[str, DataReference]]:
    """Returns the tables in a value, each with its path."""
    found, left = list[tuple[str, DataReference]](), [(where, value)]
    while left:
        where, value = left.pop()
        reference = read_reference(value)
        if reference is not None and reference.columns is not None:
            found.append((where, reference))
        elif reference is None and isinstance(value, dict | list):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            left += reversed([(f"{where}.{key}", inner) for key, inner in parts])
    return found
