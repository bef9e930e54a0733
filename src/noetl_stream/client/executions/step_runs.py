"""Every step run of an execution, from its journal: where its token came from, how it went (LANGUAGE §13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from noetl_stream.client.executions.journals import pieces
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso
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
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import Payload
from noetl_stream.ports.operations.documents import Document
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
class StepRun:
    """One consumption of a token, as far as it has got. Times are ms since the epoch; those of another execution
    (``reused``) took none here.
    """

    step_run_id: str
    token: Token
    claimed_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    status: str = "waiting"
    worker: str = ""
    attempts: int = 0
    retries: int = 0
    last: Outcome | None = None
    loop: dict[str, int] | None = None
    error: ErrorInfo | None = None

    def to_json(self) -> Document:
        token = self.token
        return {
            "step_run_id": self.step_run_id,
            "step": token.step,
            "token": {
                "token_id": token.token_id,
                "cause": token.cause,
                "args": token.args,
                "from_step": token.from_step,
                "from_step_run_id": token.from_step_run_id,
            },
            "status": self.status,
            "claimed": iso(self.claimed_ms),
            "started": None if self.started_ms is None else iso(self.started_ms),
            "finished": None if self.ended_ms is None else iso(self.ended_ms),
            "duration_s": None if self.ended_ms is None else round((self.ended_ms - self.claimed_ms) / 1000, 3),
            "worker": self.worker,
            "attempts": self.attempts,
            "retries": self.retries,
            "loop": self.loop,
            "result": None if self.last is None or self.loop is not None else shown_result(self.last.result),
            "error": error_document(self.error),
        }


@dataclass(slots=True)
class _Reading:
    tokens: dict[str, Token] = field(default_factory=dict)
    runs: dict[str, StepRun] = field(default_factory=dict)

    def take(self, row: StoredEvent) -> None:
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
            run = StepRun(fact.step_run_id, self.tokens.pop(fact.token_id), row.at_ms)
            self.runs[fact.step_run_id] = run
        elif isinstance(fact, ExecutionFinished):
            for run in self.runs.values():
                if run.ended_ms is None:
                    run.ended_ms, run.status = row.at_ms, "cancelled"
        elif (found := self.runs.get(getattr(fact, "step_run_id", None) or row.step_run_id or "")) is not None:
            _take(found, fact, row)


def _take(run: StepRun, fact: Any, row: StoredEvent) -> None:
    if isinstance(fact, StepStarted):
        run.started_ms = run.started_ms if run.started_ms is not None else row.at_ms
        run.worker, run.status = fact.worker, "running"
    elif isinstance(fact, TaskProcessed):
        run.attempts += 1
        run.retries += fact.do == "retry"
        run.last = fact.outcome
    elif isinstance(fact, LoopDone) and not fact.path:
        run.loop = {"count": fact.count, "ok": fact.ok, "failed": fact.failed, "skipped": fact.skipped}
        run.ended_ms, run.status = row.at_ms, "done"
    elif isinstance(fact, StepDone):
        run.ended_ms, run.status = row.at_ms, "done"
    elif isinstance(fact, StepFailed):
        run.ended_ms, run.error = row.at_ms, fact.error
        run.status = "cancelled" if fact.error.kind == "cancelled" else "failed"
    elif isinstance(fact, StepReused):
        run.ended_ms, run.status, run.error, run.last = row.at_ms, "reused", fact.error, fact.outcome
        run.loop = None if fact.loop is None else msgspec.structs.asdict(fact.loop)


async def step_runs(store: Store, execution_id: str) -> list[Document]:
    """One document a step run, in the order they began."""
    reading = _Reading()
    async for piece in pieces(store, execution_id):
        for row in piece:
            if row.name in _READ:
                reading.take(row)
    return [run.to_json() for run in reading.runs.values()]


def shown_result(payload: Payload) -> Any:
    """A result among others: ``{"$reference": {…}}`` for one in the object store, ``{"$large": …}`` for a long one."""
    if payload.reference is not None:
        return {"$reference": msgspec.structs.asdict(payload.reference)}
    size = len(bytes(payload.value))
    return codec.decode_json(payload.value) if size <= SHOWN_BYTES else {"$large": {"size": size}}


def error_document(error: ErrorInfo | None) -> Document | None:
    """An error as it stands in events."""
    found: Document | None = None if error is None else codec.decode_json(codec.encode(error))
    return found
