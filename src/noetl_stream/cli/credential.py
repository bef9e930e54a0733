"""``noetl-stream credential``: credentials for ``auth`` and ``keychain``. Values are never shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from noetl_stream.cli.base.files import file_text, stdin_text
from noetl_stream.cli.base.options import bundled, reason_option
from noetl_stream.cli.base.output import columns_of, say
from noetl_stream.cli.base.session import Session, Target, does, lists, shows, target_options, with_session
from noetl_stream.errors import NoetlError, PayloadRefused, UsageError
from noetl_stream.model.secrets.credential import CredentialValue, credential_value
from noetl_stream.ports.operations.access import CredentialDocument


def _value(file: Path | None, value_stdin: bool, members: tuple[str, ...]) -> CredentialValue:
    if sum((file is not None, value_stdin, bool(members))) > 1:
        raise UsageError("--file, --value-stdin and --set cannot be combined", hint="use one of them")
    if members:
        say("warning: other users of this machine can see values on the command line", err=True)
        return dict(_member(text) for text in members)
    try:
        if file is not None:
            return credential_value(file_text(file), str(file))
        if value_stdin:
            return credential_value(stdin_text(), "standard input")
        if not sys.stdin.isatty():
            raise UsageError("no value given", hint="use --file, --value-stdin or --set, or run it in a terminal")
        return credential_value(click.prompt("value", hide_input=True, confirmation_prompt=True), "the value")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the value: {error}") from None
    except PayloadRefused as error:
        raise UsageError(error.message) from None


def _member(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError("--set expects KEY=VALUE")
    return key, value


value_options = bundled(
    "value",
    _value,
    [
        click.option(
            "--file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Read the value from a file.",
        ),
        click.option("--value-stdin", is_flag=True, help="Read the value from stdin."),
        click.option(
            "--set", "members", multiple=True, metavar="KEY=VALUE", help="Set a member of a JSON object; repeatable."
        ),
    ],
)


@click.group()
def credential() -> None:
    """Store encrypted credentials for playbooks.

    A worker gets a value when a task reads it, sealed to that worker. No command, event or log shows it.
    """


@credential.command("set")
@click.argument("name")
@click.option("--kind", default="", help="Informational, e.g. postgres or http. [default: generic]")
@click.option("--description", default="", help="Informational.")
@click.option("--tag", "tags", multiple=True, help="Informational; repeatable.")
@value_options
@reason_option
@target_options
def set_credential(
    name: str,
    kind: str,
    description: str,
    tags: tuple[str, ...],
    value: CredentialValue,
    reason: str,
    target: Target,
) -> None:
    """Store a credential or its next version.

    The value is text, such as a DSN or a token, or a JSON object. Without --file, --value-stdin or --set, the command
    prompts for it. Other users can see values on the command line, and the shell saves them: do not use --set for
    secrets.
    """

    async def store(session: Session) -> CredentialDocument:
        return await session.operations.credentials.put(name, value, session.by, kind, description, tags, reason=reason)

    stored = with_session(target, store)
    say(f"stored {stored.name}, version {stored.version}, with key {stored.key_id}")


COLUMNS: Final = columns_of(
    *("name", "kind", "version", "description", "updated"), tags=lambda one: ", ".join(one.tags)
)


@credential.command("list")
@lists("credentials.list_all", COLUMNS, "name")
def list_credentials() -> None:
    """List the stored credentials without their values."""


@credential.command()
@click.argument("name")
@shows("credentials.get", "name", form="table")
def show() -> None:
    """Show a credential without its value."""


@credential.command()
@click.argument("name")
@does("credentials.delete", "deleted")
def delete() -> None:
    """Delete a credential. Workers that have read it may use it for up to an hour."""


@credential.command()
@reason_option
@target_options
def rotate(reason: str, target: Target) -> None:
    """Encrypt all credentials with the current key.

    Set NOETL_CREDENTIAL_KEY to the new key and NOETL_CREDENTIAL_OLD_KEYS to the old one, for servers, too. Rotate, and
    then remove the old key.
    """
    done = with_session(target, lambda session: session.operations.credentials.rotate(session.by, reason))
    for problem in done.problems:
        say(problem, err=True)
    say(f"encrypted {len(done.rotated)} credentials with the current key")
    if done.problems:
        raise NoetlError(f"{len(done.problems)} credentials could not be encrypted with the current key")
