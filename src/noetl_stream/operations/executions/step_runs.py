"""The step runs of an execution from its journal (LANGUAGE §13), summaries by step, and the iterations of a loop
(LANGUAGE §6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final

import msgspec

from noetl_stream.errors import Conflict, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionReused,
    Fact,
    LoopCounts,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    Path,
    StepDone,
    StepFailed,
    StepReused,
    StepStarted,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.model.status import RunStatus
from noetl_stream.operations.paging import page_of, page_size
from noetl_stream.ports.operations.executions import (
    IterationDocument,
    IterationPage,
    LoopCountsDocument,
    StepRunDocument,
    StepRunRange,
    StepRunsDocument,
    StepSummaryDocument,
    TokenDocument,
)
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import pieces

SHOWN_BYTES: Final = 4 * 1024
"""Lists show only the size of a larger result."""

PAGES_KEPT: Final = 4
"""How many pages of iterations are kept while a journal is read, which does not have them in order."""

SUMMARIES_KEPT: Final = 32
"""How many summaries of long journals are kept: callers poll those that grow."""

_OF_STEP_RUNS: Final = frozenset(
    {
        "execution.reused",
        "token.enqueued",
        "token.claimed",
        "step.started",
        "task.processed",
        "step.done",
        "loop.done",
        "step.failed",
        "execution.finished",
    }
)
_OF_ITERATIONS: Final = frozenset(
    {"loop.iteration.started", "task.processed", "loop.iteration.done", "loop.iteration.failed"}
)


class _RunHistory(msgspec.Struct):
    """A step run so far. Times are ms since the epoch; a run reused from another execution took no time here."""

    step_run_id: str
    token: Token
    claimed_ms: int
    started_ms: int | None = None
    finished: int | None = None
    status: RunStatus = "waiting"
    worker: str = ""
    attempts: int = 0
    retries: int = 0
    last: Outcome | None = None
    loop: LoopCountsDocument | None = None
    in_loop: bool = False
    error: ErrorInfo | None = None

    @property
    def step(self) -> str:
        return self.token.step

    @property
    def duration_s(self) -> float | None:
        return None if self.finished is None else (self.finished - self.claimed_ms) / 1000

    def ends(self, row: StoredEvent, status: RunStatus) -> None:
        self.finished, self.status = row.at_ms, status

    def document(self, trace_id: str) -> StepRunDocument:
        token = self.token
        return StepRunDocument(
            step_run_id=self.step_run_id,
            step=token.step,
            token=TokenDocument(
                token_id=token.token_id,
                cause=token.cause,
                args=token.args,
                from_step=token.from_step,
                from_step_run_id=token.from_step_run_id,
                trace_id=trace_id,
                lineage=token.waves,
            ),
            status=self.status,
            claimed=iso(self.claimed_ms),
            started=iso_or_none(self.started_ms),
            finished=iso_or_none(self.finished),
            duration_s=None if self.duration_s is None else round(self.duration_s, 3),
            worker=self.worker,
            attempts=self.attempts,
            retries=self.retries,
            loop=self.loop,
            result=None if self.last is None or self.loop is not None else shown_result(self.last.result),
            error=self.error,
        )


class _Reading(msgspec.Struct):
    tokens: dict[str, Token] = msgspec.field(default_factory=dict)
    runs: dict[str, _RunHistory] = msgspec.field(default_factory=dict)

    def take(self, row: StoredEvent) -> None:
        if row.name not in _OF_STEP_RUNS:
            return
        fact = codec.decode_fact(row.data)
        if isinstance(fact, ExecutionReused):
            for entry in fact.entries:
                self._take(entry, row)
        else:
            self._take(fact, row)

    def _take(self, fact: Fact, row: StoredEvent) -> None:
        if isinstance(fact, TokenEnqueued):
            self.tokens[fact.token.token_id] = fact.token
        elif isinstance(fact, TokenClaimed):
            run = _RunHistory(fact.step_run_id, self.tokens.pop(fact.token_id), row.at_ms)
            self.runs[fact.step_run_id] = run
        elif isinstance(fact, ExecutionFinished):
            for run in self.runs.values():
                if run.finished is None:
                    run.ends(row, "cancelled")
        elif (found := self.runs.get(getattr(fact, "step_run_id", None) or row.step_run_id or "")) is not None:
            _take(found, fact, row)


def _take(run: _RunHistory, fact: Any, row: StoredEvent) -> None:
    if isinstance(fact, StepStarted):
        run.started_ms = run.started_ms if run.started_ms is not None else row.at_ms
        run.worker, run.status = fact.worker, "running"
    elif isinstance(fact, TaskProcessed):
        run.attempts += 1
        run.retries += fact.do == "retry"
        run.last, run.in_loop = fact.outcome, bool(fact.path)
    elif isinstance(fact, LoopDone) and not fact.path:
        run.loop = _loop_counts(fact)
        run.ends(row, "done")
    elif isinstance(fact, StepDone):
        run.ends(row, "done")
    elif isinstance(fact, StepFailed):
        run.error = fact.error
        run.ends(row, "cancelled" if fact.error.kind == "cancelled" else "failed")
    elif isinstance(fact, StepReused):
        run.error, run.last = fact.error, fact.outcome
        run.loop = None if fact.loop is None else _loop_counts(fact.loop)
        run.ends(row, "reused")


def _loop_counts(fact: LoopDone | LoopCounts) -> LoopCountsDocument:
    leaves = fact.failed_leaves or fact.failed  # earlier versions did not record it
    return LoopCountsDocument(fact.count, fact.ok, fact.failed, fact.skipped, leaves)


async def step_runs(store: Store, execution_id: str, trace_id: str) -> list[StepRunDocument]:
    """The step runs in the order in which they began. ``trace_id`` is that of the execution."""
    reading = _Reading()
    async for piece in pieces(store, execution_id):
        for row in piece:
            reading.take(row)
    return [run.document(trace_id) for run in reading.runs.values()]


class StepTime(msgspec.Struct, frozen=True, gc=False):
    """How long a step run took that ended ``done``, or ``failed``."""

    step: str
    is_done: bool
    duration_s: float


async def step_times(store: Store, execution_id: str) -> list[StepTime]:
    """The step runs that have ended well or failed here, in the order in which they began."""
    reading = _Reading()
    async for piece in pieces(store, execution_id):
        for row in piece:
            if row.name != "task.processed":  # the most of a long journal
                reading.take(row)
    return [
        StepTime(run.step, run.status == "done", run.duration_s)
        for run in reading.runs.values()
        if run.status in ("done", "failed") and run.duration_s is not None
    ]


class StepSummaries:
    """The summaries of long journals: each is read once, and from then on only what is added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: LruCache[str, _Growing] = LruCache(SUMMARIES_KEPT)

    async def of(self, execution_id: str) -> list[StepSummaryDocument]:
        """The runs of each step together."""
        return summaries((await self._runs(execution_id)).values())

    async def page(self, row: ExecutionRow, wanted: StepRunRange) -> StepRunsDocument:
        """Some of the step runs."""
        runs = await self._runs(row.execution_id)
        if wanted.step_run_id is not None:
            chosen = [run for run in (runs.get(wanted.step_run_id),) if run is not None]
        else:
            chosen = [run for run in runs.values() if wanted.step in (None, run.step)]
        end = wanted.first + page_size(wanted.limit)
        items = [run.document(row.trace_id) for run in chosen[wanted.first : end]]
        return StepRunsDocument(items, len(chosen), end if end < len(chosen) else None)

    async def result(self, execution_id: str, step_run_id: str) -> tuple[str, Payload]:
        """The step of a step run, and its last task's result.

        Raises:
            NotFound: there is no such step run.
            Conflict: it has a loop.
        """
        run = (await self._runs(execution_id)).get(step_run_id)
        if run is None:
            raise NotFound(f"execution {execution_id} has no step run {step_run_id}")
        if run.loop is not None or (run.last is not None and run.in_loop):
            raise Conflict(f"step run {step_run_id} has a loop", hint="its iterations have the results")
        return run.step, Payload() if run.last is None else run.last.result

    async def _runs(self, execution_id: str) -> dict[str, _RunHistory]:
        growing = self._known.get(execution_id)
        if growing is None:
            growing = _Growing()
            self._known.put(execution_id, growing)
        async with growing.lock:
            async for piece in pieces(self._store, execution_id, growing.position):
                for row in piece:
                    growing.reading.take(row)
                growing.position = piece[-1].position
        return growing.reading.runs


class _Growing(msgspec.Struct):
    position: int = 0
    reading: _Reading = msgspec.field(default_factory=_Reading)
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


def summarize(journal: Iterable[StoredEvent]) -> list[StepSummaryDocument]:
    """The runs of each step together, from a journal."""
    reading = _Reading()
    for row in journal:
        reading.take(row)
    return summaries(reading.runs.values())


def summaries(runs: Iterable[_RunHistory | StepRunDocument]) -> list[StepSummaryDocument]:
    """The runs of each step together, in the order in which the steps first ran. The status of a step is that of the
    run that ended last; ``duration_s`` is the sum over the ended runs, by the log's stored times.

    Args:
        runs: In the order in which they began.
    """
    steps: dict[str, list[_RunHistory | StepRunDocument]] = {}
    for run in runs:
        steps.setdefault(run.step, []).append(run)
    return [_summary(step, of_step) for step, of_step in steps.items()]


def _summary(step: str, runs: Sequence[_RunHistory | StepRunDocument]) -> StepSummaryDocument:
    ended = sorted((run for run in runs if run.finished is not None), key=attrgetter("finished"))
    return StepSummaryDocument(
        step=step,
        runs=len(runs),
        status=ended[-1].status if ended else "running",
        duration_s=round(sum(run.duration_s or 0.0 for run in runs), 3),
        retries=sum(run.retries for run in runs),
    )


def shown_result(payload: Payload) -> Any:
    """A result in a list: ``{"$reference": {…}}`` if it is in the object store, ``{"$large": …}`` if it is large."""
    if payload.reference is not None:
        return {"$reference": msgspec.structs.asdict(payload.reference)}
    size = len(bytes(payload.value))
    return codec.decode_shown(payload.value) if size <= SHOWN_BYTES else {"$large": {"size": size}}


class _Iteration(msgspec.Struct):
    path: Path
    started_ms: int | None = None
    ended_ms: int | None = None
    status: RunStatus = "running"
    worker: str = ""
    attempts: int = 0
    last: TaskProcessed | None = None
    error: ErrorInfo | None = None

    def take(self, fact: Any, at_ms: int) -> None:
        if isinstance(fact, LoopIterationStarted):
            self.started_ms = self.started_ms if self.started_ms is not None else at_ms
            self.worker = fact.worker
        elif isinstance(fact, TaskProcessed):
            self.attempts += 1
            self.last = fact
        elif isinstance(fact, LoopIterationDone):
            self.ended_ms, self.status = at_ms, "done"
        elif isinstance(fact, LoopIterationFailed):
            self.ended_ms, self.status, self.error = at_ms, "failed", fact.error

    def document(self) -> IterationDocument:
        return IterationDocument(
            path=list(self.path),
            status=self.status,
            started=iso_or_none(self.started_ms),
            finished=iso_or_none(self.ended_ms),
            worker=self.worker,
            attempts=self.attempts,
            result=None if self.last is None else shown_result(self.last.outcome.result),
            error=self.error,
        )


async def iterations_page(
    store: Store, execution_id: str, step_run_id: str, limit: int, after: list[int] | None
) -> IterationPage:
    """The iterations of a loop whose path is above ``after``, by path. Those that have not begun are missing."""
    found: dict[Path, _Iteration] = {}
    first = tuple(after or ())
    ceiling: Path | None = None
    async for piece in pieces(store, execution_id):
        for row in piece:
            if row.name not in _OF_ITERATIONS:
                continue
            fact: Any = codec.decode_fact(row.data)
            path: Path = fact.path
            if (row.step_run_id or getattr(fact, "step_run_id", "")) != step_run_id or not path or path <= first:
                continue
            if ceiling is None or path <= ceiling:
                found.setdefault(path, _Iteration(path)).take(fact, row.at_ms)
        if len(found) > PAGES_KEPT * (limit + 1):
            kept = nsmallest(limit + 1, found)
            found, ceiling = {path: found[path] for path in kept}, kept[-1]
    page, following = page_of(nsmallest(limit + 1, found), limit, list)
    return IterationPage([found[path].document() for path in page], following)
