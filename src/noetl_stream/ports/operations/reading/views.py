"""Past states of an execution: at a position of its journal, and the history of each key of ``ctx``."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.model.outcome import Dataset, ErrorInfo
from noetl_stream.model.status import ExecutionStatus, RunStatus
from noetl_stream.ports.operations.executions import LoopCountsDocument
from noetl_stream.ports.operations.reading import timelines
from noetl_stream.ports.operations.reading.diffs import MAX_ROWS, ExecutionDiffDocument, RowChoice
from noetl_stream.ports.operations.reading.events import EventFilter, EventPage
from noetl_stream.ports.operations.reading.graphs import ExecutionGraphDocument
from noetl_stream.ports.operations.verbs import (
    MAX_POSITION,
    Cursor,
    Default,
    Document,
    DocumentPage,
    ExecutionId,
    Limit,
    StepRunId,
    Without,
    verb,
)
from noetl_stream.ports.operations.waits import WaitingOnDocument
from noetl_stream.sealing.data_references import DataReference


class KeyChangeDocument(Document, frozen=True):
    """A change of a key of ``ctx``, from outside with principal and reason, from within with step and task.

    ``had`` and ``has``: whether the key was there before and is after it; ``before`` and ``after`` its values, a large
    one ``{"$large": …}``.
    """

    key: str
    position: int
    at: Time
    event: str
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None
    iteration: list[int] | None
    had: bool
    before: Any
    has: bool
    after: Any


class KeyChangePage(DocumentPage[KeyChangeDocument], frozen=True):
    """By position. A page may be short and not the last."""


TOKENS_SHOWN: Final = 500

TokenPlace = Literal[
    "token",  # not considered yet
    "held",  # at admission, and does not keep the execution alive
    "admission",  # at admission, where it may wait
    "join",
    "claimed",  # by a step run that has no command yet
    "queued",
    "running",
    "signal",
    "child",
    "retry",
    "timer",
    "limit",  # of its task
    "suspended",  # between two iterations
    "next",  # its step run has ended, and rests
    "routing",  # its step run has ended, and its arcs are not chosen yet
]
"""Where a token, or the step run that has consumed it, is. The words are those of ``why``."""


class PlacedTokenDocument(Document, frozen=True):
    """A token, or the step run that has consumed it. ``count``: how many of its commands, or iterations, are there;
    ``task``, ``iteration``, ``since`` and ``waiting_on`` are those of the first.
    """

    place: TokenPlace
    step: str
    token_id: str
    step_run_id: str | None
    from_step: str | None
    count: int
    task: str | None
    iteration: list[int]
    since: Time | None
    loop: LoopCountsDocument | None
    waiting_on: WaitingOnDocument | None


class StepPlacesDocument(Document, frozen=True):
    """How many tokens of a step are at each place (:data:`TokenPlace`): of a loop its commands, or iterations."""

    step: str
    places: dict[str, int]


class StepRunCountsDocument(Document, frozen=True):
    """The runs of a step, by status."""

    step: str
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    reused: int


class StepStatusDocument(Document, frozen=True):
    """The status of all runs and tokens of a step together."""

    step: str
    status: RunStatus


class StepResultDocument(Document, frozen=True):
    """What templates read of a step: its last result. A long one is ``{"$large": …}`` or ``{"$reference": …}``."""

    step: str
    result: Any
    error: ErrorInfo | None


class ExecutionStateDocument(Document, frozen=True):
    """An execution after the event at ``position``. ``last`` is the last position of its journal.

    ``tokens`` are the first 500; ``more`` counts those that are left out, ``places`` has all. Values of ``ctx`` are
    shown like results. ``steps`` is null where the journal is long and was not read for a graph or timeline before.
    ``statuses`` are those of the steps to which something has happened, as in the graph.
    """

    execution_id: str
    position: int
    last: int
    at: Time
    status: ExecutionStatus
    error: ErrorInfo | None
    tokens: list[PlacedTokenDocument]
    more: int
    places: list[StepPlacesDocument]
    steps: list[StepRunCountsDocument] | None
    ctx: dict[str, Any]
    ctx_version: int
    results: list[StepResultDocument]
    statuses: list[StepStatusDocument] = msgspec.field(default_factory=list)


class CallDocument(Document, frozen=True):
    """An execution that a step run has called, in one of its iterations. ``status`` is null until it has begun, and
    once it is deleted.
    """

    execution_id: str
    path: str
    status: ExecutionStatus | None
    step_run_id: str
    iteration: list[int]


class CallPage(DocumentPage[CallDocument], frozen=True):
    """In the order in which they were called."""


class DataUseDocument(Document, frozen=True):
    """The files and tables that an attempt of a task has read and written, without their seals, and the data elsewhere
    that its tool knows of. ``at`` is when it had ended.
    """

    position: int
    at: Time
    step: str
    step_run_id: str
    iteration: list[int]
    task: str
    attempt: int
    read: list[DataReference]
    written: list[DataReference]
    datasets: list[Dataset] = msgspec.field(default_factory=list)


class LineagePage(DocumentPage[DataUseDocument], frozen=True):
    """In the order in which the attempts ended."""


SEARCHED: Final = "Events are searched as they are shown, at most 10,000 for a page. A page ends after 1 MiB."

SoFar = Annotated[
    bool,
    Meta(
        description="Answer with what is read of a long journal by now, and read on: `position` says how far. "
        "Ask again while it is below that of the execution."
    ),
]


class Views(Protocol):
    """Each verb is about one execution, its first argument. None answers with a whole history.

    Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away;
    :class:`~noetl_stream.errors.NotFound` if there is no such execution.
    """

    @verb("GET", "/executions/{execution_id}/events", "listEvents", next="after", description=SEARCHED, heavy=True)
    async def events(
        self, execution_id: ExecutionId, chosen: EventFilter, limit: Annotated[Limit, Default(100)]
    ) -> EventPage:
        """List its journal, by position."""

    @verb("GET", "/executions/{execution_id}/state", "getState", heavy=True)
    async def state(
        self,
        execution_id: ExecutionId,
        position: Annotated[
            int | None, Meta(ge=1, le=MAX_POSITION, description="After the event there; as it is without it.")
        ],
    ) -> ExecutionStateDocument:
        """Get its state at a position of its journal: tokens, `ctx`, results.

        ``position`` ``None``: as it is.

        Raises:
            NotFound: its journal is shorter.
        """

    @verb("GET", "/executions/{execution_id}/graph", "getExecutionGraph", refuses=("playbook-refused",), heavy=True)
    async def graph(self, execution_id: ExecutionId, so_far: SoFar = False) -> ExecutionGraphDocument:
        """Get the graph of its playbook, with what happened at each step and arc.

        Args:
            so_far: With what has been read of a long journal so far: ``position`` says how far. Reading goes on.

        Raises:
            PlaybookRefused: its playbook does not compile here.
        """

    @verb("GET", "/executions/{execution_id}/diff/{other}", "diffExecutions", heavy=True)
    async def diff(
        self,
        execution_id: ExecutionId,
        other: Annotated[ExecutionId, Meta(description="The id of the other.")],
        rows: Annotated[RowChoice, Default("different"), Meta(description="All rows, or those that differ.")],
        limit: Annotated[int, Default(50), Meta(ge=1, le=MAX_ROWS, description="Maximum number of rows.")],
        cursor: Cursor | None,
    ) -> ExecutionDiffDocument:
        """Compare it (A) with another (B): where they part first, and what differs.

        Raises:
            NotFound: one of the two executions does not exist.
        """

    @verb("GET", "/executions/{execution_id}/timeline", "getTimeline", heavy=True)
    async def timeline(
        self, execution_id: ExecutionId, wanted: timelines.TimeRange, so_far: SoFar = False
    ) -> timelines.TimelineDocument:
        """Get what went on when: step runs, iterations, attempts, waits.

        ``so_far``: as of :meth:`graph`.

        Raises:
            UsageError: the range is empty.
        """

    @verb("GET", "/executions/{execution_id}/steps/{step_run_id}/strip", "getStrip", heavy=True)
    async def strip(
        self,
        execution_id: ExecutionId,
        step_run_id: StepRunId,
        chosen: Annotated[timelines.IterationRange, Without("status")],
        buckets: Annotated[int, Default(200), Meta(ge=1, le=timelines.MAX_BUCKETS)],
    ) -> timelines.LoopStripDocument:
        """Get the iterations of a loop by status, in buckets.

        ``chosen.status`` is not used.

        Raises:
            NotFound: it has no such loop.
        """

    @verb(
        "GET",
        "/executions/{execution_id}/steps/{step_run_id}/iterations/summaries",
        "listIterationSummaries",
        next="first",
        heavy=True,
    )
    async def iterations(
        self,
        execution_id: ExecutionId,
        step_run_id: StepRunId,
        chosen: timelines.IterationRange,
        limit: Annotated[Limit, Default(100)],
    ) -> timelines.IterationSummariesDocument:
        """List the iterations of a loop in a range, without their results.

        Raises:
            NotFound: it has no such loop.
        """

    @verb(
        "GET", "/executions/{execution_id}/ctx/changes", "listCtxChanges", listed_first=("limit", "cursor"), heavy=True
    )
    async def changes(
        self,
        execution_id: ExecutionId,
        key: Annotated[str | None, Meta(min_length=1, max_length=1024, description="Only this key.")],
        limit: Limit,
        cursor: Cursor | None,
    ) -> KeyChangePage:
        """List the changes of its `ctx` by key, with the values before and after."""

    @verb("GET", "/executions/{execution_id}/lineage", "listLineage", listed_first=("limit", "cursor"), heavy=True)
    async def lineage(self, execution_id: ExecutionId, limit: Limit, cursor: Cursor | None) -> LineagePage:
        """List which task has read and written which files and tables."""

    @verb("GET", "/executions/{execution_id}/calls", "listCalls", listed_first=("limit", "cursor"), heavy=True)
    async def calls(self, execution_id: ExecutionId, limit: Limit, cursor: Cursor | None) -> CallPage:
        """List the executions that it has called, with their statuses."""
