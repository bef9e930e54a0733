"""``noetl-stream execution watch|wait``."""

from __future__ import annotations

import click

from noetl_stream.cli.following import Following, end_as, stay, timeout_option
from noetl_stream.cli.operating import operate
from noetl_stream.cli.options import form_option
from noetl_stream.cli.where import Where, where_options


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@form_option("text")
@where_options
def watch(execution_id: str, timeout_s: float | None, output: str, where: Where) -> None:
    """Show an execution from its beginning and as it goes on, until it ends.

    On a terminal: its steps, loops with bars, retries, and what it waits for, with the time that is left. Elsewhere a
    line a change; `-o jsonl` gives the events. Ctrl-C ends the watching alone.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 --timeout is over
    """
    following = Following(wait=False, watch=True, timeout_s=timeout_s)
    found = operate(where, lambda desk: stay(desk, execution_id, following, output))
    end_as(found, execution_id, following, output)


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@form_option("text")
@where_options
def wait(execution_id: str, timeout_s: float | None, output: str, where: Where) -> None:
    """Wait until an execution ends, and show how.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 --timeout is over
    """
    following = Following(wait=True, watch=False, timeout_s=timeout_s)
    found = operate(where, lambda desk: stay(desk, execution_id, following, output))
    end_as(found, execution_id, following, output)


COMMANDS = (watch, wait)
