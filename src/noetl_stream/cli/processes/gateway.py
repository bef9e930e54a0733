"""``noetl-stream gateway``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import end_with_parent_option, home_option
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@end_with_parent_option
@home_option
def gateway(host: str, port: int, with_parent: bool, home: Path | None) -> None:
    """Run a gateway: everything over HTTP, described by itself under /openapi.json.

    On a loopback address it lets everybody in as admin, unless NOETL_GATEWAY_AUTH=required or an identity provider is
    configured; on any other it asks for a token. Any number of gateways may run. SIGTERM or Ctrl-C ends it in order:
    what is under way is answered first.
    """
    from noetl_stream.hosting import host_gateway, open_stack
    from noetl_stream.processes import end_with_parent

    if with_parent:
        end_with_parent()
    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    with open_stack(settings) as stack:
        run_async(host_gateway(stack, settings, host, port))
