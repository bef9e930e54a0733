"""``noetl-stream execution diff|count|logs|table``: comparison of two executions, counts of many, output of tasks, and
the columns and first rows of a table.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any, Final

import click

from noetl_stream.cli.base.options import bundled, form_option, moment_ms, output_option
from noetl_stream.cli.base.output import print_document, print_json, print_table, say
from noetl_stream.cli.base.session import PAGE, Session, Target, target_options, with_session
from noetl_stream.cli.execution.bulk import Filter, filter_options
from noetl_stream.durations import duration_text
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.events import Path
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.operations.executions import StepRunRange
from noetl_stream.ports.operations.reading import diffs
from noetl_stream.ports.operations.reading.events import FROM_THE_START, MAX_GREP, LogFilter, followed, text_of
from noetl_stream.ports.operations.reading.table_views import (
    DEFAULT_ROWS,
    MAX_ROWS,
    StoredTableDocument,
    TableColumnDocument,
)
from noetl_stream.ports.operations.selections import ExecutionGroupsDocument, ExecutionHistogramDocument
from noetl_stream.sealing.data_references import DataReference, read_reference
from noetl_stream.telemetry.terminal import json_text

ROWS_SHOWN: Final = 20


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--all", "everything", is_flag=True, help="List the step runs that are the same, too.")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=ROWS_SHOWN, show_default=True, help="Maximum number of rows."
)
@click.option("--cursor", default=None, help="Show the page of rows with this cursor, `next` of the page before.")
@form_option("text")
@target_options
def diff(a: str, b: str, everything: bool, limit: int, cursor: str | None, output: str, target: Target) -> None:
    """Compare two executions: where they part first, and what differs.

    They may be of one playbook, of two versions of it, or of different ones; or an execution and its rerun. What
    differs in every execution, times and ids, is not counted.
    """
    rows: diffs.RowChoice = "all" if everything else "different"
    found = with_session(target, lambda session: session.operations.views.diff(a, b, rows, limit, cursor))
    print_document(found, output, lambda _: a, _print_diff)


def _print_diff(found: diffs.ExecutionDiffDocument) -> None:
    say("they do not part" if found.first is None else found.first.text)
    if found.first_choice is not None and found.first_choice != found.first:
        say(f"then: {found.first_choice.text}")
    for name, one in (("A", found.a), ("B", found.b)):
        say(f"{name}: {_execution(one)}")
    _values("workload", found.workload)
    _values("ctx", found.ctx)
    for result in found.results:
        _values(result.step, result.differences)
    _values("the execution", found.result)
    steps = []
    for step in found.steps:
        durations = (duration_text(step.duration_a_s), duration_text(step.duration_b_s))
        steps.append((step.step, step.same, step.different, step.only_a, step.only_b, *durations))
    print_table(("step", "same", "different", "only A", "only B", "duration A", "duration B"), steps)
    if found.rows:
        print_table(("step", "iteration", "A", "B", "differs"), [*map(_row, found.rows)])
    if found.next is not None:
        say(f"{found.row_count} rows; next page: --cursor {found.next}", err=True)


def _execution(one: diffs.ComparedExecutionDocument) -> str:
    version = "" if one.version is None else f"@{one.version}"
    duration = "" if one.duration_s is None else f", {duration_text(one.duration_s)}"
    rerun = "" if one.rerun_of is None else f", a rerun of {one.rerun_of}"
    part = "" if one.compared >= one.position else f", compared up to event {one.compared} of {one.position}"
    return f"{one.execution_id} {one.path}{version} {one.status}, {one.started}{duration}{rerun}{part}"


def _values(name: str, found: diffs.ValueDifferencesDocument) -> None:
    for one in found.items:
        a, b = _value(one.in_a, one.a), _value(one.in_b, one.b)
        say(f"{name} {one.pointer}: {a} in A, {b} in B{' (not counted)' if one.is_volatile else ''}")
    if found.left_out:
        say(f"{name}: … and {found.left_out} more")


def _value(there: bool, value: object) -> str:
    return json_text(value) if there else "nothing"


def _row(row: diffs.DiffRowDocument) -> tuple[str, ...]:
    statuses = ("" if one is None else one.status for one in (row.a, row.b))
    place = ".".join(map(str, row.iteration or ()))
    return (row.step, place, *statuses, "" if row.difference is None else row.difference.text)


@click.command()
@filter_options
@click.option("--by", default=None, metavar="path|label:NAME", help="Count by this. [default: over time, of a day]")
@click.option("--bars", type=click.IntRange(1, 500), default=24, show_default=True, help="At most so many, over time.")
@form_option()
@target_options
def count(filter: Filter, by: str | None, bars: int, output: str, target: Target) -> None:
    """Count executions by status, over the time of their start or by path or a label."""
    chosen = filter.chosen()
    if by is None:
        found = with_session(target, lambda session: session.operations.selections.histogram(chosen, bars))
        print_document(found, output, lambda one: one.since, _print_bars)
    else:
        groups = with_session(target, lambda session: session.operations.selections.groups(chosen, by))
        print_document(groups, output, lambda one: by, _print_groups)


def _print_bars(found: ExecutionHistogramDocument) -> None:
    first, bar = datetime.fromisoformat(found.first), timedelta(seconds=found.bar_s)
    columns = list(zip(*found.bars.values(), strict=True))
    print_table(("from", *found.bars), [((first + bar * n).isoformat(), *counts) for n, counts in enumerate(columns)])
    _say_incomplete(found.complete)


def _print_groups(found: ExecutionGroupsDocument) -> None:
    shown = [status for status in STATUSES if any(status in group.counts for group in found.items)]
    rows = [(group.value, *(group.counts.get(status, 0) for status in shown)) for group in found.items]
    print_table(("value", *shown), rows)
    if found.more:
        say(f"… and {found.more} more", err=True)
    _say_incomplete(found.complete)


def _say_incomplete(complete: bool) -> None:
    if not complete:
        say("of a status with very many only the newest are counted", err=True)


def _iteration(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    if given is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}", given) is None:
        raise click.BadParameter(f"{given!r} is not an iteration such as 3 or 3.0")
    return tuple(map(int, given.split(".")))


def _grep(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None and not 0 < len(given) <= MAX_GREP:
        raise click.BadParameter(f"use 1 to {MAX_GREP} characters")
    return given


log_options = bundled(
    "chosen",
    LogFilter,
    [
        click.option("--step", help="Only of this step."),
        click.option("--task", help="Only of this task."),
        click.option("--iteration", callback=_iteration, metavar="INDEX", help="Only of this iteration: 3, or 3.0."),
        click.option("--since", "since_ms", callback=moment_ms, metavar="TIME", help="From then on: 10m, or ISO 8601."),
        click.option("--grep", callback=_grep, metavar="TEXT", help="Only lines with this text."),
    ],
)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Show lines as they come, until the execution ends.")
@log_options
@output_option("text", "json", "jsonl")
@target_options
def logs(execution_id: str, follow: bool, chosen: LogFilter, output: str, target: Target) -> None:
    """Show what the tasks of an execution have written.

    Each line has its time, step, iteration and task: after `|` what the task wrote to stdout, after `!` to stderr,
    after `:` what its worker says. `-o json` shows one JSON object per line.
    """

    async def show(session: Session) -> None:
        if follow:
            await session.ensure_server()
        logs = session.operations.executions.logs
        pages = followed(lambda after: logs(execution_id, chosen, after, PAGE), FROM_THE_START, asyncio.sleep)
        async for page in pages:
            for line in page.items:
                if output == "text":
                    say(text_of(line))
                else:
                    print_json(line)
            if page.state != "more" and not follow:
                return

    with_session(target, show)


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
        raise NotFound(f"{name or 'the result'} has no table", hint=hint)
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
