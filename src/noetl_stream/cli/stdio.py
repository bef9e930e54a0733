"""``noetl-stream mcp|lsp``: services for an agent or an editor at stdin and stdout."""

from __future__ import annotations

import os
import sys

import click

from noetl_stream.cli.base.session import Session, Target, target_options, with_session
from noetl_stream.cli.playbook.playbook_source import accepted, kinds_option
from noetl_stream.errors import UsageError


@click.command()
@click.option("--allow-changes", is_flag=True, help="Offer tools that start and change executions, too.")
@target_options
def mcp(allow_changes: bool, target: Target) -> None:
    """Serve tools to an agent over stdin and stdout.

    Speaks the Model Context Protocol. The agent's program starts this command, and ends it by closing stdin. Without
    --allow-changes the tools only read. With --url or --context the role of the token decides, too.

    Needs the extra mcp: pip install 'noetl-stream[mcp]'.
    """
    try:
        from noetl_stream.mcp.protocol import serve_stdio, server_of
    except ModuleNotFoundError as error:
        raise UsageError(f"mcp needs {error.name}", hint="install noetl-stream[mcp]") from None
    from noetl_stream.cli.base.tools import door_of  # after what may be missing

    async def work(session: Session) -> None:
        role = (await session.caller()).role
        await serve_stdio(server_of(role, door_of(session, role), changes=allow_changes))

    with_session(target, work, publishes=allow_changes)


@click.command()
@kinds_option
@click.option("--stdio", is_flag=True, hidden=True, expose_value=False)  # some editors add it to every command
def lsp(extra: str) -> None:
    """Serve an editor: the language server of playbooks, on standard input and output.

    An editor starts it. It reports the problems of `playbook check` as you write, completes keys and names, shows what
    they mean and where they are, and renames them. It runs nothing and needs no servers.
    """
    try:
        from noetl_stream.language_server.features import serve
    except ModuleNotFoundError as error:
        raise UsageError(f"the language server needs {error.name}", hint="install noetl-stream[lsp]") from None
    taken = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of a plugin is not part of the protocol
    serve(*accepted(extra), sys.stdin.buffer, taken)
