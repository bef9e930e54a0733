"""Inputs that do not come through EVENTS: timers, results that decisions read, templates evaluated elsewhere, originals
of reruns.

Timers are rows in Postgres and part of the folded state. The owner of a partition fires them from memory, by the
database's clock (PROTOCOL §3 *Segments*).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from noetl_stream.concurrency import end_tasks
from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.engine.choices import Answers, decode_answers
from noetl_stream.engine.decide.quiescence import questions_of
from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.engine.state import NOT_LOADED, Execution, RecordedFact
from noetl_stream.errors import VALUE_FAULTS, BlobMissing, EvaluationEnded, Unreachable, fault_text
from noetl_stream.model.events import (
    EvaluationFailed,
    EvaluationFinished,
    ExecutionRequested,
    Fact,
    ReferenceLost,
    ReferenceResolved,
    RerunRefused,
    TimerFired,
)
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import PLAYBOOK, Reference
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.stores.store import Store, TimerRow
from noetl_stream.ports.streams.blobs import Blobs, decoded, found_checksum, read_object
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.retries import pauses
from noetl_stream.sealing.data_references import hand_on
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.server.journal_records import behind_events
from noetl_stream.server.memory.execution_cache import ExecutionCache
from noetl_stream.server.memory.plan_cache import KnownPlaybook, PlanCache
from noetl_stream.storage.data_parts import read_head
from noetl_stream.storage.loop_results import gather_iterations
from noetl_stream.storage.undoing import find_undoing

AT_ONCE: Final = 4
"""The most whole journals in memory at once: one client command may retry a thousand executions."""


class Originals:
    """Reads the journals of originals of reruns, which may belong to partitions of other servers."""

    def __init__(self, store: Store, log: EventLog, plans: PlanCache, keys: DerivedKeys) -> None:
        self._store = store
        self._keys = keys
        self._log = log
        self._plans = plans
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def inputs_of(self, execution_id: str, rerun: ExecutionRequested) -> tuple[Sequence[Fact], KnownPlaybook]:
        """Returns the inputs that start a rerun, and its playbook: see :func:`~noetl_stream.engine.rerun.reuse`.

        Raises:
            Unreachable: a store is unreachable, or Postgres has yet to catch up with EVENTS.
            NotReady: the original was written by a newer version.
        """
        async with self._turns:
            known = await self._plans.load(rerun.digest)
            return await self._reused_inputs(execution_id, rerun, known.plan), known

    async def _reused_inputs(
        self, execution_id: str, request: ExecutionRequested, plan: Plan | InvalidPlan
    ) -> Sequence[Fact]:
        assert request.rerun is not None
        original = request.rerun.of
        if await behind_events(self._log, self._store, [partition_of(original)]):
            raise Unreachable(f"Postgres has yet to catch up with what EVENTS holds of execution {original}")
        row = await self._store.execution(original)
        if row is None:
            return (RerunRefused("unknown_execution", f"execution {original} does not exist"),)
        if row.finished_ms is None:
            text = f"execution {original} has not ended: its status is {row.status}"
            return (RerunRefused("not_ended", text),)
        if isinstance(plan, InvalidPlan):
            return (RerunRefused("invalid_playbook", plan.reason),)
        journal = await self._store.journal(original)
        if len(journal) != row.position:
            return (RerunRefused("unknown_execution", f"execution {original} is being deleted"),)
        undone_by = await find_undoing(self._store, row) if plan.undoes else ""
        try:
            return await asyncio.to_thread(
                lambda: [
                    self._handed_on(fact, original, execution_id)
                    for fact in reuse(plan, execution_id, request, JournalSummary(original, journal, undone_by))
                ]
            )
        except VALUE_FAULTS as error:
            return (RerunRefused("unreadable", f"execution {original} cannot be read: {fault_text(error)}"),)

    def _handed_on(self, fact: Fact, giver: str, receiver: str) -> Fact:
        text = codec.encode(fact)
        handed = hand_on(text, self._keys.ring(giver), self._keys.ring(receiver))
        return fact if handed is text else codec.decode_fact(handed)


log = logging.getLogger(__name__)

MOST_AT_ONCE = 500
"""The most timers that one tick fires."""

LOAD_AGAIN_S = 1.0

FEW = 1024
"""The number of stale timers that are not worth removing."""

_Value = TypeVar("_Value")

Input = tuple[str, RecordedFact]
"""An execution and the input to fold into it."""


class Waits:
    """Tracks the waits of each state and returns due inputs. ``nudge`` is called when one is ready early."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        evaluator: Evaluator,
        clock: Clock,
        plans: PlanCache,
        originals: Originals,
        *,
        keys: DerivedKeys,
        nudge: Callable[[], None],
        namespace_of: Callable[[str], str],
    ) -> None:
        self._namespace_of = namespace_of
        self._store = store
        self._blobs = blobs
        self._evaluator = evaluator
        self._clock = clock
        self._plans = plans
        self._nudge = nudge
        self._originals = originals
        self._keys = keys
        self._due: list[tuple[int, str, str]] = []
        self._tracked: dict[tuple[str, str], int] = {}
        self._prune_above = FEW
        self._loading: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._loaded: list[Input] = []
        self._ahead_ms = 0
        self._broken: BaseException | None = None

    def synchronize(self, database_ms: int) -> None:
        """Notes the difference between the database's clock and this machine's."""
        self._ahead_ms = database_ms - self._clock.now_ms()

    def now_ms(self) -> int:
        """The database's time, by the last measurement."""
        return self._clock.now_ms() + self._ahead_ms

    def track(self, state: Execution) -> None:
        """Tracks a committed or loaded state. Paused states fire nothing; they are tracked again when they resume."""
        if state.awaited is not None and not state.ending:
            self._load(state, state.awaited)
        if state.evaluation is not None and not state.ending:
            self._begin((state.execution_id, str(state.evaluation.position)), lambda: self._evaluate(state))
        if state.halted:
            return
        for timer_id, timer in state.timers.items():
            self._track_timer((state.execution_id, timer_id), timer.due_ms)

    def track_timers(self, rows: Sequence[TimerRow]) -> None:
        """Tracks timers of executions that are not in memory."""
        for row in rows:
            self._track_timer((row.execution_id, row.timer_id), row.due_ms)

    def _track_timer(self, key: tuple[str, str], due_ms: int) -> None:
        if self._tracked.get(key) != due_ms:
            self._tracked[key] = due_ms
            heapq.heappush(self._due, (due_ms, *key))

    def next_in_s(self, most_s: float) -> float:
        """Seconds until a timer is due, at most ``most_s``."""
        if not self._due:
            return most_s
        return min(most_s, max(0.0, (self._due[0][0] - self.now_ms()) / 1000))

    async def ready(self, executions: ExecutionCache) -> list[Input]:
        """All inputs that are due and still awaited, with at most :data:`MOST_AT_ONCE` timers. Loads their executions.

        Raises:
            Unreachable: an execution cannot be loaded.
            NotReady: an original was written by a newer version. Any other error of a lookup is raised too, so that no
                wait is lost.
        """
        if self._broken is not None:
            raise self._broken
        if len(self._due) > self._prune_above:
            self._remove_stale(executions)
        now_ms = self.now_ms()
        ready, self._loaded = self._loaded, []
        due: list[tuple[int, str, str]] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < MOST_AT_ONCE:
            due.append(heapq.heappop(self._due))
        ids = [execution_id for execution_id, _ in ready] + [execution_id for _, execution_id, _ in due]
        await executions.load(filter(executions.is_evicted, ids))
        for due_ms, execution_id, timer_id in due:
            if self._tracked.get((execution_id, timer_id)) == due_ms:
                del self._tracked[execution_id, timer_id]
            state = executions.state(execution_id)
            timer = state.timers.get(timer_id) if state is not None and not state.halted else None
            if timer is not None and timer.due_ms == due_ms:
                fact = TimerFired(timer_id, timer.purpose, timer.subject, timer.path)
                ready.append((execution_id, RecordedFact(fact, at_ms=now_ms)))
        return ready

    def restore(self, inputs: Sequence[Input]) -> None:
        """Makes :meth:`ready` return these inputs again, before all others."""
        if inputs:
            self._loaded = [*inputs, *self._loaded]
            self._nudge()

    def __len__(self) -> int:
        return len(self._due)

    def _remove_stale(self, executions: ExecutionCache) -> None:
        """Removes stale timers, which could outlive their executions by days."""

        def is_set(due_ms: int, execution_id: str, timer_id: str) -> bool:
            if executions.is_evicted(execution_id):
                return True
            state = executions.state(execution_id)
            timer = state.timers.get(timer_id) if state is not None else None
            return timer is not None and timer.due_ms == due_ms

        self._due = [entry for entry in self._due if is_set(*entry)]
        heapq.heapify(self._due)
        self._tracked = {(execution_id, timer_id): due_ms for due_ms, execution_id, timer_id in self._due}
        self._prune_above = max(FEW, 2 * len(self._due))

    def forget(self) -> None:
        """Forgets all timers and values; states that are still owned are tracked again when they are loaded."""
        self._due.clear()
        self._tracked.clear()
        self._loaded.clear()
        for task in self._loading.values():
            task.cancel()
        self._loading.clear()

    async def close(self) -> None:
        tasks = list(self._loading.values())
        self.forget()
        await end_tasks(tasks)

    def _load(self, state: Execution, awaited: Reference) -> None:
        execution_id, request = state.execution_id, state.request

        def load() -> Coroutine[None, None, None]:
            if request is None:
                return self._fetch(execution_id, awaited)
            if awaited.store == PLAYBOOK:
                return self._fetch_playbook(execution_id, awaited.key)
            return self._fetch_original(execution_id, request)

        self._begin((execution_id, awaited.key), load)

    def _begin(self, key: tuple[str, str], load: Callable[[], Coroutine[None, None, None]]) -> None:
        if key not in self._loading:
            task = self._loading[key] = asyncio.create_task(load())
            task.add_done_callback(lambda done: self._loading_ended(key, done))

    def _loading_ended(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._loading.get(key) is task:
            del self._loading[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._nudge()

    async def _fetch(self, execution_id: str, reference: Reference) -> None:
        fact: ReferenceResolved | ReferenceLost
        value = None
        try:
            data = await self._until_reached(f"result {reference.key}", lambda: self._read(execution_id, reference))
            giver, receiver = self._keys.ring(reference.execution_id), self._keys.ring(execution_id)
            value = await decoded(data, lambda text: pieces.decode(hand_on(text, giver, receiver)))
            fact = ReferenceResolved(reference.key, await found_checksum(data))
        except (BlobMissing, *VALUE_FAULTS) as error:
            what = f"a result of {reference.size} bytes" if reference.table is None else "the first rows of a table"
            fact = ReferenceLost(reference.key, f"cannot read {what}: {fault_text(error)}")
        self._offer(execution_id, fact, value)

    def _offer(self, execution_id: str, fact: Fact, value: Any = NOT_LOADED) -> None:
        """Makes :meth:`ready` return this input soon."""
        self._loaded.append((execution_id, RecordedFact(fact, at_ms=self.now_ms(), value=value)))
        self._nudge()

    async def _fetch_playbook(self, execution_id: str, digest: str) -> None:
        known = await self._until_reached(f"playbook {digest}", lambda: self._plans.load(digest))
        fact: ReferenceResolved | ReferenceLost = ReferenceResolved(digest)
        if isinstance(known.plan, InvalidPlan):
            fact = ReferenceLost(digest, known.plan.reason)
        self._offer(execution_id, fact, known)

    async def _evaluate(self, state: Execution) -> None:
        asked = state.evaluation
        assert asked is not None
        known = await self._until_reached("the playbook", lambda: self._plans.load(state.digest))
        questions = None if isinstance(known.plan, InvalidPlan) else questions_of(known.plan, state)
        fact: EvaluationFinished | EvaluationFailed
        try:
            answers = Answers()
            if questions is not None:
                body, namespace = codec.encode(questions), self._namespace_of(state.path)
                found = await self._until_reached("templates", lambda: self._evaluator.evaluate(body, namespace))
                answers = decode_answers(found)
            fact = EvaluationFinished(asked.position, answers.chosen, answers.reference)
        except (EvaluationEnded, *VALUE_FAULTS) as error:
            fact = EvaluationFailed(asked.position, fault_text(error))
        self._offer(state.execution_id, fact, NOT_LOADED if state.request is None else known)

    async def _fetch_original(self, execution_id: str, rerun: ExecutionRequested) -> None:
        what = f"the original of {execution_id}"
        facts, known = await self._until_reached(what, lambda: self._originals.inputs_of(execution_id, rerun))
        for fact in facts:
            self._offer(execution_id, fact, known)

    async def _read(self, execution_id: str, reference: Reference) -> bytes:
        if reference.table is not None:
            return await read_head(reference.table, self._keys.ring(execution_id), self._blobs.get)
        if reference.store == "journal":
            # Not always a result of the same execution: a child may have returned it.
            owner, _, step_run_id = reference.key.partition(".")
            return await gather_iterations(self._store, self._blobs, owner, step_run_id)
        return await read_object(self._blobs, reference)

    async def _until_reached(self, what: str, read: Callable[[], Awaitable[_Value]]) -> _Value:
        waits = pauses(LOAD_AGAIN_S)
        while True:
            try:
                return await read()
            except Unreachable as error:
                log.warning("cannot read %s, will retry: %s", what, error)
                await self._clock.sleep(next(waits))
