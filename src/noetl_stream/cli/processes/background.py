"""``noetl-stream background``: the server and worker that ``run`` starts when it finds none. Not for people."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command(hidden=True)
@home_option
def background(home: Path | None) -> None:
    """Run a server and a worker until no command and no execution needs them."""
    from noetl_stream.hosting import background_lock, host_in_background, open_stack

    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    with background_lock(settings) as alone:
        if not alone:
            return
        with open_stack(settings) as stack:
            run_async(host_in_background(stack, (settings.pool, settings.slots)))
