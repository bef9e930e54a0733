"""``noetl-stream server``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import end_with_parent_option, home_option
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command()
@end_with_parent_option
@home_option
def server(with_parent: bool, home: Path | None) -> None:
    """Run a server: fold events, evaluate admission and routing, publish commands.

    Any number of servers may run on one NATS and Postgres; they share the partitions among them, and the others take
    over what a dead one owned when its lease runs out (6 s). SIGTERM or Ctrl-C ends it in order.
    """
    from noetl_stream.hosting import host, open_stack
    from noetl_stream.processes import end_with_parent

    if with_parent:
        end_with_parent()
    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    with open_stack(settings) as stack:
        run_async(host(stack, server=True, name="noetl-server"))
