"""``noetl-stream credential``: what playbooks name by ``auth`` and ``keychain``. Values go in and never come out."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from noetl_stream.cli.options import home_option, output_option
from noetl_stream.cli.output import print_json, print_table
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.client.credentials import CredentialKeeper
from noetl_stream.errors import NoetlError, PayloadRefused, UsageError
from noetl_stream.hosting import connected_to, open_place, prepare_embedded
from noetl_stream.model.credential import CredentialValue, credential_value
from noetl_stream.model.envelope import iso
from noetl_stream.ports.credentials import CredentialInfo
from noetl_stream.wiring import make_credential_keeper

Value = TypeVar("Value")


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
@home_option
def set_credential(
    name: str,
    kind: str,
    description: str,
    tags: tuple[str, ...],
    file: Path | None,
    value_stdin: bool,
    members: tuple[str, ...],
    home: Path | None,
) -> None:
    """Store a credential, or the next version of it.

    The value is text (a DSN, a token) or a JSON object; without an option it is asked for. Values on the command line
    are seen by others on this machine and kept by the shell: --set is for what is not secret, and for trying out.
    """
    value = _value(file, value_stdin, members)

    async def store(keeper: CredentialKeeper) -> CredentialInfo:
        return await keeper.store(name, value, kind=kind, description=description, tags=tags)

    info = _with_keeper(home, store)
    click.echo(f"stored {info.name}, version {info.version}, with key {info.key_id}")


@credential.command("list")
@output_option("table", "json")
@home_option
def list_credentials(output: str, home: Path | None) -> None:
    """List the stored credentials, without their values."""
    found = [_shown(info) for info in _with_keeper(home, CredentialKeeper.list_all)]
    if output == "json":
        print_json(found)
    else:
        columns = ("name", "kind", "version", "tags", "description", "updated")
        print_table(columns, [[", ".join(one[c]) if c == "tags" else one[c] for c in columns] for one in found])


@credential.command()
@click.argument("name")
@output_option("table", "json")
@home_option
def show(name: str, output: str, home: Path | None) -> None:
    """Show one credential: everything but its value."""
    found = _shown(_with_keeper(home, lambda keeper: keeper.show(name)))
    if output == "json":
        print_json(found)
        return
    for key, shown in found.items():
        click.echo(f"{key}: {', '.join(shown) if isinstance(shown, list) else shown}")


@credential.command()
@click.argument("name")
@home_option
def delete(name: str, home: Path | None) -> None:
    """Delete a credential. A worker that has read it may keep it for up to an hour."""
    _with_keeper(home, lambda keeper: keeper.delete(name))
    click.echo(f"deleted {name}")


@credential.command()
@home_option
def rotate(home: Path | None) -> None:
    """Encrypt all credentials with the current key.

    Put a new key into NOETL_CREDENTIAL_KEY and the older one into NOETL_CREDENTIAL_OLD_KEYS, for servers too; rotate;
    then take the older one away.
    """
    done = _with_keeper(home, CredentialKeeper.rotate)
    for problem in done.problems:
        click.echo(problem, err=True)
    click.echo(f"{len(done.names)} credentials were encrypted anew")
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


def _shown(info: CredentialInfo) -> dict[str, Any]:
    found: dict[str, Any] = info._asdict()
    created_ms, updated_ms = found.pop("created_ms"), found.pop("updated_ms")
    return {**found, "tags": list(info.tags), "created": iso(created_ms), "updated": iso(updated_ms)}


def _with_keeper(home: Path | None, work: Callable[[CredentialKeeper], Awaitable[Value]]) -> Value:
    async def connected_work() -> Value:
        await prepare_embedded(place)
        async with connected_to(place, "noetl-credential") as connected:
            await connected.store.verify()
            return await work(make_credential_keeper(connected, place.endpoint))

    with open_place(settings_for(home)) as place:
        return run_async(connected_work())
