"""Every step run of an execution, from its journal: where its token came from, how it went (LANGUAGE §13); and all
runs of a step together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from noetl_stream.client.executions.journals import pieces
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionReused,
    Fact,
    LoopDone,
    StepDone,
    StepFailed,
    StepReused,
    StepStarted,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.model.status import RunStatus
from noetl_stream.ports.operations.executions import (
    LoopCountsDocument,
    StepRunDocument,
    StepSummaryDocument,
    TokenDocument,
)
from noetl_stream.ports.store import Store, StoredEvent

SHOWN_BYTES: Final = 4 * 1024
"""A larger result is not shown among others, only how large it is."""

_READ: Final = frozenset(
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


@dataclass(slots=True)
class _RunHistory:
    """One consumption of a token, as far as it has got. Times are ms since the epoch; those of another execution
    (``reused``) took none here.
    """

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
    error: ErrorInfo | None = None

    @property
    def step(self) -> str:
        return self.token.step

    @property
    def duration_s(self) -> float | None:
        return None if self.finished is None else (self.finished - self.claimed_ms) / 1000

    def ends(self, row: StoredEvent, status: RunStatus) -> None:
        self.finished, self.status = row.at_ms, status

    def document(self) -> StepRunDocument:
        token = self.token
        return StepRunDocument(
            step_run_id=self.step_run_id,
            step=token.step,
            token=TokenDocument(token.token_id, token.cause, token.args, token.from_step, token.from_step_run_id),
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


@dataclass(slots=True)
class _Reading:
    tokens: dict[str, Token] = field(default_factory=dict)
    runs: dict[str, _RunHistory] = field(default_factory=dict)

    def take(self, row: StoredEvent) -> None:
        if row.name not in _READ:
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
        run.last = fact.outcome
    elif isinstance(fact, LoopDone) and not fact.path:
        run.loop = LoopCountsDocument(fact.count, fact.ok, fact.failed, fact.skipped)
        run.ends(row, "done")
    elif isinstance(fact, StepDone):
        run.ends(row, "done")
    elif isinstance(fact, StepFailed):
        run.error = fact.error
        run.ends(row, "cancelled" if fact.error.kind == "cancelled" else "failed")
    elif isinstance(fact, StepReused):
        run.error, run.last = fact.error, fact.outcome
        run.loop = None if fact.loop is None else LoopCountsDocument(**msgspec.structs.asdict(fact.loop))
        run.ends(row, "reused")


async def step_runs(store: Store, execution_id: str) -> list[StepRunDocument]:
    """One document a step run, in the order they began."""
    reading = _Reading()
    async for piece in pieces(store, execution_id):
        for row in piece:
            reading.take(row)
    return [run.document() for run in reading.runs.values()]


def summarize(journal: Iterable[StoredEvent]) -> list[StepSummaryDocument]:
    """All runs of each step together, from a journal."""
    reading = _Reading()
    for row in journal:
        reading.take(row)
    return summaries(reading.runs.values())


class _Summarized(Protocol):
    @property
    def step(self) -> str: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def finished(self) -> Any: ...
    @property
    def duration_s(self) -> float | None: ...
    @property
    def retries(self) -> int: ...


def summaries(runs: Iterable[_Summarized]) -> list[StepSummaryDocument]:
    """All runs of each step together, in the order in which the steps first ran. The status of a step is that of the
    run that ended last; ``duration_s`` adds up over those that have ended, by the log's stored times.

    Args:
        runs: In the order they began.
    """
    steps: dict[str, list[_Summarized]] = {}
    for run in runs:
        steps.setdefault(run.step, []).append(run)
    return [_summary(step, of_step) for step, of_step in steps.items()]


def _summary(step: str, runs: Sequence[_Summarized]) -> StepSummaryDocument:
    ended = sorted((run for run in runs if run.finished is not None), key=lambda run: run.finished)
    return StepSummaryDocument(
        step=step,
        runs=len(runs),
        status=ended[-1].status if ended else "running",
        duration_s=round(sum(run.duration_s or 0.0 for run in runs), 3),
        retries=sum(run.retries for run in runs),
    )


def shown_result(payload: Payload) -> Any:
    """A result among others: ``{"$reference": {…}}`` for one in the object store, ``{"$large": …}`` for a long one."""
    if payload.reference is not None:
        return {"$reference": msgspec.structs.asdict(payload.reference)}
    size = len(bytes(payload.value))
    return codec.decode_json(payload.value) if size <= SHOWN_BYTES else {"$large": {"size": size}}
