"""What a person reads of an execution: its steps with runs, status and duration, from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from noetl_stream.client.executions.waits import awaited
from noetl_stream.engine.replay import replay
from noetl_stream.model import codec
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionReused,
    LoopDone,
    StepDone,
    StepFailed,
    StepReused,
    TaskProcessed,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.ports.store import ExecutionRow, StoredEvent


@dataclass(slots=True)
class StepSummary:
    """All runs of one step. ``duration_s`` adds up over them, by the log's stored times; those of another execution
    (``reused``) took none here.
    """

    step: str
    runs: int = 0
    status: str = "running"
    duration_s: float = 0.0
    retries: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "runs": self.runs,
            "status": self.status,
            "duration_s": round(self.duration_s, 3),
            "retries": self.retries,
        }


def summarize(journal: Iterable[StoredEvent]) -> list[StepSummary]:
    """The steps that have run, in the order they first did."""
    steps: dict[str, StepSummary] = {}
    targets: dict[str, str] = {}
    runs: dict[str, tuple[str, int]] = {}
    for row in journal:
        if row.name not in _READ:
            continue
        fact = codec.decode_fact(row.data)
        if isinstance(fact, ExecutionReused):
            _reuse(fact, row.at_ms, steps, targets, runs)
        elif isinstance(fact, TokenEnqueued):
            targets[fact.token.token_id] = fact.token.step
        elif isinstance(fact, TokenClaimed):
            step = targets[fact.token_id]
            runs[fact.step_run_id] = (step, row.at_ms)
            steps.setdefault(step, StepSummary(step)).runs += 1
        elif isinstance(fact, TaskProcessed):
            if fact.do == "retry" and row.step_run_id in runs:
                steps[runs[row.step_run_id][0]].retries += 1
        elif isinstance(fact, StepDone | LoopDone | StepFailed) and fact.step_run_id in runs:
            if isinstance(fact, LoopDone) and fact.path:
                continue  # an inner loop's end is not the step's
            step, began_ms = runs.pop(fact.step_run_id)
            steps[step].duration_s += (row.at_ms - began_ms) / 1000
            steps[step].status = _ended(fact)
        elif isinstance(fact, ExecutionFinished):
            for step, began_ms in runs.values():  # what its end has stopped
                steps[step].duration_s += (row.at_ms - began_ms) / 1000
                steps[step].status = "cancelled"
    return list(steps.values())


def _reuse(
    fact: ExecutionReused,
    at_ms: int,
    steps: dict[str, StepSummary],
    targets: dict[str, str],
    runs: dict[str, tuple[str, int]],
) -> None:
    for entry in fact.entries:
        if isinstance(entry, TokenEnqueued):
            targets[entry.token.token_id] = entry.token.step
        elif isinstance(entry, TokenClaimed):
            step = targets[entry.token_id]
            runs[entry.step_run_id] = (step, at_ms)
            steps.setdefault(step, StepSummary(step)).runs += 1
        elif isinstance(entry, StepReused):
            step, _ = runs.pop(entry.step_run_id)
            steps[step].status = "reused"


def _ended(fact: StepDone | LoopDone | StepFailed) -> str:
    if not isinstance(fact, StepFailed):
        return "done"
    return "cancelled" if fact.error.kind == "cancelled" else "failed"


_READ = frozenset(
    {
        "execution.reused",
        "token.enqueued",
        "token.claimed",
        "task.processed",
        "step.done",
        "loop.done",
        "step.failed",
        "execution.finished",
    }
)


def describe(row: ExecutionRow, journal: Sequence[StoredEvent], now_ms: int = 0) -> dict[str, Any]:
    """The object that ``run -o json`` and ``execution get`` print. At the end ``waits`` (:func:`awaited`) is empty and
    ``ctx_version``, which a patch may expect, ``None``.

    Args:
        now_ms: By the store's clock: how long one that has not ended has taken so far.
    """
    state = replay(row.execution_id, journal) if row.finished_ms is None else None
    error = codec.decode_json(row.error) if row.error is not None else None
    ended_ms = row.finished_ms if row.finished_ms is not None else max(now_ms, row.updated_ms)
    return {
        "execution_id": row.execution_id,
        "path": row.path,
        "status": row.status,
        "result": result_of(row),
        "ctx": codec.decode_json(row.ctx),
        "ctx_version": state.ctx_version if state is not None else None,
        "duration_s": round((ended_ms - row.started_ms) / 1000, 3),
        "steps": [step.to_json() for step in summarize(journal)],
        "waits": list(awaited(state)) if state is not None else [],
        "error": error,
        "discarded_tokens": row.discarded,
    }


def result_of(row: ExecutionRow) -> Any:
    """The execution's result; a reference is shown as ``{"$reference": {…}}``."""
    if row.result is None:
        return None
    payload = codec.decode_payload(row.result)
    if payload.reference is not None:
        return {"$reference": codec.decode_json(codec.encode(payload.reference))}
    return codec.decode_json(payload.value)
