"""The journal as ``why`` reads it: the folded state, and what it does not keep (since when, where, by whom)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.lru import LruCache
from noetl_stream.model.events import (
    CancelRequested,
    ChildRequested,
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
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import pieces

HISTORIES_KEPT: Final = 4
LONG_EVENTS: Final = 2_000
"""A journal from this length on is not read from its beginning again and again."""


class Command(msgspec.Struct):
    """A command. Times are ms since the epoch; ``next_ms`` is that of its next attempt, 0 unless it waits for it."""

    scheduled_ms: int
    worker: str = ""
    started_ms: int = 0
    num_delivered: int = 1
    task: str | None = None
    attempt: int = 1
    task_ms: int = 0
    next_ms: int = 0


class Routed(msgspec.Struct, frozen=True):
    """A routing in which no arc fired for a failure or after a rest, and the state before it."""

    before: Execution
    fact: NextEvaluated


class Failed(msgspec.Struct, frozen=True):
    """The task that failed a step run."""

    fact: TaskProcessed
    command_id: str


class JournalHistory(msgspec.Struct):
    """The facts that reasons need, by the id of what they are about; of failed iterations the first of each step.

    Attributes:
        called: The executions that it called.
        position: Of the last event.
        lock: Held while it is read on, or answered from.
    """

    state: Execution | None = None
    begun_ms: int = 0
    tokens_ms: dict[str, int] = {}
    steps: dict[str, str] = {}
    commands: dict[str, Command] = {}
    failed: dict[str, Failed] = {}
    failed_iterations: dict[str, LoopIterationFailed] = {}
    routed: dict[str, Routed] = {}
    discarded: list[tuple[str, str]] = []
    requests: dict[type[ClientRequest], tuple[ClientRequest, int]] = {}
    awaited_ms: int = 0
    evaluated_ms: int = 0
    failing: tuple[ExecutionFailing, int] | None = None
    failed_run: str = ""
    called: set[str] = set()
    position: int = 0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    @property
    def workers(self) -> set[str]:
        """The workers that have named themselves for commands that have not ended."""
        state = self.state
        held = [one.command_id for one in state.assignments.values() if one.run is not None] if state else []
        return {self.commands[one].worker for one in held if one in self.commands} - {""}


class JournalHistories:
    """The histories of executions. Of long journals the last ones are kept, and read on when they are asked for
    again: callers poll those that grow.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: LruCache[str, JournalHistory] = LruCache(HISTORIES_KEPT)

    @asynccontextmanager
    async def read(self, row: ExecutionRow) -> AsyncIterator[JournalHistory]:
        """The history to the end of the journal, which does not change in the context."""
        history = self._known.get(row.execution_id) or JournalHistory()
        if row.position >= LONG_EVENTS:
            self._known.put(row.execution_id, history)
        async with history.lock:
            async for piece in pieces(self._store, row.execution_id, history.position):
                read_history(row.execution_id, piece, history)
            yield history


def read_history(
    execution_id: str, journal: Iterable[StoredEvent], history: JournalHistory | None = None
) -> JournalHistory:
    """Reads a whole journal, or what follows a ``history``, which is changed."""
    history = history or JournalHistory()
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
        history.position = row.position
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
        case ChildRequested():
            history.called.add(fact.execution_id)
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
