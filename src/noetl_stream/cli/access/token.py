"""``noetl-stream token``: API tokens for the gateway. (Tokens of executions: ``noetl-stream execution token``.)"""

from __future__ import annotations

import time

import click

from noetl_stream.cli.base.durations import seconds
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.model.roles import ROLES, Role
from noetl_stream.ports.operations.access import NewApiTokenDocument, NewToken


@click.group()
def token() -> None:
    """Make, list and revoke API tokens of the gateway.

    Without --url they are made on the database itself: so is the first one, an admin's.
    """


@token.command()
@click.argument("name")
@click.option("--role", required=True, type=click.Choice(ROLES), help="What it may: each may what those before it may.")
@click.option("--paths", default="", metavar="PATH,…", help="Only playbooks at or below these paths.")
@click.option("--expires", "expires_s", callback=seconds, metavar="TIME", help="As in 30d. [default: never]")
@form_option("text")
@target_options
def create(name: str, role: Role, paths: str, expires_s: float | None, output: str, target: Target) -> None:
    """Make a token called NAME. It is shown this once: what is on stdout is the token itself."""
    expires_ms = None if expires_s is None else int((time.time() + expires_s) * 1000)
    new = NewToken(name, role, tuple(filter(None, map(str.strip, paths.split(",")))), expires_ms)
    made = with_session(target, lambda session: session.operations.access.create_token(new, session.by))

    def show(made: NewApiTokenDocument) -> None:
        click.echo(made.secret)
        click.echo(f"{name} is {made.id}, {role}; keep the token, it cannot be shown again", err=True)

    print_document(made, output, "id", show)


@token.command("list")
@form_option()
@target_options
def list_tokens(output: str, target: Target) -> None:
    """List all tokens, those that were revoked too. None is shown itself."""
    found = with_session(target, lambda session: session.operations.access.tokens())
    columns = columns_of("id", "name", "role", "created", "expires", "last_used", "revoked")
    print_documents(found, output, {**columns, "paths": lambda one: " ".join(one.paths)}, "id")


@token.command()
@click.argument("token_ids", nargs=-1, required=True, metavar="ID...")
@target_options
def revoke(token_ids: tuple[str, ...], target: Target) -> None:
    """Revoke tokens, by the ids that `token list` shows."""

    async def work(session: Session) -> None:
        for token_id in token_ids:
            await session.operations.access.revoke_token(token_id, session.by)
            click.echo(f"revoked {token_id}")

    with_session(target, work)
