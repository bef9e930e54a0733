"""``noetl-stream pool``."""

from __future__ import annotations

import click

from noetl_stream.cli.operating import operate
from noetl_stream.cli.options import form_option
from noetl_stream.cli.output import columns_of, print_documents
from noetl_stream.cli.where import Where, where_options


@click.group()
def pool() -> None:
    """Look at worker pools."""


@pool.command("list")
@form_option()
@where_options
def list_pools(output: str, where: Where) -> None:
    """List the pools: workers, slots, and the commands that wait and run in each.

    Commands that were given to a worker before stand under `again`. A pool with commands and without workers has 0.
    """
    found = operate(where, lambda desk: desk.operations.cluster.pools())
    print_documents(found, output, columns_of("pool", "workers", "slots", "busy", "queued", "running", "again"), "pool")
