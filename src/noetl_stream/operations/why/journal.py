"""The journal for ``why``: the folded state, and facts that it does not keep (since when, where, by whom)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.lru import LruCache
from noetl_stream.model import events
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded
from noetl_stream.model.ids import run_of_report
from noetl_stream.model.json import codec
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import pieces

HISTORIES_KEPT: Final = 4
LONG_EVENTS: Final = 2_000
"""The length from which a journal is not read repeatedly from its beginning."""


class Command(msgspec.Struct):
    """A command. Times are ms since the epoch; ``next_ms`` is that of its next attempt, 0 unless it waits for it.
    ``returned`` is the reason why its last worker gave it back; empty if that runs it. ``details`` are those of the
    last heartbeat.
    """

    scheduled_ms: int
    worker: str = ""
    started_ms: int = 0
    num_delivered: int = 1
    task: str | None = None
    attempt: int = 1
    task_ms: int = 0
    next_ms: int = 0
    returned: str = ""
    heartbeat_ms: int = 0
    details: Any = None


class Routed(msgspec.Struct, frozen=True):
    """A routing in which no arc fired for a failure or after a rest, and the state before it."""

    before: Execution
    fact: events.NextEvaluated


class Failed(msgspec.Struct, frozen=True):
    """The task that failed a step run."""

    fact: events.TaskProcessed
    command_id: str


class JournalHistory(JournalReader[str]):
    """The facts that reasons need, by the id of their subject; of failed iterations the first of each step.

    Attributes:
        quota: The last exceeded quota, unless a pause was requested since.
        called: The executions that it called.
        calls: The last execution that each task called, by step run, iteration and task.
        retried: The last attempts of the tasks that are to be retried, by the same key.
        repeated: The first key of each arc, by step and index, for which it has not sent another token, and the number
            of tokens not sent.
        lock: Held while it is read further, or answered from.
    """

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.state: Execution | None = None
        self.tokens_ms: dict[str, int] = {}
        self.commands: dict[str, Command] = {}
        self.failed: dict[str, Failed] = {}
        self.failed_iterations: dict[str, events.LoopIterationFailed] = {}
        self.tolerated: dict[str, ErrorInfo | None] = {}
        self.routed: dict[str, Routed] = {}
        self.repeated: dict[tuple[str, int], tuple[str, int]] = {}
        self.discarded: list[tuple[str, str]] = []
        self.requests: dict[type[events.ClientRequest], tuple[events.ClientRequest, int]] = {}
        self.awaited_ms = 0
        self.quota: events.QuotaExceeded | None = None
        self.failing: tuple[events.ExecutionFailing, int] | None = None
        self.failed_run = ""
        self.compensations: list[events.Compensation] = []
        self.called: set[str] = set()
        self.calls: dict[tuple[str, events.Path, str], str] = {}
        self.retried: dict[tuple[str, events.Path, str], events.TaskProcessed] = {}
        self.lock = asyncio.Lock()
        self._before: Execution | None = None

    @property
    def workers(self) -> set[str]:
        """The workers that have named themselves for commands that have not ended."""
        state = self.state
        held = [one.command_id for one in state.assignments.values() if one.run is not None] if state else []
        return {self.commands[one].worker for one in held if one in self.commands} - {""}

    def take(self, journal: Iterable[StoredEvent]) -> None:
        """Adds the next events."""
        for row in journal:
            fact = codec.decode_fact(row.data)
            by_worker = row.report_id is not None and row.number is not None
            run = run_of_report(row.report_id or "") if by_worker else None
            self._before = self.state
            self.state = evolve(self.state, RecordedFact(fact, run, row.number or 0, row.at_ms), self.execution_id)
            command_id = "" if run is None else run.command_id
            recorded = Recorded(fact, row.position, row.at_ms, row.step_run_id, command_id)
            if run is not None:
                command = self._command(recorded)
                command.num_delivered = max(command.num_delivered, run.num_delivered)
                command.returned = fact.returned if isinstance(fact, events.StepClaimed) else ""
            self.read(recorded)

    def halt_requested(self, at: Recorded, fact: events.ClientRequest) -> None:
        self.requests[type(fact)] = (fact, at.at_ms)
        self.quota = None if isinstance(fact, events.PauseRequested) else self.quota

    def quota_exceeded(self, at: Recorded, fact: events.QuotaExceeded) -> None:
        self.quota = fact

    def value_awaited(self, at: Recorded, fact: events.ReferenceAwaited | events.EvaluationAwaited) -> None:
        self.awaited_ms = at.at_ms

    def execution_finished(self, at: Recorded, fact: events.ExecutionFinished) -> None:
        self.compensations = fact.compensations

    def execution_failing(self, at: Recorded, fact: events.ExecutionFailing) -> None:
        self.failing = self.failing or (fact, at.at_ms)

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        self.tokens_ms[fact.token.token_id] = at.at_ms

    def token_held(self, at: Recorded, fact: events.TokenHeld | events.TokenJoined) -> None:
        self.tokens_ms[fact.token_id] = at.at_ms

    token_joined = token_held

    def token_discarded(self, at: Recorded, fact: events.TokenDiscarded) -> None:
        self.discarded.append((self.tokens.get(fact.token_id, ""), fact.reason))

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> str:
        return step

    def run_rested(self, at: Recorded, step: str, fact: events.NextResting) -> None:
        self.tokens_ms[fact.step_run_id] = at.at_ms

    def run_routed(self, at: Recorded, step: str, fact: events.NextEvaluated) -> None:
        for arc, key in (fact.keys or {}).items():
            if arc not in fact.fired:
                first, count = self.repeated.get((step, arc), (key, 0))
                self.repeated[step, arc] = first, count + 1
        is_unhandled = not (fact.fired or fact.keys) and fact.event in ("step.failed", "next.timed_out")
        if self._before is not None and is_unhandled:
            self.routed[fact.step_run_id] = Routed(self._before, fact)
            if self.failing is None:
                self.failed_run = fact.step_run_id
            if fact.tolerated:
                self.tolerated.setdefault(step, self._before.runs[fact.step_run_id].error)

    def child_requested(self, at: Recorded, step: str, fact: events.ChildRequested) -> None:
        self.called.add(fact.execution_id)
        suspended = self.state.suspensions.get(fact.command_id) if self.state is not None else None
        if suspended is not None and (wait := suspended.waits.get(path_key(fact.path))) is not None:
            self.calls[fact.step_run_id, fact.path, wait.task] = fact.execution_id

    # --- commands -----------------------------------------------------------------------------------------------------

    def run_scheduled(self, at: Recorded, run: str, fact: events.StepScheduled | events.StepResumed) -> None:
        self.commands[fact.command_id] = Command(at.at_ms)

    run_resumed = run_scheduled

    def _command(self, at: Recorded) -> Command:
        return self.commands.setdefault(at.command_id, Command(at.at_ms))

    def run_started(self, at: Recorded, step: str, fact: events.StepStarted | events.LoopIterationStarted) -> None:
        command = self._command(at)
        command.worker, command.started_ms = fact.worker, at.at_ms

    def iteration_began(self, at: Recorded, step: str, fact: events.LoopIterationStarted) -> None:
        if fact.worker != self._command(at).worker:  # one command is one iteration, or all of a loop
            self.run_started(at, step, fact)

    def iteration_ended(self, at: Recorded, step: str, fact: IterationEnd) -> None:
        if at.command_id and isinstance(fact, events.LoopIterationFailed):
            self.failed_iterations.setdefault(step, fact)

    def attempt_began(self, at: Recorded, step: str, fact: events.TaskStarted) -> None:
        command = self._command(at)
        command.task, command.attempt = fact.task, fact.attempt
        command.task_ms, command.next_ms, command.heartbeat_ms = at.at_ms, 0, 0

    def attempt_reported(self, at: Recorded, step: str, fact: events.TaskHeartbeat) -> None:
        command = self._command(at)
        if not fact.key:  # with a key, the worker reports a file with the details of the last heartbeat
            command.heartbeat_ms, command.details = at.at_ms, fact.details

    def attempt_ended(self, at: Recorded, step: str, fact: events.TaskProcessed) -> None:
        place = at.step_run_id or "", fact.path, fact.task
        if fact.do == "retry":
            self.retried[place] = fact
        else:
            self.retried.pop(place, None)
        if fact.do == "fail":
            self.failed[at.step_run_id or ""] = Failed(fact, at.command_id)
            return
        command = self._command(at)
        command.task, command.attempt = fact.to, fact.attempt + 1 if fact.do == "retry" else 1
        command.task_ms = at.at_ms
        command.next_ms = at.at_ms + round(fact.delay_s * 1000) if fact.delay_s else 0


class JournalHistories:
    """The histories of executions. Those of the last long journals are kept and read further when they are asked for
    again: callers poll growing ones.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: LruCache[str, JournalHistory] = LruCache(HISTORIES_KEPT)

    @asynccontextmanager
    async def read(self, row: ExecutionRow) -> AsyncIterator[JournalHistory]:
        """The history to the end of the journal, which does not change in the context."""
        history = self._known.get(row.execution_id) or JournalHistory(row.execution_id)
        if row.position >= LONG_EVENTS:
            self._known.put(row.execution_id, history)
        async with history.lock:
            async for piece in pieces(self._store, row.execution_id, history.position):
                history.take(piece)
            yield history
