"""``noetl-stream execution watch|wait``."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.follow import Following, end_as, stay, timeout_option


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@form_option("text")
@target_options
def watch(execution_id: str, timeout_s: float | None, output: str, target: Target) -> None:
    """Show an execution from its beginning and as it goes on, until it ends.

    On a terminal: its steps, loops with bars, retries, and what it waits for, with the time that is left. Elsewhere a
    line a change; `-o jsonl` gives the events. Ctrl-C ends the watching alone.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 --timeout is over
    """
    following = Following(wait=False, watch=True, timeout_s=timeout_s)
    found = with_session(target, lambda session: stay(session, execution_id, following, output))
    end_as(found, execution_id, following, output)


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@form_option("text")
@target_options
def wait(execution_id: str, timeout_s: float | None, output: str, target: Target) -> None:
    """Wait until an execution ends, and show how.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 --timeout is over
    """
    following = Following(wait=True, watch=False, timeout_s=timeout_s)
    found = with_session(target, lambda session: stay(session, execution_id, following, output))
    end_as(found, execution_id, following, output)


COMMANDS = (watch, wait)
