"""``noetl-stream worker``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.options import end_with_parent_option, home_option
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command()
@click.option("--pool", default=None, help="Pool whose commands it takes. [default: NOETL_POOL, else default]")
@click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Step runs and iterations at once. [default: NOETL_SLOTS, else 64]",
)
@end_with_parent_option
@home_option
def worker(pool: str | None, slots: int | None, with_parent: bool, home: Path | None) -> None:
    """Run a worker: pull commands of a pool, run their pipelines, report.

    SIGTERM or Ctrl-C drains it: nothing new is taken, what runs is finished, and what does not finish in time goes back
    to the queue. A killed worker's commands are delivered to another when their lease runs out (30 s).
    """
    from noetl_stream.hosting import host, open_place
    from noetl_stream.processes import end_with_parent

    if with_parent:
        end_with_parent()
    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    with open_place(settings) as place:
        chosen = (pool or settings.pool, slots or settings.slots)
        run_async(host(place, worker=chosen, name="noetl-worker"))
