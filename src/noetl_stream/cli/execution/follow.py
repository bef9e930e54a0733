"""Staying with an execution until it ends, in silence or watching; the command ends as the execution does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.output import print_document
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.execution.progress import ProgressView, progress_for
from noetl_stream.cli.execution.tables import print_ended
from noetl_stream.client.executions.follow import ProgressUpdate
from noetl_stream.concurrency import result_until
from noetl_stream.errors import NoetlError, PayloadRefused, Unreachable, UsageError
from noetl_stream.model import codec
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.executions import ExecutionDocument, ReasonDocument
from noetl_stream.ports.operations.feed import FeedEvent

Command = TypeVar("Command", bound=Callable[..., Any])

WAIT_S: Final = 30.0
"""How long is waited at a time, before it is looked whether a server is there."""

SILENCE_S: Final = 2.0
"""When nothing has moved for so long, it is asked why."""

ASKED_EVERY_S: Final = 5.0

PATIENCE_S: Final = 60.0
"""How long NATS and Postgres may be away, at least."""

RETRY_S: Final = 0.2


class Following(NamedTuple):
    """Whether, and how, to stay."""

    wait: bool
    watch: bool
    timeout_s: float | None


timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), help="Stay at most so many seconds: exit 124."
)


def following_options(command: Command) -> Command:
    """``--wait``, ``--watch`` and ``--timeout``, given to the command as one ``following``."""

    @functools.wraps(command)
    def bundled(*words: Any, wait: bool, watch: bool, timeout_s: float | None, **given: Any) -> Any:
        if timeout_s is not None and not (wait or watch):
            raise UsageError("--timeout is for waiting", hint="add --wait or --watch")
        return command(*words, following=Following(wait, watch, timeout_s), **given)

    decorated: Any = timeout_option(bundled)
    for option in (
        click.option("--watch", is_flag=True, help="Stay until it ends, and show how it goes."),
        click.option("--wait", is_flag=True, help="Stay until it ends; the exit code is the execution's."),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


async def wait_for_end(session: Session, execution_id: str, timeout_s: float | None) -> ExecutionDocument | None:
    """The ended execution, ``None`` if the time is over before."""
    executions = session.operations.executions
    found = await executions.get(execution_id)
    try:
        async with _left_alone(execution_id), asyncio.timeout(timeout_s):
            while found.status not in ENDED:
                await session.there_is_a_server()
                found = await executions.wait(execution_id, WAIT_S)
    except TimeoutError:
        return None
    return found


async def watch_to_end(
    session: Session, execution_id: str, timeout_s: float | None, output: str
) -> ExecutionDocument | None:
    """As :func:`wait_for_end`, showing its events: as JSON lines, or as live progress."""
    found = await session.operations.executions.get(execution_id)
    if found.status not in ENDED:
        await session.there_is_a_server()
    view: View = EventLines() if output == "jsonl" else ShownProgress(progress_for(output, stderr=False))
    try:
        async with _left_alone(execution_id), asyncio.timeout(timeout_s):
            return await followed(session, execution_id, view)
    except TimeoutError:
        return None


async def followed(session: Session, execution_id: str, view: View) -> ExecutionDocument:
    """Shows the events of an execution, and why it waits when it does, to its end: how it has ended.

    Raises:
        Unreachable: NATS and Postgres, or the gateway, were away for longer than :data:`PATIENCE_S`.
    """
    moved = asyncio.Event()
    hearing = _hear(session, execution_id, view, moved)
    try:
        ended = await result_until(hearing, _ask_why(session, execution_id, view, moved))
    finally:
        view.close()
    assert ended is not None  # who asks why ends by an error only
    return ended


async def _hear(session: Session, execution_id: str, view: View, moved: asyncio.Event) -> ExecutionDocument:
    last, away_s = 0, 0.0
    while True:
        try:
            async for some in await session.operations.feed.execution(execution_id, last):
                moved.set()
                for heard in some:
                    view.hear(heard)
                last, away_s = int(some[-1].id), 0.0
            return await session.operations.executions.get(execution_id)
        except Unreachable:  # what is committed meanwhile is read when they are back
            if away_s >= PATIENCE_S:
                raise
            await asyncio.sleep(RETRY_S)
            away_s += RETRY_S


async def stay(session: Session, execution_id: str, following: Following, output: str) -> ExecutionDocument | None:
    if following.watch:
        return await watch_to_end(session, execution_id, following.timeout_s, output)
    return await wait_for_end(session, execution_id, following.timeout_s)


def end_as(found: ExecutionDocument | None, execution_id: str, following: Following, output: str) -> NoReturn:
    """Shows how it has ended, and ends the command with the code that says so; ``None``: it goes on."""
    if found is None:
        click.echo(overtime(execution_id, following.timeout_s), err=True)
        raise click.exceptions.Exit(ExitCode.TIMEOUT)
    if not (following.watch and output == "jsonl"):
        print_document(found, output, "execution_id", print_ended)
    raise click.exceptions.Exit(ExitCode.COMPLETED if found.status == "completed" else ExitCode.FAILED)


def overtime(execution_id: str, timeout_s: float | None) -> str:
    return f"not ended after {timeout_s or 0:g} s: execution {execution_id} goes on"


@contextlib.asynccontextmanager
async def _left_alone(execution_id: str) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        click.echo(f"execution {execution_id} goes on", err=True)
        raise


async def _ask_why(session: Session, execution_id: str, view: View, moved: asyncio.Event) -> None:
    while True:
        moved.clear()
        if await _happens(moved, SILENCE_S):
            continue
        while not moved.is_set():
            with contextlib.suppress(Unreachable):
                await session.there_is_a_server()
            with contextlib.suppress(NoetlError):  # it is asked again
                view.wait((await session.operations.executions.why(execution_id)).reasons)
            await _happens(moved, ASKED_EVERY_S)


async def _happens(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class View(Protocol):
    """Shows what is heard of an execution."""

    def hear(self, heard: FeedEvent) -> None: ...
    def wait(self, reasons: list[ReasonDocument]) -> None: ...
    def close(self) -> None: ...


class EventLines:
    """Events as they are, one a line."""

    def hear(self, heard: FeedEvent) -> None:
        click.echo(heard.json)

    def wait(self, reasons: list[ReasonDocument]) -> None:
        """They are no events."""

    def close(self) -> None:
        """Nothing to put away."""


class ShownProgress:
    """What they mean: live progress."""

    def __init__(self, progress: ProgressView) -> None:
        self._progress = progress

    def hear(self, heard: FeedEvent) -> None:
        if heard.event is not None and (news := news_of(heard.event)) is not None:
            self._progress.news(news)

    def wait(self, reasons: list[ReasonDocument]) -> None:
        self._progress.waits(reasons)

    def close(self) -> None:
        self._progress.close()


def news_of(event: EventDocument) -> ProgressUpdate | None:
    """The fact in an envelope; ``None`` for one that only a newer release knows."""
    try:
        fact = codec.decode_fact(codec.encode({"name": event.name, **event.data}))
    except PayloadRefused:
        return None
    return ProgressUpdate(fact, event.step_run_id)
