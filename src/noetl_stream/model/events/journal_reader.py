"""The story of step runs, attempts, waits and routings that a journal tells; the base of all that is made of journals.

Only this module knows which kinds of facts tell it: a reader names the happenings, never the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from noetl_stream.model import events
from noetl_stream.model.events import Fact, LoopDone, StepDone, StepFailed, StepReused
from noetl_stream.model.events.composite import Composite, StepRan, expand

Run = TypeVar("Run")
Told = Mapping[type[Fact], Sequence[Callable[..., None]]]

RunEnd = StepDone | StepFailed | StepReused | LoopDone
"""The end of a step run, with its ``status`` and, if it failed, its ``error``."""

IterationEnd = events.LoopIterationDone | events.LoopIterationFailed | LoopDone
"""The end of an iteration; around an inner loop, that of the inner level. ``error`` is set if it failed."""


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A fact with the place and time of its record.

    ``step_run_id`` and ``command_id`` are those of the report that brought it, else empty.
    """

    fact: Fact
    position: int
    at_ms: int
    step_run_id: str | None
    command_id: str


class JournalReader(Generic[Run]):
    """A reader of a journal. A subclass overrides the methods for the happenings that it needs, and makes its own
    ``Run`` of each step run; methods that are not overridden cost nothing.

    Attributes:
        names: The names of the events that it needs.
        position: Of the last event.
        tokens: The steps of the tokens that no step run has consumed.
        by_id: The step runs by id, in the order in which they began.
    """

    names: ClassVar[frozenset[str]] = frozenset()
    _of_execution: ClassVar[Told] = {}
    _of_run: ClassVar[Told] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._of_execution, cls._of_run = dict(_told(cls, _OF_EXECUTION)), dict(_told(cls, _OF_RUN))
        cls.names = frozenset(kind.event_name() for kind in (*cls._of_execution, *cls._of_run))

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        self.position = self.begun_ms = 0
        self.has_ended = False
        self.tokens: dict[str, str] = {}
        self.by_id: dict[str, Run] = {}

    def read(self, at: Recorded) -> None:
        """Reads the next fact."""
        fact, kind = at.fact, type(at.fact)
        self.begun_ms = self.begun_ms or at.at_ms
        self.position = at.position
        if (told := self._of_run.get(kind)) is not None:
            about: Any = at.step_run_id or getattr(fact, "step_run_id", "")
            if (run := self.by_id.get(about)) is not None:
                for tell in told:
                    tell(self, at, run, fact)
        elif (told := self._of_execution.get(kind)) is not None:
            for tell in told:
                tell(self, at, fact)
        elif kind in _COMPOSITE:
            for number, part in enumerate(expand(self.execution_id, fact)):
                self.read(Recorded(part, at.position + number, at.at_ms, at.step_run_id, at.command_id))

    # --- the execution ------------------------------------------------------------------------------------------------

    def execution_started(self, at: Recorded, fact: events.ExecutionStarted) -> None:
        """The execution has started with its workload."""

    def execution_paused(self, at: Recorded, fact: events.ExecutionPaused | events.ExecutionQuarantined) -> None:
        """The execution is paused, by request or because it cannot be folded."""

    def execution_resumed(self, at: Recorded, fact: events.ExecutionResumed) -> None:
        """The execution continues after a pause."""

    def quota_exceeded(self, at: Recorded, fact: events.QuotaExceeded) -> None:
        """The execution has exceeded a quota, and continues or is paused."""

    def execution_failing(self, at: Recorded, fact: events.ExecutionFailing) -> None:
        """The execution will fail."""

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        """The execution has ended or is closing: step runs without an end of their own are cancelled."""

    def execution_finished(self, at: Recorded, fact: events.ExecutionFinished) -> None:
        """The execution has ended."""

    def execution_reused(self, at: Recorded, fact: events.ExecutionReused) -> None:
        """A rerun reuses facts of its original, which are reported as if they happened here, at this position."""
        for entry in fact.entries:
            self.read(replace(at, fact=entry))
        if fact.token is not None:
            self.read(replace(at, fact=events.TokenEnqueued(fact.token, fact.joined)))

    def signal_received(self, at: Recorded, fact: events.SignalReceived) -> None:
        """A client has sent a signal."""

    def halt_requested(self, at: Recorded, fact: events.PauseRequested | events.CancelRequested) -> None:
        """A client has asked for a pause or a cancel."""

    def ctx_patched(self, at: Recorded, fact: events.CtxPatched) -> None:
        """A client has set keys of ``ctx``."""

    def value_awaited(self, at: Recorded, fact: events.ReferenceAwaited | events.EvaluationAwaited) -> None:
        """No decision is made until a result is loaded, or templates are evaluated."""

    # --- tokens -------------------------------------------------------------------------------------------------------

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        """A token is on its way to a step. The chosen token of a rerun is reported twice."""

    def token_held(self, at: Recorded, fact: events.TokenHeld) -> None:
        """A token waits for its admission."""

    def token_joined(self, at: Recorded, fact: events.TokenJoined) -> None:
        """A token waits at a join."""

    def token_absorbed(self, at: Recorded, fact: events.TokenAbsorbed) -> None:
        """A token has reached a join that fired without it."""

    def token_discarded(self, at: Recorded, fact: events.TokenDiscarded) -> None:
        """A token is discarded."""

    # --- step runs ----------------------------------------------------------------------------------------------------

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> Run:
        """Returns this reader's record of a new step run. ``step`` is empty if its token was not read."""
        raise NotImplementedError

    def run_scheduled(self, at: Recorded, run: Run, fact: events.StepScheduled) -> None:
        """A command of a step run is owed to a worker."""

    def run_resumed(self, at: Recorded, run: Run, fact: events.StepResumed) -> None:
        """The wait of a suspended pipeline is answered: its next command is issued."""

    def run_started(self, at: Recorded, run: Run, fact: events.StepStarted) -> None:
        """A worker has begun a command."""

    def run_suspended(self, at: Recorded, run: Run, fact: events.StepSuspended) -> None:
        """The pipelines of a command wait, and no worker holds it."""

    def child_requested(self, at: Recorded, run: Run, fact: events.ChildRequested) -> None:
        """A step run has called another playbook."""

    def attempt_began(self, at: Recorded, run: Run, fact: events.TaskStarted) -> None:
        """A worker has begun an attempt of a task."""

    def attempt_reported(self, at: Recorded, run: Run, fact: events.TaskHeartbeat) -> None:
        """A running attempt has reported its progress."""

    def attempt_ended(self, at: Recorded, run: Run, fact: events.TaskProcessed) -> None:
        """An attempt of a task has ended, and its policy has decided."""

    def run_passed(self, at: Recorded, run: Run, fact: StepRan) -> None:
        """A whole step run in one fact. A reader that does not override it gets the parts."""

    def run_reused(self, at: Recorded, run: Run, fact: StepReused) -> None:
        """A step run was done by the original of a rerun; :meth:`run_ended` follows."""

    def run_patched(self, at: Recorded, run: Run, fact: events.StepPatched) -> None:
        """A reused step run has set keys of ``ctx``."""

    def run_ended(self, at: Recorded, run: Run, fact: RunEnd) -> None:
        """A step run has ended."""

    # --- loops --------------------------------------------------------------------------------------------------------

    def loop_counted(self, at: Recorded, run: Run, fact: events.LoopPagedOut) -> None:
        """A worker has counted the items of a loop level, which may start."""

    def loop_began(self, at: Recorded, run: Run, fact: events.LoopStarted) -> None:
        """A loop level has begun."""

    def iteration_began(self, at: Recorded, run: Run, fact: events.LoopIterationStarted) -> None:
        """A worker has begun an iteration."""

    def iteration_ended(self, at: Recorded, run: Run, fact: IterationEnd) -> None:
        """An iteration has ended."""

    def loop_ended(self, at: Recorded, run: Run, fact: LoopDone) -> None:
        """A loop level has succeeded; the end of the iteration around it, or of the step run, follows."""

    # --- routings -----------------------------------------------------------------------------------------------------

    def run_rested(self, at: Recorded, run: Run, fact: events.NextResting) -> None:
        """No arc of an ended step run fires yet."""

    def rest_timed_out(self, at: Recorded, run: Run, fact: events.NextTimedOut) -> None:
        """An ended step run has rested for the longest permitted time."""

    def run_routed(self, at: Recorded, run: Run, fact: events.NextEvaluated) -> None:
        """The arcs of an ended step run have fired, or none."""

    # --- what every reader of step runs keeps -------------------------------------------------------------------------

    def _know_token(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        self.tokens[fact.token.token_id] = fact.token.step
        for token_id in fact.joined:
            self.tokens.pop(token_id, None)

    def _forget_token(self, at: Recorded, fact: events.TokenAbsorbed | events.TokenDiscarded) -> None:
        self.tokens.pop(fact.token_id, None)

    def _begin_run(self, at: Recorded, fact: events.TokenClaimed) -> None:
        self.by_id[fact.step_run_id] = self.run_began(at, self.tokens.pop(fact.token_id, ""), fact)

    def _loop_ends_iteration(self, at: Recorded, run: Run, fact: LoopDone) -> None:
        if fact.path:
            self.iteration_ended(at, run, fact)

    def _loop_ends_run(self, at: Recorded, run: Run, fact: LoopDone) -> None:
        if not fact.path:
            self.run_ended(at, run, fact)

    def _forget_tokens(self, at: Recorded, fact: Fact) -> None:
        self.tokens.clear()

    def _note_end(self, at: Recorded, fact: events.ExecutionFinished) -> None:
        self.has_ended = True


_OF_EXECUTION: Final[Mapping[type[Fact], Sequence[str]]] = {
    events.ExecutionStarted: ("execution_started",),
    events.ExecutionPaused: ("execution_paused",),
    events.ExecutionQuarantined: ("execution_paused",),
    events.ExecutionResumed: ("execution_resumed",),
    events.QuotaExceeded: ("quota_exceeded",),
    events.ExecutionFailing: ("execution_failing",),
    events.ExecutionClosing: ("execution_stopped", "_forget_tokens"),
    events.ExecutionFinished: ("execution_stopped", "execution_finished", "_forget_tokens", "_note_end"),
    events.ExecutionReused: ("execution_reused",),
    events.SignalReceived: ("signal_received",),
    events.PauseRequested: ("halt_requested",),
    events.CancelRequested: ("halt_requested",),
    events.CtxPatched: ("ctx_patched",),
    events.ReferenceAwaited: ("value_awaited",),
    events.EvaluationAwaited: ("value_awaited",),
    events.TokenEnqueued: ("_know_token", "token_enqueued"),
    events.TokenHeld: ("token_held",),
    events.TokenJoined: ("token_joined",),
    events.TokenAbsorbed: ("token_absorbed", "_forget_token"),
    events.TokenDiscarded: ("token_discarded", "_forget_token"),
    events.TokenClaimed: ("_begin_run",),
}

_OF_RUN: Final[Mapping[type[Fact], Sequence[str]]] = {
    events.StepScheduled: ("run_scheduled",),
    events.StepResumed: ("run_resumed",),
    events.StepStarted: ("run_started",),
    events.StepSuspended: ("run_suspended",),
    events.ChildRequested: ("child_requested",),
    events.TaskStarted: ("attempt_began",),
    events.TaskHeartbeat: ("attempt_reported",),
    events.TaskProcessed: ("attempt_ended",),
    StepRan: ("run_passed",),
    StepDone: ("run_ended",),
    StepFailed: ("run_ended",),
    StepReused: ("run_reused", "run_ended"),
    events.StepPatched: ("run_patched",),
    events.LoopPagedOut: ("loop_counted",),
    events.LoopStarted: ("loop_began",),
    events.LoopIterationStarted: ("iteration_began",),
    events.LoopIterationDone: ("iteration_ended",),
    events.LoopIterationFailed: ("iteration_ended",),
    LoopDone: ("loop_ended", "_loop_ends_iteration", "_loop_ends_run"),
    events.NextResting: ("run_rested",),
    events.NextTimedOut: ("rest_timed_out",),
    events.NextEvaluated: ("run_routed",),
}

_COMPOSITE: Final = frozenset(get_args(Composite))

_FOR: Final = {
    "execution_reused": "run_began",
    "_know_token": "run_began",
    "_forget_token": "run_began",
    "_begin_run": "run_began",
    "_forget_tokens": "run_began",
    "_note_end": "run_began",
    "_loop_ends_iteration": "iteration_ended",
    "_loop_ends_run": "run_ended",
}
"""The actions for readers that override another method but not this one."""


def _told(
    reader: type[JournalReader[Any]], methods: Mapping[type[Fact], Sequence[str]]
) -> Iterator[tuple[type[Fact], Sequence[Callable[..., None]]]]:
    """The method for each kind of facts."""
    defined = {name for name in dir(reader) if getattr(reader, name) is not getattr(JournalReader, name, None)}
    for kind, names in methods.items():
        found = [getattr(reader, name) for name in names if not defined.isdisjoint({name, _FOR.get(name, name)})]
        if found:
            yield kind, found
