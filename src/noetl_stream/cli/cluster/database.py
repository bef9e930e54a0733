"""``noetl-stream database``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option
from noetl_stream.cli.base.process import run_async, settings_for


@click.group()
def database() -> None:
    """Prepare the Postgres that holds the folded truth."""


@database.command()
@home_option
def migrate(home: Path | None) -> None:
    """Make or upgrade the schema `noetl`. Doing it again changes nothing.

    `run` and `dev` do this by themselves for the embedded Postgres; for your own it is a step you choose the time of.
    """
    from noetl_stream.hosting import open_stack
    from noetl_stream.wiring import migrate_schema

    with open_stack(settings_for(home)) as stack:
        applied = run_async(migrate_schema(stack.endpoint))
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("the schema is up to date")
