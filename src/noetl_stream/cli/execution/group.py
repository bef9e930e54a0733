"""``noetl-stream execution``: executions, one file for each kind of verb."""

from __future__ import annotations

import click

from noetl_stream.cli.execution.interventions import COMMANDS as ASKING
from noetl_stream.cli.execution.read import COMMANDS as LOOKING
from noetl_stream.cli.execution.rerun import COMMANDS as RERUNNING
from noetl_stream.cli.execution.start import COMMANDS as STARTING
from noetl_stream.cli.execution.watch import COMMANDS as WATCHING


@click.group()
def execution() -> None:
    """Start executions, look at them, and intervene.

    \b
    cancel, pause, resume, retry, delete, signal and patch take several IDs, `-` for those on standard input,
    or a filter, as in: noetl-stream execution cancel --path team/report --older-than 2d --dry-run
    """


for command in (*STARTING, *LOOKING, *WATCHING, *ASKING, *RERUNNING):
    execution.add_command(command)
