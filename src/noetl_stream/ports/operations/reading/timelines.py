"""Timelines of an execution, in columns of any width; the iterations of a loop in buckets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, NamedTuple, get_args

from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.model.events import Path
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.reading.graphs import RunCountsDocument
from noetl_stream.ports.operations.verbs import Document, Name, Position

MAX_WIDTH: Final = 2_000
ROWS_SHOWN: Final = 300
"""The most rows of an answer."""

MAX_BUCKETS: Final = 1_000

SpanStatus = Literal["waiting", "running", "done", "failed", "cancelled", "reused", "skipped"]
SPAN_STATUSES: Final[tuple[SpanStatus, ...]] = get_args(SpanStatus)

WaitKind = Literal["signal", "child", "limit", "retry", "timer"]
"""What a suspended pipeline waits for."""

RowKind = Literal[
    "step", "iterations", "task", "held", "admission", "join", "queued", "suspended", "next", "paused", WaitKind
]
"""What a row of a timeline shows: runs of a step, iterations of its outermost loop, attempts of a task; else a wait, in
the words of ``why``.
"""


class TimeRange(NamedTuple):
    """A part of a timeline. Times are ms since the epoch; ``None``: from the beginning, to the last event.

    Attributes:
        first: How many of the rows in the range come before those that are answered.
        toggled: Steps that are folded if ``folded`` is false, and open if it is true.
    """

    since_ms: Annotated[int | None, Meta(description="Where it begins; without it with the first event.")] = None
    until_ms: Annotated[int | None, Meta(description="Where it ends; without it with the last event.")] = None
    width: Annotated[int, Meta(ge=1, le=MAX_WIDTH, description="Columns.")] = 500
    step: Annotated[Name | None, Meta(description="Only this step.")] = None
    first: Annotated[Position, Meta(description="Rows of the range before those that are answered.")] = 0
    limit: Annotated[int, Meta(ge=1, le=ROWS_SHOWN, description="Maximum number of rows.")] = ROWS_SHOWN
    folded: Annotated[bool, Meta(description="Of steps only their runs are rows.")] = False
    toggled: Annotated[
        Collection[Name],
        Meta(max_length=100, description="Steps that are folded if others are not, or not if others are."),
    ] = ()


class SpanDocument(Document, frozen=True):
    """``offset_ms`` from the beginning of the range, less than 0 if it began before; ``ms``: how long, null while it
    goes on. ``position``: the event with which it began.
    """

    offset_ms: int
    ms: int | None
    status: SpanStatus
    position: int
    step_run_id: str | None


class ActivityDocument(Document, frozen=True):
    """How many with this status were going on, as ``[column, columns, count]`` wherever any were."""

    status: SpanStatus
    columns: list[list[int]]


class TimelineRowDocument(Document, frozen=True):
    """What a step, or a task of it, has of a kind (:data:`RowKind`): ``count`` in the range, as ``spans`` if they are
    few, else as ``activity``. Iterations have only ``activity``.
    """

    kind: str
    step: str
    task: str
    count: int
    spans: list[SpanDocument] | None
    activity: list[ActivityDocument] | None


class IdleDocument(Document, frozen=True):
    """A time in which nothing ran and nothing happened. ``ms`` is null for one that goes on."""

    offset_ms: int
    ms: int | None


class TimelineDocument(Document, frozen=True):
    """``begun`` and ``last`` are the times of the first and the last event, ``since`` and ``until`` the range in
    ``width`` columns. ``runs`` has the step runs of all rows, answered or not, ``idle`` the longest idle times.

    ``first`` counts the rows before those in ``rows``, ``more`` all that are not in ``rows``, those before included;
    ``left_out`` counts attempts and waits of a very long journal.
    """

    execution_id: str
    position: int
    begun: Time
    last: Time
    since: Time
    until: Time
    width: int
    runs: list[ActivityDocument]
    idle: list[IdleDocument]
    first: int
    rows: list[TimelineRowDocument]
    more: int
    left_out: int


class IterationRange(NamedTuple):
    """Iterations of a level of a loop: those from ``first`` to before ``end``; ``None``: to the last.

    Attributes:
        within: The iteration around the level; ``()``: the outermost level.
        status: Only iterations with this status.
    """

    first: Annotated[Position, Meta(description="The index of an iteration.")] = 0
    end: Annotated[Position | None, Meta(description="Iterations before this one; without it to the last.")] = None
    within: Annotated[Path, Meta(description="The iteration around a loop inside a loop.")] = ()
    status: Annotated[SpanStatus | None, Meta(description="Only iterations with this status.")] = None


class StripCountsDocument(Document, frozen=True):
    """How many iterations of each bucket have this status."""

    status: SpanStatus
    counts: list[int]


class LoopStripDocument(Document, frozen=True):
    """The iterations from ``first`` to before ``end`` in buckets of ``size`` each, the last of what is left.
    ``count`` and ``totals`` are of the whole level. ``strips`` has the statuses that there are.
    """

    execution_id: str
    step_run_id: str
    position: int
    within: list[int]
    count: int
    totals: RunCountsDocument
    first: int
    end: int
    size: int
    strips: list[StripCountsDocument]


class IterationSummaryDocument(Document, frozen=True):
    """One iteration. ``error`` is shortened, and null for those after the 10,000th that failed."""

    path: list[int]
    status: SpanStatus
    started: Time | None
    duration_s: float | None
    attempts: int
    error: ErrorInfo | None


class IterationSummariesDocument(Document, frozen=True):
    """By index. ``next`` is the ``first`` of the page after this one."""

    items: list[IterationSummaryDocument]
    next: int | None
