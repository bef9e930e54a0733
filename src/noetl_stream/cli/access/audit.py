"""``noetl-stream audit``."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.cli.base.paging import collect
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.ports.operations.access import AuditEntryDocument


@click.group()
def audit() -> None:
    """Look at who did what through a gateway."""


@audit.command("list")
@click.option("--principal", default=None, help="Only what this one did, as in token:ci.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many, newest first.")
@form_option()
@target_options
def list_entries(principal: str | None, limit: int, output: str, target: Target) -> None:
    """List calls that changed something, and calls that were refused, newest first."""

    async def read(session: Session) -> list[AuditEntryDocument]:
        one_page = session.operations.access.audit
        return await collect(lambda size, cursor: one_page(size, cursor, principal), limit)

    columns = columns_of("number", "at", "principal", "operation", "target", "status", "reason")
    print_documents(with_session(target, read), output, columns, "number")
