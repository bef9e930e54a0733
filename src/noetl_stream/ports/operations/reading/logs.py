"""The output of an execution's tasks, and their workers' lines about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Literal

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.model.events import Path
from noetl_stream.model.task_log import LogStream
from noetl_stream.ports.operations.documents import Document

FROM_THE_START: Final = "0"
LOG_PLACE: Final = r"[0-9]{1,19}(?:\.[0-9]{1,6})?"
"""A pattern for the id of a line."""

MAX_GREP: Final = 256
"""Characters of a text to search for."""

FOLLOW_EVERY_S: Final = 0.5
"""The interval at which new lines are looked for."""

MARKS: Final[Mapping[LogStream, str]] = {"stdout": " |", "stderr": " !", "worker": ":"}


class LogFilter(msgspec.Struct, frozen=True, gc=False):
    """Which lines: all of these hold.

    Attributes:
        iteration: Of a loop, with those of the loops within it: ``(2,)`` is 2, 2.0 and 2.1.
        since_ms: From this time on, ms since the epoch.
        grep: A text that the line contains, as it is written.
    """

    step: str | None = None
    task: str | None = None
    iteration: Path | None = None
    since_ms: int | None = None
    grep: str | None = None


class LogLineDocument(Document, frozen=True):
    """A line. ``id``: where to go on after it. ``task`` is empty for what is said of the whole step."""

    id: str
    at: Time
    step: str
    step_run_id: str
    task: str
    attempt: int
    iteration: list[int]
    stream: LogStream
    text: str
    pool: str
    worker: str


class LogPage(Document, frozen=True):
    """Lines in the order in which they were stored. ``next``: the ``after`` of what follows.

    ``state``: ``more`` lines are stored already; the execution is ``live``, more may come; or it has ``ended``.
    """

    items: list[LogLineDocument]
    next: str
    state: Literal["more", "live", "ended"]


def text_of(line: LogLineDocument) -> str:
    """The line for people, with a mark for its stream."""
    place = line.step + "".join(f"[{index}]" for index in line.iteration) + (f".{line.task}" if line.task else "")
    return f"{line.at} {place}{MARKS[line.stream]} {line.text}"


async def followed(
    read: Callable[[str], Awaitable[LogPage]], after: str, sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[LogPage]:
    """The pages after ``after``, also empty ones; the last when the execution has ended. ``read`` reads one."""
    while True:
        page = await read(after)
        yield page
        after = page.next
        if page.state == "ended":
            return
        if page.state == "live":
            await sleep(FOLLOW_EVERY_S)
