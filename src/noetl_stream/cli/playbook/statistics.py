"""``noetl-stream playbook statistics``: how the executions of a playbook ended, how long they and its steps took."""

from __future__ import annotations

from typing import Final

import click

from noetl_stream.cli.base.options import moment_ms, output_option
from noetl_stream.cli.base.output import print_document, print_table, say
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.playbooks import DurationsDocument, PlaybookStatisticsDocument
from noetl_stream.ports.stores.catalog import read_address

TIMES: Final = ("p50", "p90", "p99", "longest")


@click.command()
@click.argument("path")
@click.option(
    "--since", "since_ms", callback=moment_ms, metavar="TIME", help="From then on: 24h, or ISO 8601. [default: 7d]"
)
@output_option("text", "json", "yaml")
@target_options
def statistics(path: str, since_ms: int | None, output: str, target: Target) -> None:
    """Show how executions of the playbook at PATH ended, and how long they and its steps took.

    All versions count, and at most 10,000 executions, the newest. Steps are those of the newest that have ended.
    Durations are in seconds.
    """
    address = read_address(path)
    if address is None or address.version is not None:
        raise UsageError(f"{path!r} is not a path in the catalog", hint="a path looks like `examples/airports`")
    found = with_session(target, lambda session: session.operations.playbooks.statistics(address.path, since_ms))
    print_document(found, output, "path", _show)


def _show(found: PlaybookStatisticsDocument) -> None:
    newest = " (the newest)" if found.is_sample else ""
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(found.statuses.items()))
    say(f"{found.executions} executions{newest} since {found.since}" + (f": {statuses}" if statuses else ""))
    if found.failure_rate is not None:
        say(f"failed: {_percent(found.failure_rate)}")
    if found.duration is not None:
        times = "  ".join(f"{name} {getattr(found.duration, name):g} s" for name in TIMES)
        say(f"completed in: {times}")
    if found.steps:
        say(f"\nsteps of the newest {found.sampled_executions} that have ended:")
        rows = [
            [step.step, step.done, step.failed, _percent(step.failure_rate), *_times(step.duration)]
            for step in found.steps
        ]
        print_table(("step", "done", "failed", "rate", *TIMES), rows)


def _times(times: DurationsDocument) -> list[float]:
    return [getattr(times, name) for name in TIMES]


def _percent(rate: float) -> str:
    return f"{rate:.1%}"
