"""``noetl-stream context``: gateways by name."""

from __future__ import annotations

import sys
from typing import Any

import click

from noetl_stream.cli.base.contexts import (
    DIRECT,
    Context,
    Contexts,
    check_name,
    check_url,
    read_contexts,
    write_contexts,
)
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_members
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.documents import Document, plain
from noetl_stream.settings.environment import Settings


class ShownContext(Document, frozen=True):
    """A context without its token: where that is, and whether the context is the current one."""

    name: str
    url: str | None
    token: str
    current: bool


@click.group()
def context() -> None:
    """Give gateways names, and say which one commands ask.

    \b
    A command works where the first of these says:
      --url, --context or --home    NOETL_URL    NOETL_CONTEXT
      NOETL_NATS_URL or NOETL_HOME  the current context
    Without any of them it works on the embedded NATS and Postgres itself, as it does in the context `direct`.
    """


@context.command()
@click.argument("name")
@click.option("--url", required=True, help="Address of the gateway, as in https://noetl.example.com.")
@click.option("--token-stdin", is_flag=True, help="Read its token from standard input, and keep it in the file.")
@click.option("--token-file", default=None, metavar="FILE", help="Read its token from here each time.")
@click.option("--token-variable", default=None, metavar="NAME", help="Take its token from this variable each time.")
@click.option("--use", "is_used", is_flag=True, help="Make it the current one.")
def add(
    name: str, url: str, token_stdin: bool, token_file: str | None, token_variable: str | None, is_used: bool
) -> None:
    """Add a context, or replace it. The file is readable by its owner alone."""
    check_name(name)
    check_url(url, "--url")
    if sum((token_stdin, token_file is not None, token_variable is not None)) > 1:
        raise UsageError("--token-stdin, --token-file and --token-variable are three ways to give one token")
    token = sys.stdin.read().strip() if token_stdin else None
    if token == "":
        raise UsageError("standard input is empty", hint="it was to be the token")
    file, known = _known()
    named = {**known.named, name: Context(url, token, token_file, token_variable)}
    write_contexts(file, Contexts(name if is_used else known.current, named))
    click.echo(f"added {name}{', the current one' if is_used else ''}", err=True)


@context.command("list")
@form_option()
def list_contexts(output: str) -> None:
    """List the contexts, with where the token of each is."""
    _, known = _known()
    shown = [_shown(name, found, known) for name, found in sorted(known.named.items())]
    shown.append(ShownContext(DIRECT, None, "none", known.current in (None, DIRECT)))
    columns = {"": lambda one: "*" if one.current else "", **columns_of("name", "url", "token")}
    print_documents(shown, output, columns, "name")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context; `direct` is NATS and Postgres themselves."""
    file, known = _known()
    if name != DIRECT:
        known.find(name)
    write_contexts(file, known._replace(current=name))
    click.echo(f"commands ask {name} now", err=True)


@context.command()
@click.argument("name", required=False)
@form_option()
def show(name: str | None, output: str) -> None:
    """Show a context, or the current one, without its token."""
    _, known = _known()
    name = name or known.current or DIRECT
    shown = {"name": DIRECT, "url": None} if name == DIRECT else plain(_shown(name, known.find(name), known))
    print_document(shown, output, "name", print_members)


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget a context."""
    file, known = _known()
    known.find(name)
    named = {other: found for other, found in known.named.items() if other != name}
    write_contexts(file, Contexts(None if known.current == name else known.current, named))
    click.echo(f"removed {name}" + ("; commands ask direct now" if known.current == name else ""), err=True)


def _known() -> tuple[Any, Contexts]:
    file = Settings.from_environment().contexts_file
    return file, read_contexts(file)


def _shown(name: str, found: Context, known: Contexts) -> ShownContext:
    return ShownContext(name, found.url, found.token_source, name == known.current)
