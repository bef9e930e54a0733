"""``noetl-stream execution count``: executions by status, over time or by path or label."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document, print_table, say
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.selection import EVERYTHING, Filter, filter_options
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.operations.selections import ExecutionGroupsDocument, ExecutionHistogramDocument


@click.command()
@filter_options
@click.option("--by", default=None, metavar="path|label:NAME", help="Count by this. [default: over time, of a day]")
@click.option("--bars", type=click.IntRange(1, 500), default=24, show_default=True, help="At most so many, over time.")
@form_option()
@target_options
def count(filter: Filter | None, by: str | None, bars: int, output: str, target: Target) -> None:
    """Count executions by status, over the time of their start or by path or a label."""
    chosen = (filter or EVERYTHING).chosen()
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
