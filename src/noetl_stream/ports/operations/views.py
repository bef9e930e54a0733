"""What an execution looked like: its state at a position of its journal."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

from noetl_stream.model.envelope import Time
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.changes import KeyChangePage
from noetl_stream.ports.operations.diffs import ExecutionDiffDocument, RowChoice
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.events import EventFilter, EventPage
from noetl_stream.ports.operations.executions import LoopCountsDocument, WaitingOnDocument
from noetl_stream.ports.operations.graphs import ExecutionGraphDocument
from noetl_stream.ports.operations.timelines import (
    IterationRange,
    IterationSummariesDocument,
    LoopStripDocument,
    TimelineDocument,
    TimeRange,
)
from noetl_stream.ports.operations.verbs import verb

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


class StepResultDocument(Document, frozen=True):
    """What templates read of a step: its last result. A long one is ``{"$large": …}`` or ``{"$reference": …}``."""

    step: str
    result: Any
    error: ErrorInfo | None


class ExecutionStateDocument(Document, frozen=True):
    """An execution after the event at ``position``. ``last`` is the last position of its journal.

    ``tokens`` are the first 500; ``more`` counts those that are left out, ``places`` has all. Values of ``ctx`` are
    shown like results. ``steps`` is null where the journal is long and was not read for a graph or timeline before.
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


class Views(Protocol):
    """Each verb is about one execution, its first argument. None answers with a whole history.

    Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away;
    :class:`~noetl_stream.errors.NotFound` if there is no such execution.
    """

    @verb("GET", "/executions/{execution_id}/state")
    async def state(self, execution_id: str, position: int | None) -> ExecutionStateDocument:
        """Its state after the event at ``position``; ``None``: as it is.

        Raises:
            NotFound: its journal is shorter.
        """
        ...

    @verb("GET", "/executions/{execution_id}/graph")
    async def graph(self, execution_id: str, so_far: bool = False) -> ExecutionGraphDocument:
        """The graph of its playbook with what happened at each step and arc.

        Args:
            so_far: With what has been read of a long journal so far: ``position`` says how far. Reading goes on.

        Raises:
            PlaybookRefused: its playbook does not compile here.
        """
        ...

    @verb("GET", "/executions/{execution_id}/timeline")
    async def timeline(self, execution_id: str, wanted: TimeRange, so_far: bool = False) -> TimelineDocument:
        """What went on when: runs, iterations, attempts, waits. ``so_far``: as of :meth:`graph`.

        Raises:
            UsageError: the range is empty.
        """
        ...

    @verb("GET", "/executions/{execution_id}/steps/{step_run_id}/strip")
    async def strip(
        self, execution_id: str, step_run_id: str, chosen: IterationRange, buckets: int
    ) -> LoopStripDocument:
        """The iterations of a loop by status, in at most this many buckets; ``chosen.status`` is not used.

        Raises:
            NotFound: it has no such loop.
        """
        ...

    @verb("GET", "/executions/{execution_id}/steps/{step_run_id}/iterations/summaries")
    async def iterations(
        self, execution_id: str, step_run_id: str, chosen: IterationRange, limit: int
    ) -> IterationSummariesDocument:
        """The iterations of a loop in a range, without their results.

        Raises:
            NotFound: it has no such loop.
        """
        ...

    @verb("GET", "/executions/{execution_id}/ctx/changes")
    async def changes(self, execution_id: str, key: str | None, limit: int, cursor: str | None) -> KeyChangePage:
        """The changes of a key of ``ctx``, or of all keys, by position, with the values before and after."""
        ...

    @verb("GET", "/executions/{execution_id}/diff/{other}")
    async def diff(
        self, execution_id: str, other: str, rows: RowChoice, limit: int, cursor: str | None
    ) -> ExecutionDiffDocument:
        """It (A) and another (B) side by side: where they part first, and what differs. A page has at most 200 rows.

        Raises:
            NotFound: one of the two executions does not exist.
        """
        ...

    @verb("GET", "/executions/{execution_id}/events")
    async def events(self, execution_id: str, chosen: EventFilter, limit: int) -> EventPage:
        """Some of its events, by position, at most ``limit`` and 1 MiB. At most 10,000 are searched for a page."""
        ...
