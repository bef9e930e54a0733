"""What an execution did, in a form that can be compared: a few bytes for each fact that counts.

A token and the step run that consumes it are one: they are told apart by where the token came from, not by ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, get_args

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events.composite import expanded
from noetl_stream.model.status import RunStatus
from noetl_stream.operations.diff.parts import Targets, parts_of
from noetl_stream.operations.diff.value_differences import Likeness
from noetl_stream.operations.views.recorded import Recorded, facts_of
from noetl_stream.ports.operations.diffs import DivergenceKind
from noetl_stream.ports.stores.store import StoredEntry

KINDS: Final[tuple[DivergenceKind, ...]] = get_args(DivergenceKind)
MASK: Final = 2**64 - 1

MOST_FACTS: Final = 300_000
"""How much of one journal is compared, about 12 MB; what comes later is not."""

EXECUTION: Final = 0
"""The number of the run that stands for the execution as a whole."""

_LAST: Final = frozenset({"end", "arc"})
"""A run has one fact of each of these kinds. Others follow each other about the same thing."""

_OF_ITERATION: Final[tuple[DivergenceKind, ...]] = ("task", "loop", "loop_end", "iteration")


def lane_of(kind: DivergenceKind, path: events.Path) -> int:
    return hash((kind, path)) & MASK


class CourseRun(msgspec.Struct):
    """A token, and the step run that has consumed it. ``key`` is equal for those that came about in the same way.

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


class Course:
    """The course of one execution, up to ``position``.

    Attributes:
        lane: What a fact is about within its run: the same numbers for the same iteration and kind.
        number: How many of the lane came before it.
        choice, data: Digests of :class:`~noetl_stream.operations.diff.parts.Parts`.
        inner: Whether it is of an iteration.
        is_cut: There was more than is kept.
    """

    def __init__(self, execution_id: str, targets: Targets) -> None:
        self.execution_id = execution_id
        self.position = 0
        self.has_ended = self.is_cut = False
        self.like = Likeness(execution_id)
        self.runs = [CourseRun(0, "", "", 1)]
        self.run, self.position_of = array("i"), array("i")
        self.kind, self.inner = array("b"), array("b")
        self.lane, self.number = array("Q"), array("i")
        self.choice, self.data = array("Q"), array("Q")
        self.targets = targets
        self._by_token: dict[str, int] = {}
        self._by_id: dict[str, int] = {}
        self._alike: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Adds entries, which follow those that it has."""
        for entry in entries:
            for recorded in facts_of(entry):
                if self.is_cut:
                    return
                for number, part in enumerate(expanded(self.execution_id, recorded.fact)):
                    self._take(recorded._replace(fact=part, position=recorded.position + number))

    def _take(self, recorded: Recorded) -> None:
        rule = self._RULES.get(type(recorded.fact))
        if rule is not None:
            rule(self, recorded)
        self.position = recorded.position
        self.is_cut = len(self.run) >= MOST_FACTS

    # --- what is compared ---------------------------------------------------------------------------------------------

    def _note(self, recorded: Recorded, run: int, path: events.Path = ()) -> None:
        fact = recorded.fact
        parts = parts_of(fact, self.runs[run].step, self.targets)
        if parts is None:
            return
        lane = lane_of(parts.kind, path)
        number = 0
        if parts.kind not in _LAST:
            number = self._numbers.get((run, lane), 0)
            self._numbers[run, lane] = number + 1
        self.run.append(run)
        self.position_of.append(recorded.position)
        self.kind.append(KINDS.index(parts.kind))
        self.inner.append(bool(path))
        self.lane.append(lane)
        self.number.append(number)
        self.choice.append(self.like.digest(parts.choice))
        self.data.append(self.like.digest(parts.data))

    def _forget(self, run: int, path: events.Path = ()) -> None:
        for kind in _OF_ITERATION:
            self._numbers.pop((run, lane_of(kind, path)), None)

    def _of_execution(self, recorded: Recorded) -> None:
        self._note(recorded, EXECUTION)

    def _run_of(self, recorded: Recorded) -> int | None:
        named = recorded.step_run_id or getattr(recorded.fact, "step_run_id", None)
        return None if not named else self._by_id.get(named)

    def _of_run(self, recorded: Recorded) -> None:
        run = self._run_of(recorded)
        if run is not None:
            self._note(recorded, run, getattr(recorded.fact, "path", ()))

    # --- tokens and step runs -----------------------------------------------------------------------------------------

    def _enqueued(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        token: events.Token = fact.token
        if token.token_id in self._by_token:
            return
        for merged in fact.joined:
            if (place := self._by_token.pop(merged, None)) is not None:
                self.runs[place].is_merged = True
        came_from = self._by_id.get(token.from_step_run_id or "", EXECUTION)
        origin = ("join",) if fact.joined else (self.runs[came_from].key, token.cause == "injected")
        alike = hash((*origin, token.step))
        nth = self._alike[alike] = self._alike.get(alike, 0) + 1
        self._by_token[token.token_id] = len(self.runs)
        self.runs.append(CourseRun(hash((alike, nth)), token.step, token.token_id, recorded.position))
        self._note(recorded, len(self.runs) - 1)

    def _claimed(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        place = self._by_token.get(fact.token_id)
        if place is not None:
            run = self.runs[place]
            run.step_run_id, run.claimed_ms = fact.step_run_id, recorded.at_ms
            self._by_id[fact.step_run_id] = place
            self._note(recorded, place)

    def _dropped(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        place = self._by_token.get(fact.token_id)
        if place is not None:
            self.runs[place].status = "cancelled"
            self._note(recorded, place)

    def _started(self, recorded: Recorded) -> None:
        run = self._run_of(recorded)
        if run is not None and self.runs[run].status == "waiting":
            self.runs[run].status = "running"

    def _iteration_ended(self, recorded: Recorded) -> None:
        run, fact = self._run_of(recorded), recorded.fact
        if run is not None:
            path = getattr(fact, "path", ())
            self._note(recorded, run, path)
            self._forget(run, path)

    def _loop_done(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        self._of_run(recorded)
        if not fact.path:
            self._run_ended(recorded._replace(fact=events.StepDone(fact.step_run_id)))

    def _run_ended(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        status: RunStatus = "done"
        if isinstance(fact, events.StepReused):
            status = "reused"
        elif isinstance(fact, events.StepFailed):
            status = "cancelled" if fact.error.kind == "cancelled" else "failed"
        place = self._run_of(recorded)
        if place is not None and not self.runs[place].ended_ms:
            self._note(recorded, place)
            run = self.runs[place]
            run.status, run.ended_ms = status, recorded.at_ms
            self._forget(place)

    def _reused(self, recorded: Recorded) -> None:
        fact: Any = recorded.fact
        for entry in fact.entries:
            if (rule := self._RULES.get(type(entry))) is not None:
                rule(self, recorded._replace(fact=entry))
        if fact.token is not None:
            self._enqueued(recorded._replace(fact=events.TokenEnqueued(fact.token, fact.joined)))

    def _finished(self, recorded: Recorded) -> None:
        self.has_ended = True
        for run in self.runs:
            if not run.ended_ms and run.status in ("waiting", "running"):
                run.status, run.ended_ms = "cancelled", recorded.at_ms
        self._note(recorded, EXECUTION)

    _RULES: ClassVar[dict[type[events.Fact], Callable[[Course, Recorded], None]]] = {
        events.ExecutionStarted: _of_execution,
        events.CtxPatched: _of_execution,
        events.SignalReceived: _of_execution,
        events.CancelRequested: _of_execution,
        events.ExecutionReused: _reused,
        events.ExecutionFinished: _finished,
        events.TokenEnqueued: _enqueued,
        events.TokenClaimed: _claimed,
        events.TokenDiscarded: _dropped,
        events.TokenAbsorbed: _dropped,
        events.StepStarted: _started,
        events.TaskProcessed: _of_run,
        events.LoopStarted: _of_run,
        events.LoopPagedOut: _of_run,
        events.LoopIterationStarted: _started,
        events.LoopIterationDone: _iteration_ended,
        events.LoopIterationFailed: _iteration_ended,
        events.LoopDone: _loop_done,
        events.StepDone: _run_ended,
        events.StepFailed: _run_ended,
        events.StepReused: _run_ended,
        events.NextEvaluated: _of_run,
    }
