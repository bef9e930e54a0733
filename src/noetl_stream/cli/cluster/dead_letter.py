"""``noetl-stream dead-letter``: what could not be delivered."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_members
from noetl_stream.cli.base.paging import collect
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.ports.operations.cluster import DeadLetterDocument

letter_ids = click.argument("letter_ids", nargs=-1, required=True, metavar="ID...")


@click.group("dead-letter")
def dead_letter() -> None:
    """Look at messages and commands that were given up; send them again, or discard them."""


@dead_letter.command("list")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many, newest first.")
@form_option()
@target_options
def list_letters(limit: int, output: str, target: Target) -> None:
    """List the dead letters that wait for a decision, newest first."""

    async def read(session: Session) -> list[DeadLetterDocument]:
        return await collect(session.operations.cluster.dead_letters, limit)

    columns = columns_of("id", "at", "source", "execution_id", "size", "reason")
    print_documents(with_session(target, read), output, columns, "id")


@dead_letter.command()
@click.argument("letter_id", metavar="ID")
@form_option()
@target_options
def show(letter_id: str, output: str, target: Target) -> None:
    """Show one, with its body."""
    found = with_session(target, lambda session: session.operations.cluster.dead_letter(letter_id))
    print_document(found, output, "id", print_members)


@dead_letter.command()
@letter_ids
@target_options
def requeue(letter_ids: tuple[str, ...], target: Target) -> None:
    """Send some again where they came from, and take them off the list. The first that cannot be ends it."""

    async def work(session: Session) -> None:
        for letter_id in letter_ids:
            await session.operations.cluster.requeue(letter_id, session.by)
            click.echo(f"requeued {letter_id}")

    with_session(target, work)


@dead_letter.command()
@letter_ids
@target_options
def discard(letter_ids: tuple[str, ...], target: Target) -> None:
    """Take some off the list for good, and forget their bodies. The first that cannot be ends it."""

    async def work(session: Session) -> None:
        for letter_id in letter_ids:
            await session.operations.cluster.discard(letter_id, session.by)
            click.echo(f"discarded {letter_id}")

    with_session(target, work)
