"""``noetl-stream credential``: what playbooks name by ``auth`` and ``keychain``. Values go in and never come out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_members
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.errors import NoetlError, PayloadRefused, UsageError
from noetl_stream.model.credential import CredentialValue, credential_value
from noetl_stream.ports.operations.credentials import CredentialDocument


@click.group()
def credential() -> None:
    """Keep credentials, encrypted, for playbooks to name.

    A worker gets a value when a task reads it, sealed to that worker; no command, event or log shows it.
    """


@credential.command("set")
@click.argument("name")
@click.option("--kind", default="", help="What it is for, such as postgres or http; for people. [default: generic]")
@click.option("--description", default="", help="For people.")
@click.option("--tag", "tags", multiple=True, help="For people; may be repeated.")
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Read it from here.")
@click.option("--value-stdin", is_flag=True, help="Read it from standard input.")
@click.option("--set", "members", multiple=True, metavar="KEY=VALUE", help="A member of a mapping; may be repeated.")
@target_options
def set_credential(
    name: str,
    kind: str,
    description: str,
    tags: tuple[str, ...],
    file: Path | None,
    value_stdin: bool,
    members: tuple[str, ...],
    target: Target,
) -> None:
    """Store a credential, or the next version of it.

    The value is text (a DSN, a token) or a JSON object; without an option it is asked for. Values on the command line
    are seen by others on this machine and kept by the shell: --set is for what is not secret, and for trying out.
    """
    value = _value(file, value_stdin, members)

    async def store(session: Session) -> CredentialDocument:
        return await session.operations.credentials.put(name, value, session.by, kind, description, tags)

    stored = with_session(target, store)
    click.echo(f"stored {stored.name}, version {stored.version}, with key {stored.key_id}")


@credential.command("list")
@form_option()
@target_options
def list_credentials(output: str, target: Target) -> None:
    """List the stored credentials, without their values."""
    found = with_session(target, lambda session: session.operations.credentials.list_all())
    keys = ("name", "kind", "version", "description", "updated")
    print_documents(found, output, columns_of(*keys, tags=lambda one: ", ".join(one.tags)), "name")


@credential.command()
@click.argument("name")
@form_option()
@target_options
def show(name: str, output: str, target: Target) -> None:
    """Show one credential: everything but its value."""
    found = with_session(target, lambda session: session.operations.credentials.get(name))
    print_document(found, output, "name", print_members)


@credential.command()
@click.argument("name")
@target_options
def delete(name: str, target: Target) -> None:
    """Delete a credential. A worker that has read it may keep it for up to an hour."""
    with_session(target, lambda session: session.operations.credentials.delete(name, session.by))
    click.echo(f"deleted {name}")


@credential.command()
@target_options
def rotate(target: Target) -> None:
    """Encrypt all credentials with the current key.

    Put a new key into NOETL_CREDENTIAL_KEY and the older one into NOETL_CREDENTIAL_OLD_KEYS, for servers too; rotate;
    then take the older one away.
    """
    done = with_session(target, lambda session: session.operations.credentials.rotate(session.by))
    for problem in done.problems:
        click.echo(problem, err=True)
    click.echo(f"{len(done.rotated)} credentials were encrypted anew")
    if done.problems:
        raise NoetlError(f"{len(done.problems)} credentials are still under another key")


def _value(file: Path | None, value_stdin: bool, members: tuple[str, ...]) -> CredentialValue:
    if sum((file is not None, value_stdin, bool(members))) > 1:
        raise UsageError("--file, --value-stdin and --set are three ways to give one value", hint="use one of them")
    if members:
        click.echo("note: values on the command line can be seen by others on this machine", err=True)
        return dict(_member(text) for text in members)
    try:
        if file is not None:
            return credential_value(file.read_text(encoding="utf-8"), str(file))
        if value_stdin:
            return credential_value(sys.stdin.read(), "standard input")
        if not sys.stdin.isatty():
            raise UsageError(
                "no value is given", hint="use --file, --value-stdin or --set, or a terminal to type it in"
            )
        return credential_value(click.prompt("value", hide_input=True, confirmation_prompt=True), "the value")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the value cannot be read: {error}") from None
    except PayloadRefused as error:
        raise UsageError(error.message) from None


def _member(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError("--set takes KEY=VALUE")
    return key, value
