"""The course of an execution in a form for comparison: a few bytes for each relevant fact.

A token and the step run that consumes it are one; they are identified by the origin of the token, not by ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.status import RunStatus
from noetl_stream.operations.diff.parts import Likeness, Parts, Targets, end_of, parts_of
from noetl_stream.ports.operations.reading.diffs import DivergenceKind
from noetl_stream.ports.stores.store import StoredEntry
from noetl_stream.storage.journal import facts_of

KINDS: Final[tuple[DivergenceKind, ...]] = get_args(DivergenceKind)
MASK: Final = 2**64 - 1

MOST_FACTS: Final = 300_000
"""The part of one journal that is compared, about 12 MB; later entries are not."""

EXECUTION: Final = 0
"""The number of the run that stands for the execution as a whole."""

_LAST: Final = frozenset({"end", "arc"})
"""Kinds of which a run has one fact each. Facts of other kinds may repeat."""

_OF_ITERATION: Final[tuple[DivergenceKind, ...]] = ("task", "loop", "loop_end", "iteration")


def lane_of(kind: DivergenceKind, path: events.Path) -> int:
    return hash((kind, path)) & MASK


class CourseRun(msgspec.Struct):
    """A token, and the step run that has consumed it. ``key`` is equal for those with the same origin.

    ``position`` is that of the token. Times are ms since the epoch, 0 until then. ``is_merged``: a join has taken it.
    """

    key: int
    step: str
    token_id: str
    position: int
    step_run_id: str = ""
    claimed_ms: int = 0
    ended_ms: int = 0
    status: RunStatus = "waiting"
    is_merged: bool = False

    @property
    def duration_s(self) -> float | None:
        if not self.claimed_ms or not self.ended_ms or self.status == "reused":
            return None
        return round((self.ended_ms - self.claimed_ms) / 1000, 3)


class Course(JournalReader[int]):
    """The course of one execution, up to ``position``.

    Attributes:
        lane: The subject of each fact within its run: the same numbers for the same iteration and kind.
        number: The number of earlier facts of the lane.
        choice, data: Digests of :class:`~noetl_stream.operations.diff.parts.Parts`.
        inner: Whether the fact is of an iteration.
        is_cut: Whether entries beyond the bound were dropped.
    """

    def __init__(self, execution_id: str, targets: Targets) -> None:
        super().__init__(execution_id)
        self.is_cut = False
        self.like = Likeness(execution_id)
        self.runs = [CourseRun(0, "", "", 1)]
        self.run, self.position_of = array("i"), array("i")
        self.kind, self.inner = array("b"), array("b")
        self.lane, self.number = array("Q"), array("i")
        self.choice, self.data = array("Q"), array("Q")
        self.targets = targets
        self._by_token: dict[str, int] = {}
        self._alike: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Adds the next entries."""
        for entry in entries:
            for recorded in facts_of(entry):
                if self.is_cut:
                    return
                self.read(recorded)
                self.is_cut = len(self.run) >= MOST_FACTS

    # --- what is compared ---------------------------------------------------------------------------------------------

    def _note(self, at: Recorded, run: int, path: events.Path = (), parts: Parts | None = None) -> None:
        """Records the comparable parts of a fact, by default those of :func:`parts_of`."""
        parts = parts or parts_of(at.fact, self.runs[run].step, self.targets)
        if parts is None:
            return
        lane = lane_of(parts.kind, path)
        number = 0
        if parts.kind not in _LAST:
            number = self._numbers.get((run, lane), 0)
            self._numbers[run, lane] = number + 1
        self.run.append(run)
        self.position_of.append(at.position)
        self.kind.append(KINDS.index(parts.kind))
        self.inner.append(bool(path))
        self.lane.append(lane)
        self.number.append(number)
        self.choice.append(self.like.digest(parts.choice))
        self.data.append(self.like.digest(parts.data))

    def _forget(self, run: int, path: events.Path = ()) -> None:
        for kind in _OF_ITERATION:
            self._numbers.pop((run, lane_of(kind, path)), None)

    def _noted(self, at: Recorded, fact: events.Fact) -> None:
        self._note(at, EXECUTION)

    execution_started = ctx_patched = signal_received = halt_requested = _noted

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        for run in self.runs:
            if not run.ended_ms and run.status in ("waiting", "running"):
                run.status, run.ended_ms = "cancelled", at.at_ms
        self._note(at, EXECUTION)

    # --- tokens and step runs -----------------------------------------------------------------------------------------

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        token = fact.token
        if token.token_id in self._by_token:
            return
        for merged in fact.joined:
            if (place := self._by_token.pop(merged, None)) is not None:
                self.runs[place].is_merged = True
        came_from = self.by_id.get(token.from_step_run_id or "", EXECUTION)
        origin = ("join",) if fact.joined else (self.runs[came_from].key, token.cause == "injected")
        alike = hash((*origin, token.step))
        nth = self._alike[alike] = self._alike.get(alike, 0) + 1
        self._by_token[token.token_id] = len(self.runs)
        self.runs.append(CourseRun(hash((alike, nth)), token.step, token.token_id, at.position))
        self._note(at, len(self.runs) - 1)

    def _token_gone(self, at: Recorded, fact: events.TokenDiscarded | events.TokenAbsorbed) -> None:
        place = self._by_token.get(fact.token_id)
        if place is not None:
            self.runs[place].status = "cancelled"
            self._note(at, place)

    token_absorbed = token_discarded = _token_gone

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> int:
        place = self._by_token[fact.token_id]
        run = self.runs[place]
        run.step_run_id, run.claimed_ms = fact.step_run_id, at.at_ms
        self._note(at, place)
        return place

    def _started(self, at: Recorded, run: int, fact: events.Fact) -> None:
        if self.runs[run].status == "waiting":
            self.runs[run].status = "running"

    run_started = iteration_began = _started

    def _noted_of_run(self, at: Recorded, run: int, fact: Any) -> None:
        self._note(at, run, getattr(fact, "path", ()))

    attempt_ended = loop_began = loop_counted = loop_ended = run_routed = _noted_of_run

    def iteration_ended(self, at: Recorded, run: int, fact: IterationEnd) -> None:
        if fact.error is not None:
            self._note(at, run, fact.path)
        self._forget(run, fact.path)

    def run_ended(self, at: Recorded, run: int, fact: RunEnd) -> None:
        ended = self.runs[run]
        if not ended.ended_ms:
            self._note(at, run, parts=end_of(fact))
            ended.status, ended.ended_ms = fact.status, at.at_ms
            self._forget(run)
