"""``noetl-stream mcp``: tools for an agent at stdin and stdout."""

from __future__ import annotations

import click

from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
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
        role = await session.role()
        await serve_stdio(server_of(role, door_of(session, role), changes=allow_changes))

    with_session(target, work, publishes=allow_changes)
