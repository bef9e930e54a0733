"""``noetl-stream execution logs``: what tasks have written, and what their workers say about them."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import click

from noetl_stream.cli.base.options import bundled, moment_ms, output_option
from noetl_stream.cli.base.output import print_json, say
from noetl_stream.cli.base.session import PAGE, Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.model.events import Path
from noetl_stream.ports.operations.reading.logs import (
    FROM_THE_START,
    MAX_GREP,
    LogFilter,
    LogLineDocument,
    LogPage,
    followed,
    text_of,
)


def _iteration(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    if given is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}", given) is None:
        raise click.BadParameter(f"{given!r} is not an iteration such as 3 or 3.0")
    return tuple(map(int, given.split(".")))


def _grep(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None and not 0 < len(given) <= MAX_GREP:
        raise click.BadParameter(f"use 1 to {MAX_GREP} characters")
    return given


def _filter(
    step: str | None, task: str | None, iteration: Path | None, since_ms: int | None, grep: str | None
) -> LogFilter:
    return LogFilter(step, task, iteration, since_ms, grep)


filter_options = bundled(
    "chosen",
    _filter,
    [
        click.option("--step", help="Only of this step."),
        click.option("--task", help="Only of this task."),
        click.option("--iteration", callback=_iteration, metavar="INDEX", help="Only of this iteration: 3, or 3.0."),
        click.option("--since", "since_ms", callback=moment_ms, metavar="TIME", help="From then on: 10m, or ISO 8601."),
        click.option("--grep", callback=_grep, metavar="TEXT", help="Only lines with this text."),
    ],
)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Show lines as they come, until the execution ends.")
@filter_options
@output_option("text", "json", "jsonl")
@target_options
def logs(execution_id: str, follow: bool, chosen: LogFilter, output: str, target: Target) -> None:
    """Show what the tasks of an execution have written.

    Each line has its time, step, iteration and task: after `|` what the task wrote to stdout, after `!` to stderr,
    after `:` what its worker says. `-o json` shows one JSON object per line.
    """

    async def show(session: Session) -> None:
        if follow:
            await session.ensure_server()
        one_page = partial(_page, session, execution_id, chosen)
        async for page in followed(one_page, FROM_THE_START, asyncio.sleep):
            for line in page.items:
                _print(line, output)
            if page.state != "more" and not follow:
                return

    with_session(target, show)


async def _page(session: Session, execution_id: str, chosen: LogFilter, after: str) -> LogPage:
    return await session.operations.executions.logs(execution_id, chosen, after, PAGE)


def _print(line: LogLineDocument, output: str) -> None:
    if output == "text":
        say(text_of(line))
    else:
        print_json(line)
