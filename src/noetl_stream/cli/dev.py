"""``noetl-stream dev``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.options import home_option
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Worker processes.")
@click.option("--servers", type=click.IntRange(0, 16), default=1, show_default=True, help="Server processes.")
@click.option("--slots", type=click.IntRange(1, 10_000), default=None, help="Slots of each worker.")
@home_option
def dev(workers: int, servers: int, slots: int | None, home: Path | None) -> None:
    """Keep a whole stack up until Ctrl-C: NATS, Postgres, servers and workers.

    Whatever of it dies is started again. Other commands with the same home use this stack.
    """
    from noetl_stream.developing import develop

    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    run_async(develop(settings, servers=servers, workers=workers, slots=slots or settings.slots, say=click.echo))
