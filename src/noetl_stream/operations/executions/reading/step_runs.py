"""The step runs of an execution from its journal, summaries by step, and iterations of a loop (LANGUAGE §6, §13); and
the statuses of all of them for people: one rule (LANGUAGE §9).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

import msgspec

from noetl_stream.errors import Conflict, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model import events
from noetl_stream.model.envelope import iso_or_none
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.model.status import ExecutionStatus, RunStatus
from noetl_stream.operations.paging import page_of, page_size
from noetl_stream.ports.operations import executions as documents
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import fact_of, pieces

_ENDS: Final[tuple[RunStatus, ...]] = ("failed", "cancelled", "done", "reused")
"""The statuses that the ends of runs give a step: the first that one of them has."""

_GOES_ON: Final = ("token", "claimed", "queued", "running", "routing")
"""Places of tokens that wait only for the engine or a worker."""


class Statuses(msgspec.Struct, frozen=True):
    """The basis of the statuses of step runs and steps.

    Attributes:
        execution: The status of the execution.
        runs: The statuses of its unfinished step runs, from the state.
        places: The number of its tokens at each place, by step.
        is_deciding: Whether the engine is about to decide about each token: nothing is in a worker or a queue, and
            nothing waits.
    """

    execution: ExecutionStatus
    runs: Mapping[str, RunStatus] = {}
    places: Mapping[str, Mapping[str, int]] = {}
    is_deciding: bool = False

    def of_run(self, step_run_id: str) -> RunStatus:
        return self.runs.get(step_run_id) or self._going_on

    def of_step(self, step: str, runs: Mapping[RunStatus, int]) -> RunStatus | None:
        """The status of a step, by the number of its runs with each; ``None`` if it never ran."""
        there = self.places.get(step, {})
        if runs.get("running"):
            return "running"
        if any(place in _GOES_ON for place in there):
            return self._going_on
        if there or runs.get("waiting"):
            return "running" if self.is_deciding else "waiting"
        return next((status for status in _ENDS if runs.get(status)), None)

    @property
    def _going_on(self) -> RunStatus:
        return "running" if self.execution in ("running", "compensating") else "waiting"


SHOWN_BYTES: Final = 4 * 1024
"""Lists show only the size of a larger result."""

PAGES_KEPT: Final = 4
"""The pages of iterations that are kept while a journal is read, which does not have them in order."""

SUMMARIES_KEPT: Final = 32
"""The summaries of long journals that are kept: callers poll growing ones."""


_ENDED: Final = Statuses("completed")
"""The statuses of an ended execution, all of whose step runs have ended."""


class _RunHistory(msgspec.Struct):
    """A step run so far. Times are ms since the epoch; a run reused from another execution took no time here."""

    step_run_id: str
    token: events.Token
    claimed_ms: int
    started_ms: int | None = None
    finished: int | None = None
    status: RunStatus = "waiting"
    worker: str = ""
    attempts: int = 0
    retries: int = 0
    last: Outcome | None = None
    loop: documents.LoopCountsDocument | None = None
    in_loop: bool = False
    error: ErrorInfo | None = None

    @property
    def step(self) -> str:
        return self.token.step

    @property
    def duration_s(self) -> float | None:
        return None if self.finished is None else (self.finished - self.claimed_ms) / 1000

    def shown_status(self, statuses: Statuses | None) -> RunStatus:
        """The shown status of a step run; ``statuses`` are those of an unfinished execution."""
        return self.status if statuses is None or self.finished is not None else statuses.of_run(self.step_run_id)

    def document(self, trace_id: str, statuses: Statuses | None) -> documents.StepRunDocument:
        token = self.token
        return document_from(
            documents.StepRunDocument,
            self,
            status=self.shown_status(statuses),
            token=document_from(
                documents.TokenDocument,
                token,
                trace_id=trace_id,
                lineage=token.waves,
                partition=token.partition or None,
            ),
            finished=iso_or_none(self.finished),
            duration_s=None if self.duration_s is None else round(self.duration_s, 3),
            result=None if self.last is None or self.loop is not None else shown_result(self.last.result),
        )


class _RunTimes(JournalReader[_RunHistory]):
    """The step runs with their ends alone: the attempts are the most of a long journal."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self._tokens: dict[str, events.Token] = {}

    def take(self, journal: Iterable[StoredEvent]) -> None:
        """Adds the next events."""
        for event in journal:
            if event.name in self.names:
                self.read(fact_of(event))
            self.position = event.position

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        self._tokens[fact.token.token_id] = fact.token

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> _RunHistory:
        return _RunHistory(fact.step_run_id, self._tokens.pop(fact.token_id), at.at_ms)

    def run_ended(self, at: Recorded, run: _RunHistory, fact: RunEnd) -> None:
        run.finished, run.status, run.error = at.at_ms, fact.status, fact.error

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        for run in self.by_id.values():
            if run.finished is None:
                run.finished, run.status = at.at_ms, "cancelled"


class StepRunReader(_RunTimes):
    """Reads the step runs of a journal with everything that lists show of them."""

    def run_started(self, at: Recorded, run: _RunHistory, fact: events.StepStarted) -> None:
        run.started_ms = run.started_ms if run.started_ms is not None else at.at_ms
        run.worker, run.status = fact.worker, "running"

    def attempt_ended(self, at: Recorded, run: _RunHistory, fact: events.TaskProcessed) -> None:
        run.attempts += 1
        run.retries += fact.do == "retry"
        run.last, run.in_loop = fact.outcome, bool(fact.path)

    def loop_ended(self, at: Recorded, run: _RunHistory, fact: events.LoopDone) -> None:
        if not fact.path:
            run.loop = _loop_counts(fact)

    def run_reused(self, at: Recorded, run: _RunHistory, fact: events.StepReused) -> None:
        run.last, run.loop = fact.outcome, None if fact.loop is None else _loop_counts(fact.loop)


def _loop_counts(fact: events.LoopDone | events.LoopCounts) -> documents.LoopCountsDocument:
    leaves = fact.failed_leaves or fact.failed  # earlier versions did not record leaves
    return documents.LoopCountsDocument(fact.count, fact.ok, fact.failed, fact.skipped, leaves)


async def step_runs(
    store: Store, execution_id: str, trace_id: str, statuses: Statuses | None = None
) -> list[documents.StepRunDocument]:
    """The step runs in the order in which they began.

    Args:
        trace_id: The trace of the execution.
        statuses: ``None`` if the execution has ended.
    """
    reading = StepRunReader(execution_id)
    async for piece in pieces(store, execution_id):
        reading.take(piece)
    return [run.document(trace_id, statuses) for run in reading.by_id.values()]


class StepTime(msgspec.Struct, frozen=True, gc=False):
    """The duration of a step run that ended ``done`` or ``failed``."""

    step: str
    is_done: bool
    duration_s: float


async def step_times(store: Store, execution_id: str) -> list[StepTime]:
    """The step runs that ended ``done`` or ``failed`` here, in the order in which they began."""
    reading = _RunTimes(execution_id)
    async for piece in pieces(store, execution_id):
        reading.take(piece)
    return [
        StepTime(run.step, run.status == "done", run.duration_s)
        for run in reading.by_id.values()
        if run.status in ("done", "failed") and run.duration_s is not None
    ]


class StepSummaries:
    """The summaries of long journals: each journal is read once, and from then on only its new entries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: LruCache[str, _Growing] = LruCache(SUMMARIES_KEPT)

    async def of(self, execution_id: str, statuses: Statuses | None) -> list[documents.StepSummaryDocument]:
        """The runs of each step together."""
        return summaries((await self._runs(execution_id)).values(), statuses)

    async def page(
        self, row: ExecutionRow, wanted: documents.StepRunRange, statuses: Statuses | None
    ) -> documents.StepRunsDocument:
        runs = await self._runs(row.execution_id)
        if wanted.step_run_id is not None:
            chosen = [run for run in (runs.get(wanted.step_run_id),) if run is not None]
        else:
            chosen = [run for run in runs.values() if wanted.step in (None, run.step)]
            if wanted.order == "duration":
                chosen = await asyncio.to_thread(sorted, chosen, key=_longest_first)
        end = wanted.first + page_size(wanted.limit)
        items = [run.document(row.trace_id, statuses) for run in chosen[wanted.first : end]]
        return documents.StepRunsDocument(items, len(chosen), end if end < len(chosen) else None)

    async def result(self, execution_id: str, step_run_id: str) -> tuple[str, Payload]:
        """The step of a step run, and its last task's result.

        Raises:
            NotFound: the step run does not exist.
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
            growing = _Growing(StepRunReader(execution_id))
            self._known.put(execution_id, growing)
        async with growing.lock:
            async for piece in pieces(self._store, execution_id, growing.reading.position):
                growing.reading.take(piece)
        return growing.reading.by_id


def _longest_first(run: _RunHistory) -> tuple[bool, float]:
    return (False, run.claimed_ms) if run.duration_s is None else (True, -run.duration_s)


class _Growing(msgspec.Struct):
    reading: StepRunReader
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


def summarize(journal: Iterable[StoredEvent], statuses: Statuses | None = None) -> list[documents.StepSummaryDocument]:
    reading = StepRunReader("")
    reading.take(journal)
    return summaries(reading.by_id.values(), statuses)


def summaries(
    runs: Iterable[_RunHistory | documents.StepRunDocument], statuses: Statuses | None = None
) -> list[documents.StepSummaryDocument]:
    """The runs of each step together, in the order in which the steps first ran; ``duration_s`` is the sum over the
    ended runs, by the log's stored times.

    Args:
        runs: In the order in which they began.
        statuses: ``None`` if the execution has ended.
    """
    steps: dict[str, list[_RunHistory | documents.StepRunDocument]] = {}
    for run in runs:
        steps.setdefault(run.step, []).append(run)
    return [_summary(step, of_step, statuses) for step, of_step in steps.items()]


def _summary(
    step: str, runs: Sequence[_RunHistory | documents.StepRunDocument], statuses: Statuses | None
) -> documents.StepSummaryDocument:
    counts = Counter(run.shown_status(statuses) if isinstance(run, _RunHistory) else run.status for run in runs)
    return documents.StepSummaryDocument(
        step=step,
        runs=len(runs),
        status=(statuses or _ENDED).of_step(step, counts) or "waiting",
        duration_s=round(sum(run.duration_s or 0.0 for run in runs), 3),
        retries=sum(run.retries for run in runs),
    )


def within_size(value: Any) -> Any:
    """A JSON value in a list: ``{"$large": …}`` in place of a large one."""
    size = len(codec.encode(value))
    return value if size <= SHOWN_BYTES else {"$large": {"size": size}}


def shown_result(payload: Payload) -> Any:
    """A result in a list: ``{"$reference": {…}}`` if it is in the object store, ``{"$large": …}`` if it is large."""
    if payload.reference is not None:
        return {"$reference": msgspec.structs.asdict(payload.reference)}
    size = len(bytes(payload.value))
    return codec.decode_shown(payload.value) if size <= SHOWN_BYTES else {"$large": {"size": size}}


class _Iteration(msgspec.Struct):
    path: events.Path
    started_ms: int | None = None
    finished_ms: int | None = None
    status: RunStatus = "running"
    worker: str = ""
    attempts: int = 0
    last: Outcome | None = None
    error: ErrorInfo | None = None

    def document(self) -> documents.IterationDocument:
        result = None if self.last is None else shown_result(self.last.result)
        return document_from(documents.IterationDocument, self, path=list(self.path), result=result)


class _Iterations(JournalReader[str]):
    """The first iterations of a step run whose path is above ``first``, by path."""

    def __init__(self, execution_id: str, step_run_id: str, first: events.Path, limit: int) -> None:
        super().__init__(execution_id)
        self.by_id = {step_run_id: step_run_id}
        self.found: dict[events.Path, _Iteration] = {}
        self._first, self._limit = first, limit
        self._ceiling: events.Path | None = None

    def take(self, journal: Iterable[StoredEvent]) -> None:
        """Adds the next events."""
        for event in journal:
            if event.name in self.names:
                self.read(fact_of(event))
        if len(self.found) > PAGES_KEPT * (self._limit + 1):
            kept = nsmallest(self._limit + 1, self.found)
            self.found, self._ceiling = {path: self.found[path] for path in kept}, kept[-1]

    def _iteration(self, path: events.Path) -> _Iteration | None:
        """An iteration, unless it is not on this page."""
        if not path or path <= self._first or (self._ceiling is not None and path > self._ceiling):
            return None
        return self.found.setdefault(path, _Iteration(path))

    def iteration_began(self, at: Recorded, run: str, fact: events.LoopIterationStarted) -> None:
        if (one := self._iteration(fact.path)) is not None:
            one.started_ms = one.started_ms if one.started_ms is not None else at.at_ms
            one.worker = fact.worker

    def loop_began(self, at: Recorded, run: str, fact: events.LoopStarted) -> None:
        """Begins the iteration around an inner loop, unless a worker has begun it."""
        one = self._iteration(fact.path)
        if one is not None and one.started_ms is None:
            one.started_ms = at.at_ms

    def attempt_ended(self, at: Recorded, run: str, fact: events.TaskProcessed) -> None:
        if (one := self._iteration(fact.path)) is not None:
            one.attempts += 1
            one.last = fact.outcome

    def iteration_ended(self, at: Recorded, run: str, fact: IterationEnd) -> None:
        if (one := self._iteration(fact.path)) is not None:
            one.finished_ms, one.status, one.error = at.at_ms, "done" if fact.error is None else "failed", fact.error


async def iterations_page(
    store: Store, execution_id: str, step_run_id: str, limit: int, after: list[int] | None
) -> documents.IterationPage:
    """The iterations of a loop whose path is above ``after``, by path. Iterations that have not begun are missing."""
    reading = _Iterations(execution_id, step_run_id, tuple(after or ()), limit)
    async for piece in pieces(store, execution_id):
        reading.take(piece)
    page, following = page_of(nsmallest(limit + 1, reading.found), limit, list)
    return documents.IterationPage([reading.found[path].document() for path in page], following)
