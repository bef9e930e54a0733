"""``noetl-stream context``: named gateways."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from noetl_stream.cli.base import session
from noetl_stream.cli.base.files import stdin_text
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_members, say
from noetl_stream.errors import UsageError
from noetl_stream.settings.sources.environment import Settings


@click.group()
def context() -> None:
    """Name gateways, and choose which one commands use.

    \b
    Commands use the first of these that is set:
      1. --url, --context or --home
      2. NOETL_URL
      3. NOETL_CONTEXT
      4. NOETL_NATS_URL or NOETL_HOME
      5. the current context

    Without any of them, and in the context `direct`, they work directly on the embedded NATS and Postgres.
    """


@context.command()
@click.argument("name")
@click.option("--url", required=True, help="URL of the gateway, e.g. https://noetl.example.com.")
@click.option("--token-stdin", is_flag=True, help="Read the token from stdin and store it.")
@click.option("--token-file", default=None, metavar="FILE", help="Read the token from a file each time.")
@click.option(
    "--token-variable", default=None, metavar="NAME", help="Read the token from an environment variable each time."
)
@click.option("--use", "is_used", is_flag=True, help="Make it the current context.")
def add(
    name: str, url: str, token_stdin: bool, token_file: str | None, token_variable: str | None, is_used: bool
) -> None:
    """Add or replace a context. Only you can read the file that stores it."""
    session.check_name(name)
    session.check_url(url, "--url")
    if sum((token_stdin, token_file is not None, token_variable is not None)) > 1:
        raise UsageError("--token-stdin, --token-file and --token-variable cannot be combined", hint="use one of them")
    token = stdin_text().strip() if token_stdin else None
    if token == "":
        raise UsageError("--token-stdin: standard input is empty", hint="pipe the token into the command")
    file, known = _known()
    named = {**known.named, name: session.Context(url, token, token_file, token_variable)}
    session.write_contexts(file, session.Contexts(name if is_used else known.current, named))
    say(f"added {name}{' as the current context' if is_used else ''}", err=True)


@context.command("list")
@form_option()
def list_contexts(output: str) -> None:
    """List the contexts and the sources of their tokens."""
    _, known = _known()
    shown = [_shown(name, found, known) for name, found in sorted(known.named.items())]
    shown.append(
        {"name": session.DIRECT, "url": None, "token": "none", "current": known.current in (None, session.DIRECT)}
    )
    columns = {"": lambda one: "*" if one["current"] else "", **columns_of("name", "url", "token")}
    print_documents(shown, output, columns, "name")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context. `direct` works without a gateway."""
    file, known = _known()
    if name != session.DIRECT:
        known.find(name)
    session.write_contexts(file, replace(known, current=name))
    say(f"the current context is now {name}", err=True)


@context.command()
@click.argument("name", required=False)
@form_option()
def show(name: str | None, output: str) -> None:
    """Show the current context, or the context NAME, without its token."""
    _, known = _known()
    name = name or known.current or session.DIRECT
    shown = {"name": session.DIRECT, "url": None} if name == session.DIRECT else _shown(name, known.find(name), known)
    print_document(shown, output, "name", print_members)


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a context."""
    file, known = _known()
    known.find(name)
    named = {other: found for other, found in known.named.items() if other != name}
    session.write_contexts(file, session.Contexts(None if known.current == name else known.current, named))
    say(f"removed {name}" + ("; the current context is now direct" if known.current == name else ""), err=True)


def _known() -> tuple[Any, session.Contexts]:
    file = Settings.from_environment().contexts_file
    return file, session.read_contexts(file)


def _shown(name: str, found: session.Context, known: session.Contexts) -> dict[str, Any]:
    """A context, with the source of its token instead of the token."""
    return {"name": name, "url": found.url, "token": found.token_source, "current": name == known.current}
