"""The events of executions: chosen ones, by position, name, step, task, iteration or text, complete or in part; live
ones, each once, in order, across the switch from history to live (PROTOCOL §4); and the output of tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Protocol, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from noetl_stream.model.envelope import EventDocument, Time
from noetl_stream.model.events.fact_parts import Entity, EvaluatedGuard, EventStatus, Path, Source
from noetl_stream.model.json import codec
from noetl_stream.model.task_log import LogStream
from noetl_stream.ports.operations.verbs import MAX_POSITION, Document, Name, Named, Position

EventField = Literal[
    "event_id", "execution_id", "position", "ts", "source", "name", "entity", "entity_id", "status", "step_run_id",
    "report_id", "cause_id", "trace_id", "actor", "task", "attempt", "iteration", "tokens_consumed", "tokens_produced",
    "guards", "digest", "data", "step",
]  # fmt: skip
"""Those of :class:`~noetl_stream.model.envelope.EventDocument`, and the step, if it is of one."""

EVENT_FIELDS: Final[tuple[EventField, ...]] = tuple(name for name in get_args(EventField) if name != "step")
"""What is shown by default: naming the step requires having read the journal up to there."""

MAX_TEXT: Final = 256
"""Characters of a text to search for."""


class EventFilter(msgspec.Struct, frozen=True, gc=False):
    """Which events: all of these hold.

    Attributes:
        after: Those above this position, the first ones; with ``before`` alone the last ones below it.
        names: Any of these; empty: any name.
        iteration: Of a loop, with those of the loops within it: ``(2,)`` is 2, 2.0 and 2.1.
        text: In the ``data`` of the event, as it is shown, in any case.
        fields: The fields that are shown; empty: :data:`EVENT_FIELDS`.
    """

    after: Annotated[Position, Meta(description="A position: those above it, the first ones.")] = 0
    before: Annotated[
        int | None,
        Meta(ge=1, le=MAX_POSITION, description="A position: those below it; without `after` the last ones."),
    ] = None
    names: Annotated[
        Collection[Name], Named("name"), Meta(max_length=100, description="Only events of these names.")
    ] = ()
    step: Annotated[Name | None, Meta(description="Only events of this step.")] = None
    task: Annotated[Name | None, Meta(description="Only events of this task.")] = None
    iteration: Path | None = None
    text: Annotated[
        str | None,
        Meta(min_length=1, max_length=MAX_TEXT, description="What `data` contains, in any case; no pattern."),
    ] = None
    fields: Annotated[
        Collection[EventField], Named("field"), Meta(max_length=100, description="Only these fields; all without it.")
    ] = ()

    @property
    def names_steps(self) -> bool:
        """Whether the step of each event must be known."""
        return self.step is not None or "step" in self.fields


class ListedEventDocument(Document, frozen=True):
    """An event, or the requested ones of its fields: those of :class:`~noetl_stream.model.envelope.EventDocument`, and
    ``step`` only if requested.
    """

    event_id: str | UnsetType = UNSET
    execution_id: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    ts: Time | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    name: str | UnsetType = UNSET
    entity: Entity | UnsetType = UNSET
    entity_id: str | UnsetType = UNSET
    status: EventStatus | UnsetType = UNSET
    step_run_id: str | UnsetType | None = UNSET
    report_id: str | UnsetType | None = UNSET
    cause_id: str | UnsetType | None = UNSET
    trace_id: str | UnsetType = UNSET
    actor: str | UnsetType = UNSET
    task: str | UnsetType | None = UNSET
    attempt: int | UnsetType | None = UNSET
    iteration: list[int] | UnsetType | None = UNSET
    tokens_consumed: list[str] | UnsetType | None = UNSET
    tokens_produced: list[str] | UnsetType | None = UNSET
    guards: list[EvaluatedGuard] | UnsetType | None = UNSET
    digest: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET
    step: str | UnsetType | None = UNSET


class EventPage(Document, frozen=True):
    """Entries by position. ``next`` is the ``after`` of the page after this one, ``previous`` the ``before`` of the one
    before it, where the page was asked for by ``before``. A page may be short, or empty, and not the last.
    """

    items: list[ListedEventDocument]
    next: int | None
    previous: int | None = None


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


LAST_EVENT: Final = "playbook.processed"
"""The name of the last event of every journal."""


class FeedEvent:
    """An event of a feed, shared by its readers.

    Attributes:
        id: Where to resume after it; never a sequence of a stream, which may be rebuilt.
        event: Its envelope (LANGUAGE §13); ``None`` for one this reader may not see: it has the place only.
        path: That of its execution's playbook; empty where it came over HTTP.
    """

    def __init__(self, id: str, event: EventDocument | None, path: str) -> None:
        self.id: Final = id
        self.event: Final = event
        self.path: Final = path

    @property
    def name(self) -> str:
        """Of the event; empty where it has the place only."""
        return "" if self.event is None else self.event.name

    @cached_property
    def json(self) -> str:
        """The event as one line of JSON, made once for all readers."""
        return codec.encode(self.event).decode()


def only(events: list[FeedEvent], shown: Callable[[FeedEvent], bool]) -> list[FeedEvent]:
    """The shown ones; if the last is not shown, its place alone, so that a reader can resume from there."""
    found = [one for one in events if one.event is not None and shown(one)]
    if events and (not found or found[-1] is not events[-1]):
        found.append(FeedEvent(events[-1].id, None, ""))
    return found


class Feed(Protocol):
    """Both return when the feed is open: errors are raised before the first event.

    Events come as many at a time as are there, at least one.
    """

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        """The journal of one execution above the position ``after``, then live; ends with ``playbook.processed``.

        Raises:
            NotFound: no such execution.
        """

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        """The events of all executions: from the id ``after``, or from now on. It never ends.

        The place where it begins comes first. Events of one execution come in their order; those of different
        executions need not.

        Raises:
            UsageError: the id is not of this feed, or too old to resume from.
        """
