"""``noetl-stream execution diff``: two executions side by side."""

from __future__ import annotations

from typing import Final

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document, print_table, say
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.ports.operations.reading.diffs import (
    ComparedExecutionDocument,
    ComparedStepDocument,
    DiffRowDocument,
    ExecutionDiffDocument,
    RowChoice,
    ValueDifferencesDocument,
)
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
    print_document(found, output, lambda _: a, _print)


def _print(found: ExecutionDiffDocument) -> None:
    say("they do not part" if found.first is None else found.first.text)
    if found.first_choice is not None and found.first_choice != found.first:
        say(f"then: {found.first_choice.text}")
    for name, one in (("A", found.a), ("B", found.b)):
        say(f"{name}: {_execution(one)}")
    _values("workload", found.workload)
    _values("ctx", found.ctx)
    for step in found.results:
        _values(step.step, step.differences)
    _values("the execution", found.result)
    print_table(("step", "same", "different", "only A", "only B", "seconds A", "seconds B"), [*map(_step, found.steps)])
    if found.rows:
        print_table(("step", "iteration", "A", "B", "differs"), [*map(_row, found.rows)])
    if found.next is not None:
        say(f"{found.row_count} rows; next page: --cursor {found.next}", err=True)


def _execution(one: ComparedExecutionDocument) -> str:
    version = "" if one.version is None else f"@{one.version}"
    duration = "" if one.duration_s is None else f", {one.duration_s:.2f} s"
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


def _step(one: ComparedStepDocument) -> tuple[object, ...]:
    durations = (f"{one.duration_a_s:.2f}", f"{one.duration_b_s:.2f}")
    return (one.step, one.same, one.different, one.only_a, one.only_b, *durations)


def _row(row: DiffRowDocument) -> tuple[str, ...]:
    statuses = ("" if one is None else one.status for one in (row.a, row.b))
    place = ".".join(map(str, row.iteration or ()))
    return (row.step, place, *statuses, "" if row.difference is None else row.difference.text)
