"""``noetl-stream execution watch|wait``: following an execution to its end. The exit code is that of the execution."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Final, NoReturn

import click
import msgspec

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import bundled, form_option
from noetl_stream.cli.base.output import print_document, say
from noetl_stream.cli.base.session import PAGE, Session, Target, target_options, with_session
from noetl_stream.cli.execution.display.progress import EventLines, PlainProgress, ProgressView, Stalls
from noetl_stream.cli.execution.display.tables import print_ended
from noetl_stream.concurrency import result_until, set_within
from noetl_stream.durations import duration_text
from noetl_stream.errors import NoetlError, Unreachable, UsageError
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.operations.reading.events import FOLLOW_EVERY_S, FROM_THE_START, LogFilter
from noetl_stream.retries import pauses

WAIT_S: Final = 30.0
"""The interval of waiting after which a server is checked for."""

SILENCE_S: Final = 2.0
"""The time without progress after which ``why`` is called."""

WHY_EVERY_S: Final = 5.0

PATIENCE_S: Final = 60.0
"""The least time for which NATS and Postgres may be unreachable."""

RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 5.0


class Following(msgspec.Struct, frozen=True, gc=False):
    """Whether, and how, to follow an execution."""

    wait: bool
    watch: bool
    timeout_s: float | None
    verbose: bool = False


timeout_option = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    help="Stop waiting after this many seconds, with exit code 124.",
)


verbose_option = click.option("--verbose", is_flag=True, help="Print a line for each change.")


def _following(wait: bool, watch: bool, timeout_s: float | None, verbose: bool) -> Following:
    if timeout_s is not None and not (wait or watch):
        raise UsageError("--timeout needs --wait or --watch")
    if verbose and not watch:
        raise UsageError("--verbose needs --watch")
    return Following(wait, watch, timeout_s, verbose)


following_options = bundled(
    "following",
    _following,
    [
        click.option("--wait", is_flag=True, help="Wait for the end; the exit code is that of the execution."),
        click.option("--watch", is_flag=True, help="Wait for the end and show progress."),
        timeout_option,
        verbose_option,
    ],
)


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@verbose_option
@form_option("text")
@target_options
def watch(execution_id: str, timeout_s: float | None, verbose: bool, output: str, target: Target) -> None:
    """Show the progress of an execution until it ends.

    On a terminal: steps, loops with progress bars, retries, and waits with the time left. Elsewhere: a summary, with
    --verbose one line per change, or with `-o jsonl` the events. Press Ctrl-C to stop watching; the execution
    continues.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 timeout
    """
    _follow(execution_id, Following(False, True, timeout_s, verbose), output, target)


@click.command()
@click.argument("execution_id", metavar="ID")
@timeout_option
@form_option("text")
@target_options
def wait(execution_id: str, timeout_s: float | None, output: str, target: Target) -> None:
    """Wait until an execution ends, and show its result.

    \b
    Exit code: 0 completed    1 failed or cancelled    124 timeout
    """
    _follow(execution_id, Following(wait=True, watch=False, timeout_s=timeout_s), output, target)


def _follow(execution_id: str, following: Following, output: str, target: Target) -> NoReturn:
    found = with_session(target, lambda session: stay(session, execution_id, following, output), publishes=True)
    end_as(found, execution_id, following, output)


async def stay(session: Session, execution_id: str, following: Following, output: str) -> ExecutionDocument | None:
    """Follows an execution; returns the ended execution, ``None`` after the timeout."""
    found = await session.operations.executions.get(execution_id)
    try:
        async with _reporting_cancellation(execution_id), asyncio.timeout(following.timeout_s):
            if following.watch:
                if found.status not in ENDED:
                    await session.ensure_server()
                view = progress_for(output, stderr=False, verbose=following.verbose)
                return await followed(session, execution_id, view)
            while found.status not in ENDED:
                await session.ensure_server()
                found = await session.operations.executions.wait(execution_id, WAIT_S)
    except TimeoutError:
        return None
    return found


def progress_for(output: str, *, stderr: bool = True, verbose: bool = False, shared: bool = False) -> ProgressView:
    """The view that fits the output format and the terminal.

    Args:
        verbose: Whether each change is a line.
        shared: Whether a person works with a program on the terminal meanwhile.
    """
    if output == "jsonl":
        return EventLines()
    if output != "text":
        return Stalls()
    if not verbose and not shared and (sys.stderr if stderr else sys.stdout).isatty():
        from rich.console import Console

        from noetl_stream.cli.execution.display.live_progress import LiveProgress

        console = Console(stderr=stderr)
        if not console.is_dumb_terminal:
            return LiveProgress(console)
    return PlainProgress(stderr=stderr, verbose=verbose, shared=shared)


async def followed(
    session: Session, execution_id: str, view: ProgressView, writers: Callable[[], Collection[tuple[str, str]]] = tuple
) -> ExecutionDocument:
    """Shows the events of an execution to its end, and the reasons when nothing moves; returns the ended execution.

    Args:
        writers: Returns the steps and tasks whose output is shown as they write it.

    Raises:
        Unreachable: NATS and Postgres, or the gateway, were unreachable for longer than :data:`PATIENCE_S`.
    """
    moved = asyncio.Event()
    activity.clear()
    view.start(execution_id)
    showing = _show_events(session, execution_id, view, moved)
    try:
        output = _show_output(session, execution_id, view, writers)
        ended = await result_until(showing, _both(_show_why(session, execution_id, view, moved), output))
    finally:
        view.close()
    assert ended is not None  # `_show_why` never returns
    return ended


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)


async def _show_events(
    session: Session, execution_id: str, view: ProgressView, moved: asyncio.Event
) -> ExecutionDocument:
    last, away_s, waits = 0, 0.0, pauses(RETRY_S, LONGEST_RETRY_S)
    while True:
        try:
            async for some in await session.operations.feed.execution(execution_id, last):
                moved.set()
                for event in some:
                    view.event(event)
                last, away_s, waits = int(some[-1].id), 0.0, pauses(RETRY_S, LONGEST_RETRY_S)
            return await session.operations.executions.get(execution_id)
        except Unreachable as error:  # continues at `last` as soon as they are back
            if away_s >= PATIENCE_S:
                raise
            view.unreachable(f"{error.message}; trying again for {PATIENCE_S:.0f} s")
            await asyncio.sleep(pause_s := next(waits))
            away_s += pause_s


async def _show_why(session: Session, execution_id: str, view: ProgressView, moved: asyncio.Event) -> None:
    while True:
        moved.clear()
        if await set_within(moved, SILENCE_S):
            continue
        while not moved.is_set():
            with contextlib.suppress(Unreachable):
                await session.ensure_server()
            with contextlib.suppress(NoetlError):  # tried again below
                view.waits((await session.operations.executions.why(execution_id)).reasons)
            await set_within(moved, WHY_EVERY_S)


async def _show_output(
    session: Session, execution_id: str, view: ProgressView, writers: Callable[[], Collection[tuple[str, str]]]
) -> None:
    await asyncio.sleep(FOLLOW_EVERY_S)  # an execution that ends sooner needs none of this
    shown = writers() if view.shows_output else ()
    after, waits = FROM_THE_START, pauses(RETRY_S, LONGEST_RETRY_S)
    while shown:
        try:
            page = await session.operations.executions.logs(execution_id, LogFilter(), after, PAGE)
        except NoetlError:  # missed output is shown with the end of its attempt
            await asyncio.sleep(next(waits))
            continue
        view.written(line for line in page.items if line.stream != "worker" and (line.step, line.task) in shown)
        after, waits = page.next, pauses(RETRY_S, LONGEST_RETRY_S)
        if page.state != "more":
            await asyncio.sleep(FOLLOW_EVERY_S)


def end_as(found: ExecutionDocument | None, execution_id: str, following: Following, output: str) -> NoReturn:
    """Shows an ended execution, and exits with its code; for ``None``, with that of a timeout."""
    if found is None:
        say(f"timeout after {duration_text(following.timeout_s)}: execution {execution_id} continues", err=True)
        raise click.exceptions.Exit(ExitCode.TIMEOUT)
    if not (following.watch and output == "jsonl"):
        print_document(found, output, "execution_id", print_ended)
    raise click.exceptions.Exit(exit_code_of(found))


def exit_code_of(ended: ExecutionDocument) -> ExitCode:
    return ExitCode.COMPLETED if ended.status == "completed" else ExitCode.FAILED


@contextlib.asynccontextmanager
async def _reporting_cancellation(execution_id: str) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        say(f"execution {execution_id} continues", err=True)
        raise
