"""``noetl-stream stream``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option
from noetl_stream.cli.base.process import run_async, settings_for


@click.group()
def stream() -> None:
    """Prepare the JetStream streams."""


@stream.command()
@click.option("--replicas", type=click.IntRange(1, 5), default=1, show_default=True, help="Copies in a NATS cluster.")
@home_option
def ensure(replicas: int, home: Path | None) -> None:
    """Make or adapt the streams EVENTS and COMMANDS and the object store. Never deletes anything.

    `run` and `dev` do this by themselves for the embedded NATS; for your own it is a step you choose the time of.
    """
    from noetl_stream.hosting import open_stack
    from noetl_stream.wiring import ensure_all_streams

    with open_stack(settings_for(home)) as stack:
        done = run_async(ensure_all_streams(stack.endpoint, replicas=replicas))
    for line in done:
        click.echo(line)
    if not done:
        click.echo("the streams are up to date")
