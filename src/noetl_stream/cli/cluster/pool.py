"""``noetl-stream pool``."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options


@click.group()
def pool() -> None:
    """Look at worker pools."""


@pool.command("list")
@form_option()
@target_options
def list_pools(output: str, target: Target) -> None:
    """List the pools: workers, slots, and the commands that wait and run in each.

    Commands that were given to a worker before stand under `again`. A pool with commands and without workers has 0.
    """
    found = with_session(target, lambda session: session.operations.cluster.pools())
    print_documents(found, output, columns_of("pool", "workers", "slots", "busy", "queued", "running", "again"), "pool")
