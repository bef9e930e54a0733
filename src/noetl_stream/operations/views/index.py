"""An index of a journal: what graphs, timelines, strips and the history of ``ctx`` are answered from.

A process reads each journal once, and from then on only what is added. What is kept is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

from noetl_stream.lru import LruCache
from noetl_stream.model import events
from noetl_stream.model.events.composite import StepRan, expanded
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.operations.views.arrays import (
    CANCELLED,
    DONE,
    ERROR_CHARS,
    FAILED,
    REUSED,
    RUNNING,
    STATUSES,
    ArcCounts,
    Changes,
    Failure,
    LoopLevel,
    RowKey,
    Runs,
    Spans,
)
from noetl_stream.operations.views.recorded import Recorded, facts_of
from noetl_stream.ports.operations.views import StepRunCountsDocument, TokenPlace
from noetl_stream.ports.stores.store import Store, StoredEntry

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE: Final = 200
FIRST_ENTRIES: Final = 5
EVENTS_AT_ONCE: Final = 2_000
"""How many entries of a long journal are read at once, first and later, and about how many events they have: while
these are taken in, others wait.
"""

MAX_INDEX_BYTES: Final = 128 * 1024 * 1024
"""About how much memory the indexes of one process take together: above it, those unused for longest go."""

COUNTED_EVERY: Final = 10
"""While an index is first read, its size is counted again after this many readings."""

MOST_SPANS: Final = 1_000_000
"""Of one journal: later attempts and waits are left out of its timeline."""

MOST_ITERATIONS: Final = 2_000_000
"""Of one journal: nothing is kept of iterations with a higher index."""

ERRORS_KEPT: Final = 10_000
"""How many failed iterations of a journal keep their error."""

MOST_LEVELS: Final = 2_000
"""Of one journal: of levels inside loops that begin later, the iterations are not kept."""


class ExecutionIndex:
    """The index of one journal, up to ``position``.

    Attributes:
        reads: Held while the journal is read.
        lock: Held while the index changes, or must not.
    """

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        self.position = 0
        self.begun_ms = self.at_ms = 0
        self.has_ended = False
        self.reads, self.lock = asyncio.Lock(), asyncio.Lock()
        self.kept_bytes = 0
        self.steps: list[str] = []
        self.runs = Runs()
        self.rows: dict[RowKey, Spans] = {}
        self.levels: dict[int, dict[events.Path, LoopLevel]] = {}
        self.arcs: dict[str, ArcCounts] = {}
        self.changes = Changes()
        self.left_out = 0
        self.step_numbers: dict[str, int] = {}
        self.tokens: dict[str, str] = {}
        self._open: dict[tuple[Any, ...], tuple[Spans, int]] = {}
        self._open_of: dict[int, set[tuple[Any, ...]]] = {}
        self._shared: dict[int, set[str]] = {}
        self._spans = self._inner = self._failures = 0
        self._room = MOST_ITERATIONS

    # --- reading ------------------------------------------------------------------------------------------------------

    def step_of(self, run: int) -> str:
        return self.steps[self.runs.step[run]]

    def counts_at(self, position: int) -> list[StepRunCountsDocument]:
        """The step runs by step and status, after this position."""
        counted: dict[int, list[int]] = {}
        for number, step in enumerate(self.runs.step):
            status = self.runs.status_at(number, position)
            if status is not None:
                counted.setdefault(step, [0] * len(STATUSES))[status] += 1
        return [StepRunCountsDocument(self.steps[step], *by_status[:-1]) for step, by_status in counted.items()]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        spans = sum(spans.size for spans in self.rows.values())
        levels = sum(level.size for by_path in self.levels.values() for level in by_path.values())
        waiting = 400 * (len(self._open) + len(self.tokens))
        return 10_000 + spans + levels + waiting + self.runs.size + self.changes.size

    # --- folding ------------------------------------------------------------------------------------------------------

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Adds entries, which follow those that it has."""
        for entry in entries:
            self.begun_ms = self.begun_ms or entry.at_ms
            self.at_ms = max(self.at_ms, entry.at_ms)
            for recorded in facts_of(entry):
                self._take(recorded)

    def _take(self, recorded: Recorded) -> None:
        fact, position, at_ms, step_run_id, command_id = recorded
        rule = self._RULES.get(type(fact))
        if rule is not None:
            rule(self, recorded)
            self.position = position + fact.width - 1
            return
        for number, part in enumerate(expanded(self.execution_id, fact)):
            if (rule := self._RULES.get(type(part))) is not None:
                rule(self, Recorded(part, position + number, at_ms, step_run_id, command_id))
        self.position = position + fact.width - 1

    def _row(self, *key: str) -> Spans:
        wanted = RowKey(*key)  # type: ignore[arg-type]
        spans = self.rows.get(wanted)
        if spans is None:
            spans = self.rows[wanted] = Spans()
        return spans

    def _begin(self, key: tuple[Any, ...], recorded: Recorded, run: int, *row: str) -> None:
        if key in self._open:
            return
        if self._spans == MOST_SPANS:
            self.left_out += 1
            return
        self._spans += 1
        spans = self._row(*row)
        self._open[key] = (spans, spans.open(recorded.at_ms, run, recorded.position))
        self._open_of.setdefault(run, set()).add(key)

    def _end(self, key: tuple[Any, ...], at_ms: int, status: int, begin_ms: int | None = None) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            spans, place = found
            self._open_of[spans.run[place]].discard(key)
            spans.close(place, at_ms, status, begin_ms)

    def _run(self, recorded: Recorded) -> int | None:
        named = recorded.step_run_id or getattr(recorded.fact, "step_run_id", None)
        return None if not named else self.runs.numbers.get(named)

    def _enqueued(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        self.tokens[fact.token.token_id] = fact.token.step
        for token_id in fact.joined:
            self.tokens.pop(token_id, None)
            self._end(("token", token_id), recorded.at_ms, DONE)

    def _held(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        kind = "join" if isinstance(fact, events.TokenJoined) else "admission" if fact.keeps_alive else "held"
        self._begin(("token", fact.token_id), recorded, -1, kind, self.tokens.get(fact.token_id, ""))

    def _gone(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        self.tokens.pop(fact.token_id, None)
        self._end(("token", fact.token_id), recorded.at_ms, CANCELLED)

    def _claimed(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        step = self.tokens.pop(fact.token_id, "")
        self._end(("token", fact.token_id), recorded.at_ms, DONE)
        number = self.step_numbers.setdefault(step, len(self.steps))
        if number == len(self.steps):
            self.steps.append(step)
        run = self.runs.claim(fact.step_run_id, number, recorded.position)
        self._begin(("run", run), recorded, run, "step", step)

    def _scheduled(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self.runs.numbers.get(fact.step_run_id)
        if isinstance(fact, events.StepResumed):
            for key in [
                key for key in self._open_of.get(-1 if run is None else run, ()) if key[:2] == ("wait", fact.suspended)
            ]:
                self._end(key, recorded.at_ms, DONE)
        if run is not None:
            self._begin(("queued", fact.command_id), recorded, run, "queued", self.step_of(run))

    def _started(self, recorded: Recorded) -> None:
        self._end(("queued", recorded.command_id), recorded.at_ms, DONE)
        run = self._run(recorded)
        if run is not None and not self.runs.started[run]:
            self.runs.started[run] = recorded.position

    def _ran(self, recorded: Recorded) -> None:
        """A whole step run, without its parts: tasks by the times that the worker measured."""
        fact: Any = recorded.fact
        self._started(recorded)
        run = self._run(recorded)
        if run is not None:
            for one in fact.tasks:
                key = ("task", run)
                self._begin(key, recorded, run, "task", self.step_of(run), one.task)
                self._end(key, recorded.at_ms, DONE, self._began(run, recorded, one.duration_s))
            self._end_run(recorded, run, DONE, recorded.position + fact.width - 1)

    def _began(self, run: int, recorded: Recorded, duration_s: float) -> int:
        """When an attempt began, by the duration its worker reports: not before its step run."""
        found = self._open.get(("run", run))
        claimed_ms = 0 if found is None else found[0].begin[found[1]]
        return max(claimed_ms, recorded.at_ms - round(duration_s * 1000))

    def _task_started(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is not None:
            self._begin(("task", recorded.command_id, fact.path), recorded, run, "task", self.step_of(run), fact.task)

    def _processed(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is None:
            return
        self._task_started(recorded)
        begin_ms = self._began(run, recorded, fact.outcome.meta.duration_s)
        status = DONE if fact.outcome.status == "ok" else FAILED
        self._end(("task", recorded.command_id, fact.path), recorded.at_ms, status, begin_ms)
        if fact.path and (level := self._level_of(run, fact.path)) is not None:
            level.attempted(fact.path[-1], begin_ms)
        for key in fact.set_ctx:
            self.changes.add(recorded.position, key, run)
        if fact.set_shared:
            self._shared.setdefault(run, set()).update(fact.set_shared)

    def _suspended(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is None:
            return
        for wait in fact.waits:
            row = (place_of_wait(wait), self.step_of(run), wait.task)
            self._begin(("wait", recorded.command_id, wait.path), recorded, run, *row)
        if not fact.waits:
            self._begin(("wait", recorded.command_id, ()), recorded, run, "suspended", self.step_of(run))

    def _level(self, run: int, path: events.Path, count: int = 0) -> LoopLevel | None:
        """The level inside the iteration ``path``; ``None`` if there are too many."""
        levels = self.levels.setdefault(run, {})
        level = levels.get(path)
        if level is None:
            if path and self._inner == MOST_LEVELS:
                return None
            self._inner += bool(path)
            level = levels[path] = LoopLevel(count)
        level.count = max(level.count, count)
        return level

    def _level_of(self, run: int, path: events.Path) -> LoopLevel | None:
        """The level of an iteration; ``None`` if nothing of this iteration is kept."""
        level = self._level(run, path[:-1])
        if level is None:
            return None
        missing = max(0, path[-1] + 1 - len(level.begin))
        if missing > self._room:
            self.left_out += 1
            return None
        self._room -= missing
        return level

    def _loop_started(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is not None:
            self._level(run, fact.path, fact.count)

    def _iteration(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        level = None if run is None else self._level_of(run, fact.path)
        if isinstance(fact, events.LoopIterationStarted):
            self._started(recorded)
        if level is None:
            return
        index = fact.path[-1]
        if isinstance(fact, events.LoopIterationStarted):
            level.begins(index, recorded.at_ms)
        elif isinstance(fact, events.LoopIterationDone):
            level.ends(index, recorded.at_ms, DONE)
        else:
            self._failures += 1
            level.ends(index, recorded.at_ms, FAILED, _failure(fact.error) if self._failures <= ERRORS_KEPT else None)

    def _loop_done(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is None:
            return
        level = self._level(run, fact.path, fact.count)
        if level is not None:
            level.closes(recorded.at_ms)
        if not fact.path:
            self._end_run(recorded, run, DONE, recorded.position)

    def _run_ended(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is None:
            return
        status = DONE
        if isinstance(fact, events.StepReused):
            status = REUSED
        elif isinstance(fact, events.StepFailed):
            status = CANCELLED if fact.error.kind == "cancelled" else FAILED
        self._end_run(recorded, run, status, recorded.position)

    def _end_run(self, recorded: Recorded, run: int, status: int, position: int) -> None:
        self.runs.ended[run], self.runs.status[run] = position, status
        self._end(("run", run), recorded.at_ms, status)
        for left in self._open_of.pop(run, ()):
            spans, place = self._open.pop(left)
            spans.close(place, recorded.at_ms, CANCELLED)
        for level in self.levels.get(run, {}).values():
            if not level.ended:
                level.closes(recorded.at_ms)
        for key in sorted(self._shared.pop(run, ())):
            self.changes.add(position, key, run)

    def _resting(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is not None:
            self._begin(("next", run), recorded, run, "next", self.step_of(run))
            self._routed(recorded, run, fact.guards, ())

    def _evaluated(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        if run is not None:
            self._end(("next", run), recorded.at_ms, DONE)
            self._routed(recorded, run, fact.guards, fact.fired)
            self.arcs[self.step_of(run)].routings += 1

    def _routed(
        self, recorded: Recorded, run: int, guards: Sequence[events.EvaluatedGuard], fired: Sequence[int]
    ) -> None:
        arcs = self.arcs.setdefault(self.step_of(run), ArcCounts())
        for arc in fired:
            arcs.fired[arc] = arcs.fired.get(arc, 0) + 1
        arcs.last_fired, arcs.held = list(fired), {guard.rule: guard.value for guard in guards}
        arcs.position, arcs.run = recorded.position, run

    def _patched(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        run = self._run(recorded)
        keys: Iterable[str] = ()
        if isinstance(fact, events.CtxPatched):
            keys = fact.patch
        elif isinstance(fact, events.StepPatched):
            keys = dict.fromkeys((*fact.set_ctx, *(key for key, _ in fact.shared)))
        for key in keys:
            self.changes.add(recorded.position, key, -1 if run is None else run)

    def _reused(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        for entry in fact.entries:
            if (rule := self._RULES.get(type(entry))) is not None:
                rule(self, recorded._replace(fact=entry))
        if fact.token is not None:
            self.tokens[fact.token.token_id] = fact.token.step

    def _paused(self, recorded: Recorded) -> None:
        self._begin(("paused",), recorded, -1, "paused")

    def _resumed(self, recorded: Recorded) -> None:
        self._end(("paused",), recorded.at_ms, DONE)

    def _finished(self, recorded: Recorded) -> None:
        self.has_ended = True
        for run, status in enumerate(self.runs.status):
            if not self.runs.ended[run]:
                self._end_run(recorded, run, CANCELLED if status <= RUNNING else status, recorded.position)
        for key in list(self._open):
            self._end(key, recorded.at_ms, CANCELLED)
        self.tokens.clear()

    _RULES: ClassVar[dict[type[events.Fact], Callable[[ExecutionIndex, Recorded], None]]] = {
        events.ExecutionReused: _reused,
        events.ExecutionPaused: _paused,
        events.ExecutionQuarantined: _paused,
        events.ExecutionResumed: _resumed,
        events.ExecutionFinished: _finished,
        events.TokenEnqueued: _enqueued,
        events.TokenHeld: _held,
        events.TokenJoined: _held,
        events.TokenAbsorbed: _gone,
        events.TokenDiscarded: _gone,
        events.TokenClaimed: _claimed,
        events.StepScheduled: _scheduled,
        events.StepResumed: _scheduled,
        events.StepStarted: _started,
        StepRan: _ran,
        events.TaskStarted: _task_started,
        events.TaskProcessed: _processed,
        events.StepSuspended: _suspended,
        events.LoopStarted: _loop_started,
        events.LoopPagedOut: _loop_started,
        events.LoopIterationStarted: _iteration,
        events.LoopIterationDone: _iteration,
        events.LoopIterationFailed: _iteration,
        events.LoopDone: _loop_done,
        events.StepDone: _run_ended,
        events.StepFailed: _run_ended,
        events.StepReused: _run_ended,
        events.StepPatched: _patched,
        events.CtxPatched: _patched,
        events.NextResting: _resting,
        events.NextEvaluated: _evaluated,
    }


def _failure(error: ErrorInfo) -> Failure:
    return Failure(error.kind, error.message[:ERROR_CHARS])


class ExecutionIndexes:
    """The indexes of the journals that were asked about last."""

    def __init__(self, store: Store, max_bytes: int = MAX_INDEX_BYTES) -> None:
        self._store = store
        self.max_bytes = max_bytes
        self._reading: dict[ExecutionIndex, asyncio.Task[bool]] = {}
        self._kept: LruCache[str, ExecutionIndex] = LruCache(max_bytes, lambda index: index.kept_bytes)

    @property
    def held_bytes(self) -> int:
        """What all indexes take, estimated."""
        return self._kept.size

    async def of(self, execution_id: str) -> ExecutionIndex:
        """The index of a journal, up to its end."""
        index = self._of(execution_id)
        await self._read(index, None)
        return index

    async def so_far(self, execution_id: str) -> ExecutionIndex:
        """The index of a journal so far: at least one piece. The rest is read in the background."""
        index = self._of(execution_id)
        if index not in self._reading and not await self._read(index, 1) and index not in self._reading:
            self._reading[index] = reading = asyncio.create_task(self._read(index, None))
            reading.add_done_callback(lambda done: self._was_read(index, done))
        return index

    def _of(self, execution_id: str) -> ExecutionIndex:
        index = self._kept.get(execution_id)
        if index is None:
            index = ExecutionIndex(execution_id)
            self._keep(index)
        return index

    async def _read(self, index: ExecutionIndex, most: int | None) -> bool:
        """Reads at most ``most`` pieces; returns whether it reached the end. Between two, others may use the index."""
        readings, size = 0, FIRST_ENTRIES
        try:
            while readings != most:
                async with index.reads:
                    before = index.position
                    entries = (await self._store.journals({index.execution_id: before}, size))[index.execution_id]
                    async with index.lock:
                        index.take(entries)
                    taken = index.position - before
                readings += 1
                if len(entries) < size:
                    return True
                if readings % COUNTED_EVERY == 0:
                    self._keep(index)
                size = max(1, min(ENTRIES_AT_ONCE, size * EVENTS_AT_ONCE // taken))
            return False
        finally:
            self._keep(index)

    def _was_read(self, index: ExecutionIndex, reading: asyncio.Task[bool]) -> None:
        del self._reading[index]
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.debug("cannot read the journal of %s now: %s", index.execution_id, error)  # the next caller gets it

    async def known(self, execution_id: str, position: int, most: int) -> ExecutionIndex | None:
        """The index, if it reaches up to ``position`` or at most ``most`` events are missing."""
        index = self._kept.get(execution_id)
        if index is not None and index.position >= position:
            return index
        return await self.of(execution_id) if position - (index.position if index is not None else 0) <= most else None

    def _keep(self, index: ExecutionIndex) -> None:
        self._kept.drop(index.execution_id)
        index.kept_bytes = index.size
        self._kept.put(index.execution_id, index)


def place_of_wait(wait: events.Wait) -> TokenPlace:
    """What a suspended pipeline waits for."""
    if wait.signal is not None:
        return "signal"
    if wait.child is not None:
        return "child"
    if wait.key is not None:
        return "limit"
    return "retry" if wait.delay_s is not None else "timer"
