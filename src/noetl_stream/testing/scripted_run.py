"""An imaginary worker's run of one command: tool outcomes come from the test, everything else is the real thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from noetl_stream.engine.pipeline import current_task, decide_task
from noetl_stream.engine.progress import advance_progress
from noetl_stream.engine.state import Occurrence
from noetl_stream.model.codec import payload_of
from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepClaimed,
    StepDone,
    StepFailed,
    StepStarted,
    TaskStarted,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import Drop, Go, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.kinds import Kinds, KindSpec
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ExpressionError, render
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.scope import Iteration, RunScope, iteration_of

WORKER: Final = "an imaginary worker"
ARGS: Final = object()
"""As a task's result: its rendered ``args``, as ``kind: noop`` gives them."""

Sink = Callable[[Occurrence], Any]
"""Takes what a run reports, one event at a time, as the fold would."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the worker's scope reads of a tool."""

    spec: KindSpec


class ScriptedRun:
    """One run of one command (PROTOCOL §3), one task at a time.

    Guards, patches, jumps and retries are decided by the engine from the playbook; iterations of a local loop run one
    after the other. Nothing waits: a retry's delay is only recorded.

    Args:
        command: The order as the server built it.
        tell: Where the run's events go, numbered without holes.
        num_delivered: Which delivery of the command this is; a later one has the higher rank.

    Attributes:
        over: Whether the run has reported an end or was told to drop the command.
    """

    def __init__(
        self, plan: Plan, kinds: Kinds, command: StepCommand, tell: Sink, *, num_delivered: int = 1, nonce: str = "n"
    ) -> None:
        self.command = command
        self.run = RunId(command.command_id, command.issue, num_delivered, nonce)
        self.over = False
        self._step = plan.steps[command.step]
        self._tell_fold = tell
        self._next_number = 0
        self._begun = False
        self._unsaid: list[Fact] = []
        tools = cast(Mapping[str, Tool], {kind: _Kind(spec) for kind, spec in kinds.items()})
        self._scope = RunScope(plan, self._step, command, tools, {})
        self._go = Go(next_number=0, vars=command.vars)
        self._progress = Progress(vars=command.vars)
        self._iteration = Iteration()
        self._left: Iterator[int] = iter(())
        self._ok = self._failed = 0
        self._first: ErrorInfo | None = None

    def claim(self) -> None:
        """Asks whether it may run; the answer is handed in by :meth:`answered`."""
        self._tell_fold(Occurrence(StepClaimed("a reply subject"), self.run, 0))

    def answered(self, answer: Go | Drop) -> None:
        """Goes on from where the fold says the step run stands, or drops the command."""
        if isinstance(answer, Drop):
            self.over = True
            return
        self._go = answer
        self._next_number = answer.next_number
        self._scope.patch_ctx(answer.ctx)

    @property
    def task(self) -> str:
        """The name of the task that runs next."""
        self._set_out()
        return current_task(self._step, self._progress).name

    @property
    def index(self) -> int | None:
        """The iteration that runs; ``None`` outside loops."""
        self._set_out()
        return self._iteration.path[0] if self._iteration.path else None

    @property
    def inputs(self) -> dict[str, Any]:
        """What the tool of the task that runs next is given.

        Raises:
            ExpressionError: they cannot be evaluated.
        """
        self._set_out()
        task = current_task(self._step, self._progress)
        rendered = render(task.inputs, self._scope.for_inputs(task, self._progress, self._iteration))
        return {**rendered, **task.verbatim}

    def begin(self) -> None:
        """Reports that it has started; a second time it does nothing. Implied by all that runs a task."""
        self._set_out()
        unsaid, self._unsaid = self._unsaid, []
        for fact in unsaid:
            self._tell(fact)

    def _set_out(self) -> None:
        """Looks where the step run stands. What is to be reported of that waits for :meth:`begin`."""
        if self._begun or self.over:
            return
        self._begun = True
        if self.command.items is not None:
            self._begin_loop(self.command.items)
            return
        if self.command.path:
            index = self.command.path[0]
            self._iteration = iteration_of(self._step, index, self.command.item, self.command.count)
            self._unsaid.append(LoopIterationStarted(self.command.path, WORKER))
        else:
            self._unsaid.append(StepStarted(WORKER))
        self._progress = self._go.progress.get(self.index or 0) or Progress(vars=self._go.vars)

    def answer(self, result: Any = ARGS, *, error: ErrorInfo | None = None) -> None:
        """The next task runs once: with this result, or with this error (and then no result unless one is given)."""
        self.begin()
        if self.over:
            raise AssertionError(f"the run of {self.command.step} is over: there is no task to answer for")
        task, progress, path = current_task(self._step, self._progress), self._progress, self._iteration.path
        self._tell(TaskStarted(task.name, progress.attempt, path))
        outcome = self._outcome(result, error)
        scope = self._scope.for_policy(task, progress, self._iteration, outcome)
        seed = f"{self.command.command_id}{path}"
        fact = decide_task(self._step, progress, outcome, scope, seed=seed, limits=self.command.limits, path=path)
        self._progress = advance_progress(progress, fact)
        self._scope.patch_ctx(fact.set_ctx)
        self._tell(fact)
        if fact.to is None:
            self._end_pipeline(fact.error)

    def finish(self, result: Any = ARGS) -> None:
        """Runs what is left, each task with this result."""
        self.begin()
        while not self.over:
            self.answer(result)

    def fail(self, kind: str = "exception", message: str = "it broke") -> None:
        """The next task fails, and again as often as its policy runs it or another one after that."""
        self.begin()
        while not self.over:
            self.answer(error=ErrorInfo(kind, message))

    def stop(self) -> None:
        """Was told to stop: reports its end as ``cancelled``."""
        self._end_command(ErrorInfo("cancelled", "the run was told to stop"))

    def _outcome(self, result: Any, error: ErrorInfo | None) -> Outcome:
        if error is not None:
            return Outcome("error", payload_of(None if result is ARGS else result), error)
        if result is not ARGS:
            return Outcome("ok", payload_of(result))
        try:
            return Outcome("ok", payload_of(self.inputs.get("args") or {}))
        except ExpressionError as failure:
            return Outcome("error", error=ErrorInfo("expression_error", str(failure)))

    def _end_pipeline(self, error: ErrorInfo | None) -> None:
        if self.command.items is None:
            self._end_command(error)
            return
        path = self._iteration.path
        self._tell(LoopIterationDone(path) if error is None else LoopIterationFailed(path, error))
        if error is None:
            self._ok += 1
        else:
            self._failed += 1
            self._first = self._first or msgspec.structs.replace(error, index=path[0])
        self._next_iteration(self._progress.vars, self._tell)

    def _begin_loop(self, items: list[Any]) -> None:
        go = self._go
        self._ok, self._failed = len(go.done), len(go.failed)
        if go.failed:
            self._first = go.failed[min(go.failed)]
        if not (go.done or go.failed or go.progress):
            at_once = self.command.max_in_flight
            started = LoopStarted(self.command.step_run_id, len(items), max_in_flight=at_once, local=True)
            self._unsaid.append(started)
        ended = go.failed.keys() | set(go.done)
        self._left = iter([index for index in range(len(items)) if index not in ended])
        self._next_iteration(go.vars, self._unsaid.append)

    def _next_iteration(self, variables: dict[str, Any], tell: Callable[[Fact], None]) -> None:
        items, loop = self.command.items, self._step.loop
        assert items is not None and loop is not None
        index = None if self._first is not None and loop.failure_mode == "fail_fast" else next(self._left, None)
        if index is not None:
            self._iteration = iteration_of(self._step, index, items[index], len(items))
            self._progress = self._go.progress.get(index) or Progress(vars=variables)
            tell(LoopIterationStarted((index,), WORKER))
            return
        self.over = True
        step_run_id, count = self.command.step_run_id, len(items)
        if loop.failure_mode == "fail_fast" and self._first is not None:
            tell(StepFailed(step_run_id, self._first))
        else:
            tell(LoopDone(step_run_id, count, self._ok, self._failed, count - self._ok - self._failed))

    def _end_command(self, error: ErrorInfo | None) -> None:
        path, step_run_id = self.command.path, self.command.step_run_id
        self.over = True
        if path:
            self._tell(LoopIterationDone(path) if error is None else LoopIterationFailed(path, error))
        else:
            self._tell(StepDone(step_run_id) if error is None else StepFailed(step_run_id, error))

    def _tell(self, fact: Fact) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        self._tell_fold(Occurrence(fact, self.run, number))
