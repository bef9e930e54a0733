"""``noetl-stream worker``: the role itself, and ``worker list``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import end_with_parent_option, form_option, home_option
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.errors import UsageError
from noetl_stream.telemetry.logs import configure


@click.group(invoke_without_command=True)
@click.option("--pool", default=None, help="Pool whose commands it takes. [default: NOETL_POOL, else default]")
@click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Step runs and iterations at once. [default: NOETL_SLOTS, else 64]",
)
@end_with_parent_option
@home_option
@click.pass_context
def worker(ctx: click.Context, pool: str | None, slots: int | None, with_parent: bool, home: Path | None) -> None:
    """Run a worker: pull commands of a pool, run their pipelines, report. Or, with `list`, show those that run.

    SIGTERM or Ctrl-C drains it: nothing new is taken, what runs is finished, and what does not finish in time goes back
    to the queue. A killed worker's commands are delivered to another when their lease runs out (30 s).
    """
    if ctx.invoked_subcommand is not None:
        if any((pool, slots, with_parent, home)):
            hint = f"write it behind: noetl-stream worker {ctx.invoked_subcommand} …"
            raise UsageError("an option in front of the subcommand is for running a worker", hint=hint)
        return
    from noetl_stream.hosting import host, open_stack
    from noetl_stream.processes import end_with_parent

    if with_parent:
        end_with_parent()
    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    with open_stack(settings) as stack:
        chosen = (pool or settings.pool, slots or settings.slots)
        run_async(host(stack, worker=chosen, name="noetl-worker"))


@worker.command("list")
@form_option()
@target_options
def list_workers(output: str, target: Target) -> None:
    """List the workers that are alive, with what each is at."""
    from noetl_stream.cli.base.output import columns_of, print_documents
    from noetl_stream.cli.base.session import with_session

    found = with_session(target, lambda session: session.operations.cluster.workers())
    columns = columns_of("name", "pool", "slots", "busy", "since", "version", "draining")
    print_documents(found, output, {**columns, "kinds": lambda one: " ".join(one.kinds)}, "name")
