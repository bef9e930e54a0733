"""``noetl-stream grant``: the operator's grants file, checked and explained."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_documents, say
from noetl_stream.cli.base.process import settings_for
from noetl_stream.errors import UsageError
from noetl_stream.settings.grants import SORTS, read_grants

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def grant() -> None:
    """Check what the operator's grants let playbooks use.

    Grants are a file of the servers, named by NOETL_GRANTS. Without it, playbooks may use everything.
    """


@grant.command()
@click.argument("file", type=FILE)
def check(file: Path) -> None:
    """Check the grants in FILE."""
    found = read_grants(file)
    say(f"{file}: {len(found.grants)} grants")


@grant.command()
@click.argument("path")
@click.option("--file", type=FILE, default=None, help="The grants file. [default: NOETL_GRANTS]")
@form_option()
def show(path: str, file: Path | None, output: str) -> None:
    """List what the playbook at PATH may use."""
    chosen = file or settings_for(None).grants_file
    if chosen is None:
        raise UsageError("NOETL_GRANTS is not set: every playbook may use everything", hint="name a file with --file")
    found = read_grants(chosen)
    rows = [{"sort": sort, "name": name} for sort in SORTS for name in found.names_for(path.strip("/"), sort)]
    print_documents(rows, output, {"sort": lambda row: row["sort"], "name": lambda row: row["name"]}, "name")
