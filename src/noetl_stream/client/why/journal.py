"""The journal as ``why`` reads it: the folded state, and what it does not keep (since when, where, by whom)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model import codec
from noetl_stream.model.events import (
    CancelRequested,
    ClientRequest,
    EvaluationAwaited,
    ExecutionFailing,
    ExecutionReused,
    Fact,
    LoopIterationFailed,
    LoopIterationStarted,
    NextEvaluated,
    NextResting,
    PauseRequested,
    ReferenceAwaited,
    StepScheduled,
    StepStarted,
    TaskProcessed,
    TaskStarted,
    TokenClaimed,
    TokenDiscarded,
    TokenEnqueued,
    TokenHeld,
    TokenJoined,
)
from noetl_stream.model.ids import run_of_report
from noetl_stream.ports.store import StoredEvent


@dataclass(slots=True)
class Command:
    """A command. Times are ms since the epoch; ``next_ms`` is that of its next attempt, 0 unless it waits for it."""

    scheduled_ms: int
    worker: str = ""
    started_ms: int = 0
    num_delivered: int = 1
    task: str | None = None
    attempt: int = 1
    task_ms: int = 0
    next_ms: int = 0


@dataclass(frozen=True, slots=True)
class Routed:
    """A routing in which no arc fired for a failure or after a rest, and the state before it."""

    before: Execution
    fact: NextEvaluated


@dataclass(frozen=True, slots=True)
class Failed:
    """The task that failed a step run."""

    fact: TaskProcessed
    command_id: str


@dataclass(slots=True)
class JournalHistory:
    """The facts that reasons need, by the id of what they are about; of failed iterations the first of each step."""

    state: Execution | None = None
    begun_ms: int = 0
    tokens_ms: dict[str, int] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    failed: dict[str, Failed] = field(default_factory=dict)
    failed_iterations: dict[str, LoopIterationFailed] = field(default_factory=dict)
    routed: dict[str, Routed] = field(default_factory=dict)
    discarded: list[tuple[str, str]] = field(default_factory=list)
    requests: dict[type[ClientRequest], tuple[ClientRequest, int]] = field(default_factory=dict)
    awaited_ms: int = 0
    evaluated_ms: int = 0
    failing: tuple[ExecutionFailing, int] | None = None
    failed_run: str = ""


def read_history(execution_id: str, journal: Iterable[StoredEvent]) -> JournalHistory:
    """Reads a whole journal."""
    history = JournalHistory()
    for row in journal:
        fact = codec.decode_fact(row.data)
        by_worker = row.report_id is not None and row.number is not None
        run = run_of_report(row.report_id or "") if by_worker else None
        before = history.state
        history.begun_ms = history.begun_ms or row.at_ms
        history.state = evolve(before, RecordedFact(fact, run, row.number or 0, row.at_ms), execution_id)
        if run is not None:
            _note_report(history, fact, run.command_id, run.num_delivered, row.step_run_id or "", row.at_ms)
        elif before is not None:
            for one in fact.entries if isinstance(fact, ExecutionReused) else (fact,):
                _note(history, before, one, row.at_ms)
    return history


def _note(history: JournalHistory, before: Execution, fact: Fact, at_ms: int) -> None:
    match fact:
        case TokenEnqueued():
            history.tokens_ms[fact.token.token_id] = at_ms
            history.steps[fact.token.token_id] = fact.token.step
        case TokenHeld() | TokenJoined():
            history.tokens_ms[fact.token_id] = at_ms
        case TokenClaimed():
            history.steps[fact.step_run_id] = history.steps.get(fact.token_id, "")
        case TokenDiscarded():
            history.discarded.append((history.steps.get(fact.token_id, ""), fact.reason))
        case StepScheduled():
            history.commands[fact.command_id] = Command(at_ms)
        case NextResting():
            history.tokens_ms[fact.step_run_id] = at_ms
        case NextEvaluated(event="step.failed" | "next.timed_out", fired=[]):
            history.routed[fact.step_run_id] = Routed(before, fact)
            history.failed_run = fact.step_run_id
        case ExecutionFailing():
            history.failing = history.failing or (fact, at_ms)
        case ReferenceAwaited():
            history.awaited_ms = at_ms
        case EvaluationAwaited():
            history.evaluated_ms = at_ms
        case PauseRequested() | CancelRequested():
            history.requests[type(fact)] = (fact, at_ms)


def _note_report(
    history: JournalHistory, fact: Fact, command_id: str, num_delivered: int, step_run_id: str, at_ms: int
) -> None:
    command = history.commands.setdefault(command_id, Command(at_ms))
    command.num_delivered = max(command.num_delivered, num_delivered)
    match fact:
        case StepStarted():
            command.worker, command.started_ms = fact.worker, at_ms
        case LoopIterationStarted() if fact.worker != command.worker:  # one command is one iteration, or all of a loop
            command.worker, command.started_ms = fact.worker, at_ms
        case TaskStarted():
            command.task, command.attempt = fact.task, fact.attempt
            command.task_ms, command.next_ms = at_ms, 0
        case LoopIterationFailed():
            history.failed_iterations.setdefault(history.steps.get(step_run_id, ""), fact)
        case TaskProcessed(do="fail"):
            history.failed[step_run_id] = Failed(fact, command_id)
        case TaskProcessed():
            command.task, command.attempt = fact.to, fact.attempt + 1 if fact.do == "retry" else 1
            command.task_ms = at_ms
            command.next_ms = at_ms + round(fact.delay_s * 1000) if fact.delay_s else 0
