"""``noetl-stream partition``."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options


@click.group()
def partition() -> None:
    """Look at the partitions that servers share."""


@partition.command("list")
@form_option()
@target_options
def list_partitions(output: str, target: Target) -> None:
    """List the partitions: which server folds each, and how many messages it is behind."""
    found = with_session(target, lambda session: session.operations.cluster.partitions())
    columns = columns_of("partition", "owner", "epoch", "live", "folded", "behind")
    print_documents(found, output, columns, "partition")
