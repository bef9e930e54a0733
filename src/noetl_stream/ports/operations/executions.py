"""Executions: start, inspect, intervene (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.model.envelope import EventDocument, Time
from noetl_stream.model.events import InterventionFact, StartedByKind
from noetl_stream.model.labels import MAX_KEY_CHARS
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.model.status import ExecutionStatus, RunStatus
from noetl_stream.ports.operations.reading.events import LogFilter, LogPage
from noetl_stream.ports.operations.reading.table_views import RowLimit, StoredTableDocument, TableReference
from noetl_stream.ports.operations.verbs import (
    Cursor,
    Default,
    Document,
    DocumentPage,
    ExecutionId,
    Inner,
    ItemsBelow,
    Labels,
    Limit,
    Named,
    StepRunId,
    verb,
)
from noetl_stream.ports.operations.waits import WaitDocument, WaitingOnDocument
from noetl_stream.sealing.data_references import DataReference


class ExecutionFilter(msgspec.Struct, frozen=True, gc=False):
    """Which executions of a list: all of these hold. Times are ms since the epoch."""

    status: Annotated[Sequence[ExecutionStatus], Meta(description="Any of these.")] = ()
    path: Annotated[str | None, Meta(description="Of this playbook, or of playbooks below it.")] = None
    labels: Labels = {}
    started_from_ms: int | None = None
    started_before_ms: int | None = None
    error: Annotated[str | None, Meta(description="Words that the error has.", max_length=512)] = None
    key: Annotated[str | None, Meta(description="Its business key.", min_length=1, max_length=MAX_KEY_CHARS)] = None
    inputs: Annotated[Mapping[str, str], Named("input"), Default({})] = {}
    failed_step: Annotated[str | None, Meta(description="The step that failed.", min_length=1, max_length=256)] = None
    worker: Annotated[str | None, Meta(description="A worker that ran a step.", min_length=1, max_length=64)] = None
    longer_than_s: Annotated[float | None, Meta(description="It has ended, and took at least so long: 90s, 2h.")] = None
    due: Annotated[
        str | None,
        Meta(description="Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.", max_length=64),
    ] = None
    scope: ItemsBelow = ()

    @property
    def searches_values(self) -> bool:
        """Whether it searches values that may be hidden where an execution is shown."""
        return self.error is not None or self.key is not None or bool(self.labels or self.inputs)


class RequestIds(msgspec.Struct, frozen=True, gc=False):
    """Ids of a new execution and its request, drawn beforehand: asking again with them starts nothing twice.

    Attributes:
        seed: Random bytes of which a secret is made: asking again with them makes the same one.
    """

    execution_id: str
    request_id: str
    seed: bytes = b""


class Start(msgspec.Struct, frozen=True, gc=False):
    """What to run: exactly one of ``playbook`` (its YAML text), ``digest``, and ``path`` with an optional version.

    ``priority`` overrides the playbook's. ``labels`` are added to the playbook's, and override them.
    ``key`` is its business key; ``unique``: if an execution of the playbook has that key, it is the answer.
    ``traceparent`` is the W3C header of the caller, whose trace the execution joins; any other text counts as none.
    ``digits_lost`` are the JSON pointers of numbers that lost digits where the workload was read.
    ``due`` is the time of the occurrence that it is for: tests of playbooks start as a schedule does.
    """

    path: str | None = None
    version: str | None = None
    digest: str | None = None
    playbook: str | None = None
    workload: Mapping[str, Any] = {}
    ctx: Mapping[str, Any] = {}
    labels: Mapping[str, Any] = {}
    key: str = ""
    unique: bool = False
    priority: int | None = None
    reason: str = ""
    correlation_id: str = ""
    traceparent: str = ""
    digits_lost: Sequence[str] = ()
    due: str = ""


class RerunOptions(msgspec.Struct, frozen=True, gc=False):
    """A new execution from one step of an ended one (LANGUAGE §9).

    Attributes:
        step: Where it begins: the last run of this step; ``None``: a retry of the run that failed.
        step_run_id: Which run of the step, if it had several.
        ctx: Keys of ``ctx`` that are set first.
        args: In place of those the chosen token had; ``None`` keeps them.
        priority: ``None`` keeps that of the original.
        undoes: Nothing runs again: what is left to undo of the original is undone.
    """

    step: str | None = None
    step_run_id: str | None = None
    ctx: Mapping[str, Any] = {}
    args: Mapping[str, Any] | None = None
    priority: int | None = None
    undoes: bool = False
    reason: str = ""
    correlation_id: str = ""


class ListedExecutionDocument(Document, frozen=True, kw_only=True):
    """An execution in a list. ``due`` is the time of the occurrence that it is for, as its schedule has it."""

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: ExecutionStatus
    started: Time
    updated: Time
    finished: Time | None
    duration_s: float | None
    labels: dict[str, Any]
    error: ErrorInfo | None
    key: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    failed_step: str | None = None
    workers: list[str] = msgspec.field(default_factory=list)
    due: str | None = None


class ExecutionPage(DocumentPage[ListedExecutionDocument], frozen=True):
    """Newest first."""


class ParentExecutionDocument(Document, frozen=True):
    """Which step run of which execution has called this one."""

    execution_id: str
    step_run_id: str


class OriginDocument(Document, frozen=True):
    """What has started it: a schedule or trigger by its ``path``, with the ``number`` of the start in its history; or
    the execution with this id, by a call or as the original of a rerun.
    """

    kind: StartedByKind
    path: str | None
    number: int | None
    execution_id: str | None


class StepSummaryDocument(Document, frozen=True):
    """All runs of a step together."""

    step: str
    runs: int
    status: RunStatus
    duration_s: float
    retries: int


class DiscardedTokenDocument(Document, frozen=True):
    """A token that went no further (LANGUAGE §4)."""

    token: str
    step: str
    reason: str


class WarningDocument(Document, frozen=True):
    """Something that may not be what its author meant. ``kind`` is stable."""

    kind: str
    message: str
    step: str | None


class CompensationDocument(Document, frozen=True):
    """Whether a step run that was to be undone at the end was, and else why not."""

    step: str
    step_run_id: str
    undone: bool
    reason: str


class ExecutionDocument(ListedExecutionDocument, frozen=True, kw_only=True):
    """An execution. A ``result`` that is kept by reference is ``{"$reference": …}``: ``…/result`` has it. ``steps`` and
    ``waits`` are null where the journal is long, and ``waits`` may be in the answer to a start: ``…/steps`` and
    ``…/why`` have them. ``discarded`` and ``warnings`` have the first 100 each, and are null where the journal is long
    and the execution has not ended. Without a start ``priority`` is the one asked for, and ``workload`` null. A large
    ``workload`` is ``{"$large": …}``: the event ``execution.started`` has it. ``already``: a start with a unique key
    found it, and started nothing. ``undoes`` are the steps whose runs can be undone.
    """

    result: Any
    ctx: dict[str, Any]
    ctx_version: int
    position: int
    discarded_tokens: int
    discarded: list[DiscardedTokenDocument] | None
    warnings: list[WarningDocument] | None
    trace_id: str
    principal: str
    rerun_of: str | None
    parent: ParentExecutionDocument | None
    steps: list[StepSummaryDocument] | None
    waits: list[WaitDocument] | None
    priority: int | None = None
    origin: OriginDocument | None = None
    already: bool = False
    workload: Any = None
    compensations: list[CompensationDocument] = msgspec.field(default_factory=list)
    undoes: list[str] = msgspec.field(default_factory=list)


class ResultDocument(Document, frozen=True):
    """How an execution has ended. A result over 16 MiB stays ``{"$reference": …}``."""

    execution_id: str
    status: ExecutionStatus
    result: Any
    error: ErrorInfo | None


class StepRunResultDocument(Document, frozen=True):
    """The whole result of the last task of a step run. A result over 16 MiB stays ``{"$reference": …}``."""

    execution_id: str
    step_run_id: str
    step: str
    result: Any


class TokenDocument(Document, frozen=True):
    """The token that made a step run. ``lineage``: by join step, the last firing that it descends from.
    ``priority`` and ``partition`` are those that its arc gave it.
    """

    token_id: str
    cause: Literal["start", "arc", "join", "injected", "rerun", "compensation", "finally"]
    args: dict[str, Any]
    from_step: str | None
    from_step_run_id: str | None
    trace_id: str
    lineage: dict[str, int]
    priority: int | None = None
    partition: str | None = None


class LoopCountsDocument(Document, frozen=True):
    """How the iterations of a loop ended. ``failed_leaves`` counts failures at any depth, each where it began."""

    count: int
    ok: int
    failed: int
    skipped: int
    failed_leaves: int


class StepRunDocument(Document, frozen=True):
    """One run of a step. A ``result`` that is long or kept elsewhere is ``{"$large": …}`` or ``{"$reference": …}``."""

    step_run_id: str
    step: str
    token: TokenDocument
    status: RunStatus
    claimed: Time
    started: Time | None
    finished: Time | None
    duration_s: float | None
    worker: str
    attempts: int
    retries: int
    loop: LoopCountsDocument | None
    result: Any
    error: ErrorInfo | None


class StepRunsDocument(Document, frozen=True):
    """In the order they began. In a page, ``count`` says how many there are, and ``next`` is the ``first`` of the page
    after this one; both are null in a list of all.
    """

    items: list[StepRunDocument]
    count: int | None = None
    next: int | None = None


StepRunOrder = Literal["began", "duration"]
"""By when they began; or by how long they took: the longest first, before them those that have not ended, the oldest
first.
"""


class StepRunRange(msgspec.Struct, frozen=True, gc=False):
    """Step runs from the one at ``first`` on.

    Attributes:
        step: Only runs of this step.
        step_run_id: Only this one.
    """

    first: int = 0
    limit: int = 100
    step: str | None = None
    step_run_id: str | None = None
    order: StepRunOrder = "began"


class IterationDocument(Document, frozen=True):
    """One iteration of a loop. ``path``: its index, in each level of nested loops."""

    path: list[int]
    status: RunStatus
    started: Time | None
    finished: Time | None
    worker: str
    attempts: int
    result: Any
    error: ErrorInfo | None


class IterationPage(DocumentPage[IterationDocument], frozen=True):
    """By path."""


class CtxChangeDocument(Document, frozen=True):
    """One change of ``ctx``: from outside with principal and reason, from within with step and task."""

    position: int
    at: Time
    event: str
    keys: list[str]
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None


class CtxDocument(Document, frozen=True):
    """``version`` is the position of the last change: what If-Match expects, in quotes."""

    ctx: dict[str, Any]
    version: int
    history: list[CtxChangeDocument]


class AcceptedDocument(Document, frozen=True, omit_defaults=True):
    """Committed, at this position of the journal. ``already``: it was so before."""

    execution_id: str
    position: int | None = None
    already: bool = False


class ReasonDocument(Document, frozen=True):
    """``kind`` is stable; ``sentence`` describes it, ``moves`` says what would move it, ``waiting_on`` the same for
    programs; null for what has ended.
    """

    kind: str
    sentence: str
    moves: str
    since: Time | None
    until: Time | None
    step: str | None
    task: str | None
    iteration: list[int]
    details: dict[str, Any]
    waiting_on: WaitingOnDocument | None = None


class FailureDocument(Document, frozen=True):
    """Where an execution failed. What is not known, or does not apply, is null or empty: an expression of an arc has no
    task. ``attempt`` is the one that failed, of the ``attempts`` that its policy allows. ``error`` is that of the task
    itself; ``traceback`` the one of its code, of a long one the end.
    """

    execution_id: str
    path: str
    status: ExecutionStatus
    step: str | None
    step_run_id: str | None
    task: str | None
    iteration: list[int]
    attempt: int | None
    attempts: int | None
    worker: str
    error: ErrorInfo | None
    traceback: str


class WhyDocument(Document, frozen=True):
    """Why an execution is where it is. ``more`` counts reasons that are left out. ``causes`` lead from a failure
    into the executions that were called, to where it began.
    """

    execution_id: str
    status: ExecutionStatus
    summary: str
    since: Time
    reasons: list[ReasonDocument]
    more: int
    causes: list[FailureDocument] = msgspec.field(default_factory=list)


class Executions(Protocol):
    """``by`` is the principal that acts, as shown in the events.

    Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away; with an execution id
    :class:`~noetl_stream.errors.NotFound` if there is no such execution.
    """

    @verb("POST", "/executions", scope="special")
    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        """The execution as :meth:`get` shows it, once the request is committed.

        With a unique key that an execution of the playbook has, it is that one, and nothing starts.

        Raises:
            PlaybookRefused: the playbook has errors, with its diagnostics; nothing was started.
            NotFound: no such path, version or digest.
        """

    @verb("GET", "/executions", "listExecutions", scope="special", replica=True)
    async def page(self, chosen: ExecutionFilter, limit: Limit, cursor: Cursor | None) -> ExecutionPage:
        """List executions, newest first."""

    @verb("GET", "/executions/{execution_id}", replica=True)
    async def get(self, execution_id: str) -> ExecutionDocument:
        """Everything about it at a glance."""

    @verb("GET", "/executions/{execution_id}")
    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        """:meth:`get`, as soon as it has ended or the time has passed."""

    @verb("GET", "/executions/{execution_id}/result")
    async def result(self, execution_id: str) -> ResultDocument:
        """The result of an ended execution, whole. One that is kept by reference is loaded unless it is very large.

        Raises:
            Conflict: it has not ended.
        """

    @verb("GET", "/executions/{execution_id}/result")
    async def result_pieces(
        self, execution_id: str, redactor: Annotated[Redactor | None, Inner] = None
    ) -> AsyncIterator[bytes]:
        """The JSON of :meth:`result` in pieces, of which a few are in memory at a time.

        Args:
            redactor: Of the values that it was given; ``None``: none.

        Raises:
            Conflict: it has not ended.
        """

    @verb("GET", "/executions/{execution_id}/file", secrets=False)
    async def file(self, execution_id: str, reference: DataReference) -> AsyncIterator[bytes]:
        """The bytes of a file or table, of which a few parts are in memory at a time. Its reader compares size and
        checksum: the iteration ends with an error where a part is lost.

        Args:
            reference: As the execution shows it.

        Raises:
            NotFound: the reference is not sealed for the execution, or the first part is lost.
        """

    @verb("GET", "/executions/{execution_id}/table", "getTable", refuses=("too-busy",), heavy=True)
    async def table(self, execution_id: ExecutionId, reference: TableReference, limit: RowLimit) -> StoredTableDocument:
        """Look at a table that an execution holds: its columns, how often which values are in them, its first rows.

        Raises:
            NotFound: as of :meth:`file`, or it is not a table.
            TooBusy: it took too long.
        """

    @verb("GET", "/executions/{execution_id}/steps", replica=True)
    async def steps(self, execution_id: str) -> list[StepRunDocument]:
        """Every step run, in the order they began: its token, times, attempts, outcome or error."""

    @verb("GET", "/executions/{execution_id}/steps", replica=True)
    async def runs(self, execution_id: str, wanted: StepRunRange) -> StepRunsDocument:
        """A page of its step runs."""

    @verb(
        "GET",
        "/executions/{execution_id}/steps/{step_run_id}/result",
        "getStepResult",
        refuses=("conflict",),
        heavy=True,
    )
    async def run_result(self, execution_id: ExecutionId, step_run_id: StepRunId) -> StepRunResultDocument:
        """Get the result of a step run, whole, from wherever it is kept.

        Raises:
            NotFound: there is no such step run, or its object is lost.
            Conflict: it has a loop: its iterations have results.
        """

    @verb(
        "GET",
        "/executions/{execution_id}/steps/{step_run_id}/iterations",
        "listIterations",
        replica=True,
        listed_first=("limit", "cursor"),
    )
    async def iterations(
        self, execution_id: ExecutionId, step_run_id: StepRunId, limit: Limit, cursor: Cursor | None
    ) -> IterationPage:
        """List the iterations of a loop step's run."""

    @verb("GET", "/executions/{execution_id}/events", replica=True)
    async def events(self, execution_id: str, after: int, limit: int) -> list[EventDocument]:
        """The journal by position, as envelopes (LANGUAGE §13)."""

    @verb("GET", "/executions/{execution_id}/logs", secrets=False)
    async def logs(self, execution_id: str, chosen: LogFilter, after: str, limit: int) -> LogPage:
        """What its tasks have written, after the id of a line (:data:`~.logs.FROM_THE_START`)."""

    @verb("GET", "/executions/{execution_id}/ctx", replica=True)
    async def ctx(self, execution_id: str) -> CtxDocument:
        """``ctx`` as it is, and every change by position, with who, why and which keys."""

    @verb("POST", "/executions/{execution_id}", secrets=False)
    async def ask(self, execution_id: str, fact: InterventionFact) -> AcceptedDocument:
        """A patch, token, signal, cancel, pause or resume, answered by the fold. The fact's ``principal`` acts.

        Raises:
            Conflict: the execution has ended or is ending, or ``ctx`` has another version.
            UsageError: it cannot take this: an unknown step, a payload over its limit.
        """

    @verb("POST", "/executions/{execution_id}/rerun")
    async def rerun(
        self, execution_id: str, wanted: RerunOptions, by: str, ids: RequestIds | None = None
    ) -> ExecutionDocument:
        """The new execution as :meth:`get` shows it; its ``rerun_of`` names the original.

        Raises:
            Conflict: the original has not ended, nothing of it failed (retry), or nothing is left to undo.
            UsageError: it has no such step, or never came to it.
        """

    @verb("GET", "/executions/{execution_id}/why", "explainExecution", replica=True, heavy=True)
    async def why(self, execution_id: ExecutionId, paths: Annotated[Sequence[str], Inner] = ()) -> WhyDocument:
        """Explain why it is where it is, and what would move it.

        Args:
            paths: Those of the playbooks whose executions it may name; empty: all.
        """

    @verb("DELETE", "/executions/{execution_id}", "deleteExecution", "admin", refuses=("conflict",), secrets=False)
    async def delete(self, execution_id: ExecutionId, by: str) -> None:
        """Delete an ended execution.

        With its journal, its row, its logs, and what it alone keeps in the object store.

        Raises:
            Conflict: it, or the execution that has called it, has not ended; or others refer to its journal.
        """
