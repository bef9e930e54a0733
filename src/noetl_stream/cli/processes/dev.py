"""``noetl-stream dev``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.telemetry.logs import configure


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Worker processes.")
@click.option("--servers", type=click.IntRange(0, 16), default=1, show_default=True, help="Server processes.")
@click.option("--slots", type=click.IntRange(1, 10_000), default=None, help="Slots of each worker.")
@click.option(
    "--gateway-port",
    type=click.IntRange(1, 65535),
    default=None,
    help="Port of the gateway. [default: 8080, or a free one where that is taken]",
)
@click.option("--no-gateway", is_flag=True, help="Run none.")
@home_option
def dev(
    workers: int, servers: int, slots: int | None, gateway_port: int | None, no_gateway: bool, home: Path | None
) -> None:
    """Keep a whole stack up until Ctrl-C: NATS, Postgres, servers, workers, and a gateway on this machine alone.

    Whatever of it dies is started again. Other commands with the same home use this stack.
    """
    from noetl_stream.dev_stack import develop

    settings = settings_for(home)
    configure(settings.log_level, settings.log_format)
    work = develop(
        settings,
        servers=servers,
        workers=workers,
        slots=slots or settings.slots,
        gateway_port=None if no_gateway else gateway_port or 0,
        echo=click.echo,
    )
    run_async(work)
