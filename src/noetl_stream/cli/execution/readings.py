"""``noetl-stream execution diff|count|logs``: comparison of two executions, counts of many, output of tasks."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Final

import click

from noetl_stream.cli.base.options import bundled, form_option, moment_ms, output_option
from noetl_stream.cli.base.output import print_document, print_json, print_table, say
from noetl_stream.cli.base.session import PAGE, Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.selection import Filter, filter_options
from noetl_stream.durations import duration_text
from noetl_stream.model.events import Path
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.operations.reading.diffs import (
    ComparedExecutionDocument,
    DiffRowDocument,
    ExecutionDiffDocument,
    RowChoice,
    ValueDifferencesDocument,
)
from noetl_stream.ports.operations.reading.events import FROM_THE_START, MAX_GREP, LogFilter, followed, text_of
from noetl_stream.ports.operations.selections import ExecutionGroupsDocument, ExecutionHistogramDocument
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
    rows: RowChoice = "all" if everything else "different"
    found = with_session(target, lambda session: session.operations.views.diff(a, b, rows, limit, cursor))
    print_document(found, output, lambda _: a, _print_diff)


def _print_diff(found: ExecutionDiffDocument) -> None:
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


def _execution(one: ComparedExecutionDocument) -> str:
    version = "" if one.version is None else f"@{one.version}"
    duration = "" if one.duration_s is None else f", {duration_text(one.duration_s)}"
    rerun = "" if one.rerun_of is None else f", a rerun of {one.rerun_of}"
    part = "" if one.compared >= one.position else f", compared up to event {one.compared} of {one.position}"
    return f"{one.execution_id} {one.path}{version} {one.status}, {one.started}{duration}{rerun}{part}"


def _values(name: str, found: ValueDifferencesDocument) -> None:
    for one in found.items:
        a, b = _value(one.in_a, one.a), _value(one.in_b, one.b)
        say(f"{name} {one.pointer}: {a} in A, {b} in B{' (not counted)' if one.is_volatile else ''}")
    if found.left_out:
        say(f"{name}: … and {found.left_out} more")


def _value(there: bool, value: object) -> str:
    return json_text(value) if there else "nothing"


def _row(row: DiffRowDocument) -> tuple[str, ...]:
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
