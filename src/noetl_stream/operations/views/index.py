"""An index of a journal, from which graphs, timelines, strips and the history of ``ctx`` are answered.

A process reads each journal once, and from then on only new entries. Indexes are bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from noetl_stream.lru import LruCache
from noetl_stream.model import events
from noetl_stream.model.events.composite import StepRan
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.status import RUN_STATUSES, RunStatus
from noetl_stream.operations.executions.reading.step_runs import Statuses
from noetl_stream.operations.views import arrays
from noetl_stream.operations.views.busy import BusyTimes
from noetl_stream.ports.operations.reading.timelines import RowKind, WaitKind
from noetl_stream.ports.stores.store import Store, StoredEntry
from noetl_stream.storage.journal import facts_of

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE: Final = 200
FIRST_ENTRIES: Final = 5
EVENTS_AT_ONCE: Final = 2_000
"""The entries of a long journal that are read at once, first and later, and their events: other work waits meanwhile.
"""

MAX_INDEX_BYTES: Final = 128 * 1024 * 1024
"""The approximate memory of the indexes of one process, above which those unused for longest are dropped."""

COUNTED_EVERY: Final = 10
"""The number of readings of a new index after which its size is counted again."""

MOST_SPANS: Final = 1_000_000
"""The most attempts and waits of one journal; later ones are missing in its timeline."""

MOST_ITERATIONS: Final = 2_000_000
"""The highest index of iterations that are kept of one journal."""

ERRORS_KEPT: Final = 10_000
"""The most failed iterations of a journal whose error is kept."""

MOST_LEVELS: Final = 2_000
"""The most levels inside loops of one journal whose iterations are kept."""


class ExecutionIndex(JournalReader[int]):
    """The index of one journal, up to ``position``. Step runs are numbered in the order in which they began.

    Attributes:
        reads: Held while the journal is read.
        lock: Held while the index changes, or must not.
        data_uses: The positions where attempts have read or written files and tables, and their step runs.
    """

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.at_ms = 0
        self.reads, self.lock = asyncio.Lock(), asyncio.Lock()
        self.kept_bytes = 0
        self.steps: list[str] = []
        self.runs = arrays.Runs()
        self.rows: dict[arrays.RowKey, arrays.Spans] = {}
        self.levels: dict[int, dict[events.Path, arrays.LoopLevel]] = {}
        self.arcs: dict[str, arrays.ArcCounts] = {}
        self.changes = arrays.Changes()
        self.data_uses: list[tuple[int, int]] = []
        self.busy = BusyTimes()
        self.left_out = 0
        self.step_numbers: dict[str, int] = {}
        self._open: dict[tuple[Any, ...], tuple[arrays.Spans, int]] = {}
        self._open_of: dict[int, set[tuple[Any, ...]]] = {}
        self._shared: dict[int, set[str]] = {}
        self._spans = self._inner = self._failures = 0
        self._room = MOST_ITERATIONS

    def step_of(self, run: int) -> str:
        return self.steps[self.runs.step[run]]

    def counts_at(self, position: int, statuses: Statuses) -> dict[str, Counter[RunStatus]]:
        """The number of step runs with each status, by step, after this position.

        Args:
            statuses: The statuses of the runs unfinished at that point.
        """
        counted: dict[str, Counter[RunStatus]] = {}
        for number, step_run_id in enumerate(self.runs.ids):
            if self.runs.claimed[number] <= position:
                end = self.runs.end_at(number, position)
                counts = counted.setdefault(self.step_of(number), Counter())
                counts[statuses.of_run(step_run_id) if end is None else RUN_STATUSES[end]] += 1
        return counted

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        spans = sum(spans.size for spans in self.rows.values())
        levels = sum(level.size for by_path in self.levels.values() for level in by_path.values())
        waiting = 400 * (len(self._open) + len(self.tokens))
        return (
            10_000
            + spans
            + levels
            + waiting
            + self.runs.size
            + self.changes.size
            + self.busy.size
            + 100 * len(self.data_uses)
        )

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Adds the next entries."""
        for entry in entries:
            self.at_ms = max(self.at_ms, entry.at_ms)
            self.busy.add(entry.at_ms, entry.at_ms)
            for recorded in facts_of(entry):
                self.read(recorded)

    # --- spans of time ------------------------------------------------------------------------------------------------

    def _begin(
        self, key: tuple[Any, ...], at: Recorded, run: int, kind: RowKind, step: str = "", task: str = ""
    ) -> None:
        if key in self._open:
            return
        if self._spans == MOST_SPANS:
            self.left_out += 1
            return
        self._spans += 1
        row = arrays.RowKey(kind, step, task)
        spans = self.rows.get(row)
        if spans is None:
            spans = self.rows[row] = arrays.Spans()
        self._open[key] = (spans, spans.open(at.at_ms, run, at.position))
        self._open_of.setdefault(run, set()).add(key)

    def _end(self, key: tuple[Any, ...], at_ms: int, status: int = arrays.DONE, begin_ms: int | None = None) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            spans, place = found
            self._open_of[spans.run[place]].discard(key)
            spans.close(place, at_ms, status, begin_ms)

    def execution_paused(self, at: Recorded, fact: Any) -> None:
        self._begin(("paused",), at, -1, "paused")

    def execution_resumed(self, at: Recorded, fact: Any) -> None:
        self._end(("paused",), at.at_ms)

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        for run in range(len(self.runs.ids)):
            if not self.runs.ended[run]:
                self._end_run(at, run, arrays.CANCELLED, at.position)
        for key in list(self._open):
            self._end(key, at.at_ms, arrays.CANCELLED)

    # --- tokens -------------------------------------------------------------------------------------------------------

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        for token_id in fact.joined:
            self._end(("token", token_id), at.at_ms)

    def token_held(self, at: Recorded, fact: events.TokenHeld) -> None:
        self._token_waits(at, fact.token_id, "admission" if fact.keeps_alive else "held")

    def token_joined(self, at: Recorded, fact: events.TokenJoined) -> None:
        self._token_waits(at, fact.token_id, "join")

    def _token_waits(self, at: Recorded, token_id: str, kind: RowKind) -> None:
        self._begin(("token", token_id), at, -1, kind, self.tokens.get(token_id, ""))

    def _token_gone(self, at: Recorded, fact: events.TokenAbsorbed | events.TokenDiscarded) -> None:
        self._end(("token", fact.token_id), at.at_ms, arrays.CANCELLED)

    token_absorbed = token_discarded = _token_gone

    # --- step runs ----------------------------------------------------------------------------------------------------

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> int:
        self._end(("token", fact.token_id), at.at_ms)
        number = self.step_numbers.setdefault(step, len(self.steps))
        if number == len(self.steps):
            self.steps.append(step)
        run = self.runs.claim(fact.step_run_id, number, at.position)
        self._begin(("run", run), at, run, "step", step)
        return run

    def run_scheduled(self, at: Recorded, run: int, fact: events.StepScheduled | events.StepResumed) -> None:
        self._begin(("queued", fact.command_id), at, run, "queued", self.step_of(run))
        self.busy.owed(run, fact.command_id, at.at_ms, fact.path)

    def run_resumed(self, at: Recorded, run: int, fact: events.StepResumed) -> None:
        for key in [key for key in self._open_of.get(run, ()) if key[:2] == ("wait", fact.suspended)]:
            self._end(key, at.at_ms)
        self.run_scheduled(at, run, fact)

    def run_started(self, at: Recorded, run: int, fact: Any) -> None:
        self._end(("queued", at.command_id), at.at_ms)
        self.busy.starts(run, at.command_id, at.at_ms)

    def run_passed(self, at: Recorded, run: int, fact: StepRan) -> None:
        """Adds a whole step run, without its parts: tasks by the times that the worker measured."""
        self.run_started(at, run, fact)
        for one in fact.tasks:
            key = ("task", run)
            self._begin(key, at, run, "task", self.step_of(run), one.task)
            begin_ms = self._began(run, at, one.duration_s)
            self._end(key, at.at_ms, arrays.DONE, begin_ms)
            self.busy.measured(run, at.command_id, begin_ms, at.at_ms)
        self.position += fact.width - 1
        self._end_run(at, run, arrays.DONE, self.position)

    def _began(self, run: int, at: Recorded, duration_s: float) -> int:
        """The begin of an attempt, by the duration its worker reports, but not before its step run."""
        found = self._open.get(("run", run))
        claimed_ms = 0 if found is None else found[0].begin[found[1]]
        return max(claimed_ms, at.at_ms - round(duration_s * 1000))

    def attempt_began(self, at: Recorded, run: int, fact: events.TaskStarted | events.TaskProcessed) -> None:
        self._begin(("task", at.command_id, fact.path), at, run, "task", self.step_of(run), fact.task)

    def attempt_ended(self, at: Recorded, run: int, fact: events.TaskProcessed) -> None:
        self.attempt_began(at, run, fact)
        begin_ms = self._began(run, at, fact.outcome.meta.duration_s)
        status = arrays.DONE if fact.outcome.status == "ok" else arrays.FAILED
        self._end(("task", at.command_id, fact.path), at.at_ms, status, begin_ms)
        self.busy.measured(run, at.command_id, begin_ms, at.at_ms)
        if fact.path and (level := self._level_of(run, fact.path)) is not None:
            level.attempted(fact.path[-1], begin_ms)
        if fact.outcome.written or fact.outcome.read or fact.outcome.datasets:
            self.data_uses.append((at.position, run))
        for key in fact.set_ctx:
            self.changes.add(at.position, key, run)
        if fact.set_shared:
            self._shared.setdefault(run, set()).update(fact.set_shared)

    def run_suspended(self, at: Recorded, run: int, fact: events.StepSuspended) -> None:
        for wait in fact.waits:
            self._begin(("wait", at.command_id, wait.path), at, run, place_of_wait(wait), self.step_of(run), wait.task)
        if not fact.waits:
            self._begin(("wait", at.command_id, ()), at, run, "suspended", self.step_of(run))
        self.busy.ends(run, at.command_id, at.at_ms)

    def run_ended(self, at: Recorded, run: int, fact: RunEnd) -> None:
        self._end_run(at, run, arrays.STATUSES.index(fact.status), at.position)

    def _end_run(self, at: Recorded, run: int, status: int, position: int) -> None:
        self.runs.ended[run], self.runs.status[run] = position, status
        self._end(("run", run), at.at_ms, status)
        self.busy.ends_run(run, at.at_ms)
        for left in self._open_of.pop(run, ()):
            spans, place = self._open.pop(left)
            spans.close(place, at.at_ms, arrays.CANCELLED)
        for level in self.levels.get(run, {}).values():
            if not level.ended:
                level.closes(at.at_ms)
        for key in sorted(self._shared.pop(run, ())):
            self.changes.add(position, key, run)

    # --- loops --------------------------------------------------------------------------------------------------------

    def _level(self, run: int, path: events.Path, count: int = 0) -> arrays.LoopLevel | None:
        """The level inside the iteration ``path``; ``None`` if there are too many."""
        levels = self.levels.setdefault(run, {})
        level = levels.get(path)
        if level is None:
            if path and self._inner == MOST_LEVELS:
                return None
            self._inner += bool(path)
            level = levels[path] = arrays.LoopLevel(count)
        level.count = max(level.count, count)
        return level

    def _level_of(self, run: int, path: events.Path) -> arrays.LoopLevel | None:
        """The level of an iteration; ``None`` if the iteration is not kept."""
        level = self._level(run, path[:-1])
        if level is None:
            return None
        missing = max(0, path[-1] + 1 - len(level.begin))
        if missing > self._room:
            self.left_out += 1
            return None
        self._room -= missing
        return level

    def loop_counted(self, at: Recorded, run: int, fact: events.LoopPagedOut) -> None:
        self.busy.ends_level(run, at.command_id, fact.path, at.at_ms)
        self.loop_began(at, run, fact)

    def loop_began(self, at: Recorded, run: int, fact: events.LoopStarted | events.LoopPagedOut) -> None:
        self._level(run, fact.path, fact.count)
        if fact.path and (around := self._level_of(run, fact.path)) is not None:
            around.begins(fact.path[-1], at.at_ms)

    def iteration_began(self, at: Recorded, run: int, fact: events.LoopIterationStarted) -> None:
        self.run_started(at, run, fact)
        if (level := self._level_of(run, fact.path)) is not None:
            level.begins(fact.path[-1], at.at_ms)

    def iteration_ended(self, at: Recorded, run: int, fact: IterationEnd) -> None:
        self.busy.ends_level(run, at.command_id, fact.path, at.at_ms)
        level = self._level_of(run, fact.path)
        if level is None:
            return
        failure = None
        if fact.error is not None:
            self._failures += 1
            if self._failures <= ERRORS_KEPT:
                failure = arrays.Failure(fact.error.kind, fact.error.message[: arrays.ERROR_CHARS])
        level.ends(fact.path[-1], at.at_ms, arrays.DONE if fact.error is None else arrays.FAILED, failure)

    def loop_ended(self, at: Recorded, run: int, fact: events.LoopDone) -> None:
        level = self._level(run, fact.path, fact.count)
        if level is not None:
            level.closes(at.at_ms)

    # --- routings, and changes of ``ctx`` -----------------------------------------------------------------------------

    def run_rested(self, at: Recorded, run: int, fact: events.NextResting) -> None:
        self._begin(("next", run), at, run, "next", self.step_of(run))
        self._routed(at, run, fact.guards, ())

    def run_routed(self, at: Recorded, run: int, fact: events.NextEvaluated) -> None:
        self._end(("next", run), at.at_ms)
        self._routed(at, run, fact.guards, fact.fired)
        self.arcs[self.step_of(run)].routings += 1

    def _routed(self, at: Recorded, run: int, guards: Sequence[events.EvaluatedGuard], fired: Sequence[int]) -> None:
        arcs = self.arcs.setdefault(self.step_of(run), arrays.ArcCounts())
        for arc in fired:
            arcs.fired[arc] = arcs.fired.get(arc, 0) + 1
        arcs.last_fired, arcs.held = list(fired), {guard.rule: guard.value for guard in guards}
        arcs.position, arcs.run = at.position, run

    def ctx_patched(self, at: Recorded, fact: events.CtxPatched) -> None:
        for key in fact.patch:
            self.changes.add(at.position, key, -1)

    def run_patched(self, at: Recorded, run: int, fact: events.StepPatched) -> None:
        for key in dict.fromkeys((*fact.set_ctx, *(key for key, _ in fact.shared))):
            self.changes.add(at.position, key, run)


class ExecutionIndexes:
    """The indexes of the journals that were asked about last."""

    def __init__(self, store: Store, max_bytes: int = MAX_INDEX_BYTES) -> None:
        self._store = store
        self.max_bytes = max_bytes
        self._reading: dict[ExecutionIndex, asyncio.Task[bool]] = {}
        self._kept: LruCache[str, ExecutionIndex] = LruCache(max_bytes, lambda index: index.kept_bytes)

    @property
    def held_bytes(self) -> int:
        """The estimated size of all indexes."""
        return self._kept.size

    async def of(self, execution_id: str) -> ExecutionIndex:
        """The index of a journal, up to its end."""
        index = self._of(execution_id)
        await self._read(index, None)
        return index

    async def so_far(self, execution_id: str) -> ExecutionIndex:
        """The index of a journal so far, at least one piece. The rest is read in the background."""
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
        """Reads at most ``most`` pieces; returns whether it reached the end. The index is usable between pieces."""
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


def place_of_wait(wait: events.Wait) -> WaitKind:
    """What a suspended pipeline waits for."""
    if wait.signal is not None:
        return "signal"
    if wait.child is not None:
        return "child"
    if wait.key is not None:
        return "limit"
    return "retry" if wait.delay_s is not None else "timer"
