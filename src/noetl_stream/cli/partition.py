"""``noetl-stream partition``."""

from __future__ import annotations

import click

from noetl_stream.cli.operating import operate
from noetl_stream.cli.options import form_option
from noetl_stream.cli.output import columns_of, print_documents
from noetl_stream.cli.where import Where, where_options


@click.group()
def partition() -> None:
    """Look at the partitions that servers share."""


@partition.command("list")
@form_option()
@where_options
def list_partitions(output: str, where: Where) -> None:
    """List the partitions: which server folds each, and how many messages it is behind."""
    found = operate(where, lambda desk: desk.operations.cluster.partitions())
    columns = columns_of("partition", "owner", "epoch", "live", "folded", "behind")
    print_documents(found, output, columns, "partition")
