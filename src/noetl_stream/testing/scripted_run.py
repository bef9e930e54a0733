"""An imaginary worker's run of one command: tool outcomes come from the test, everything else is the real thing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from noetl_stream.engine.looping import loop_items
from noetl_stream.engine.pipeline import current_task, decide_task
from noetl_stream.engine.progress import advance_progress
from noetl_stream.engine.scope import iteration_names
from noetl_stream.engine.state import Occurrence
from noetl_stream.model.codec import payload_of
from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    Path,
    StepClaimed,
    StepDone,
    StepFailed,
    StepStarted,
    StepSuspended,
    TaskStarted,
    Wait,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import Drop, Go, LoopProgress, Progress, StepCommand, path_key
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.kinds import Kinds, KindSpec
from noetl_stream.playbook.plan import LoopPlan, Plan
from noetl_stream.template import ABSENT, ExpressionError, ResultView, Scope, render
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.scope import Iteration, RunScope

WORKER: Final = "an imaginary worker"
ARGS: Final = object()
"""As a task's result: its rendered ``args``, as ``kind: noop`` gives them."""

Sink = Callable[[Occurrence], Any]
"""Takes what a run reports, one event at a time, as the fold would."""

Passes = Generator[Iteration, ErrorInfo | None, ErrorInfo | None]
"""Yields iterations, takes the error of each, and gives that of the loop."""


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
        self._begun = self._spoken = False
        self._unsaid: list[Fact] = []
        tools = cast(Mapping[str, Tool], {kind: _Kind(spec) for kind, spec in kinds.items()})
        self._plan = plan
        self._scope = RunScope(plan, self._step, command, tools, {})
        self._go = command.resume or Go(next_number=0, vars=command.vars)
        self._progress = Progress(vars=command.vars)
        self._iteration = Iteration()
        self._loop: Passes | None = None
        self._levels: dict[Path, list[Any]] = {}
        self._vars = command.vars

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
    def path(self) -> Path:
        """The iteration that runs; ``()`` outside loops."""
        self._set_out()
        return self._iteration.path

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
        self._spoken = True
        unsaid, self._unsaid = self._unsaid, []
        for fact in unsaid:
            self._tell(fact)

    def suspend(self, *waits: Wait) -> None:
        """Ends the command with its pipelines waiting (LANGUAGE §8)."""
        self.begin()
        self.over = True
        self._tell(StepSuspended(list(waits)))

    def _set_out(self) -> None:
        """Looks where the step run stands. What is to be reported of that waits for :meth:`begin`."""
        if self._begun or self.over:
            return
        self._begun = True
        command = self.command
        if self._go.ctx:
            self._scope.patch_ctx(self._go.ctx)
        self._vars = self._go.vars
        if command.items is not None:
            level = self._step.loop
            for _ in command.path:
                level = level.inner if level is not None else None
            assert level is not None
            self._loop = self._pass_through(level, command.items, self._go.loop, command.path, command.max_in_flight)
            self._advance(None)
            return
        if command.path:
            self._iteration = self._iteration_at(command.path, command.chain, command.counts)
            self._say(LoopIterationStarted(command.path, WORKER))
        else:
            self._say(StepStarted(WORKER))
        self._progress = self._go.progress.get(path_key(command.path)) or Progress(vars=self._vars)

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
        if self._loop is None:
            self._end_command(error)
            return
        path = self._iteration.path
        self._tell(LoopIterationDone(path) if error is None else LoopIterationFailed(path, error))
        self._vars = self._progress.vars
        self._advance(error)

    def _advance(self, error: ErrorInfo | None) -> None:
        """The next iteration of the loop, after one that ended with ``error``; ``None`` at first, too."""
        assert self._loop is not None
        try:
            self._iteration = (
                next(self._loop) if inspect.getgeneratorstate(self._loop) == "GEN_CREATED" else (self._loop.send(error))
            )
        except StopIteration:
            self.over = True
            return
        key = path_key(self._iteration.path)
        self._progress = self._go.progress.get(key) or Progress(vars=self._vars)

    def _pass_through(
        self, level: LoopPlan, items: list[Any], seen: LoopProgress | None, path: Path, at_once: int
    ) -> Passes:
        """Yields the iterations of a level and those inside, takes how each ended, and tells of the rest."""
        step_run_id, count = self.command.step_run_id, len(items)
        if seen is None or not (seen.low or seen.above or seen.inner or seen.failed or self._go.progress):
            outermost = path == self.command.path
            given = [] if outermost else items
            self._say(LoopStarted(step_run_id, count, given, at_once, local=True, path=path))
        seen = seen or LoopProgress()
        ok, failed, first = seen.ok, seen.failed, seen.first_error
        fail_fast = level.failure_mode == "fail_fast"
        for index in range(seen.low, count):
            if fail_fast and first is not None:
                break
            if index in seen.above:
                continue
            here = (*path, index)
            self._levels[path] = items
            self._say(LoopIterationStarted(here, WORKER))
            if level.inner is None:
                error = yield self._iteration_at(here, *self._around(here))
            else:
                error = yield from self._inner(level.inner, seen.inner.get(index), here)
            if error is None:
                ok += 1
                continue
            failed += 1
            first = first or msgspec.structs.replace(error, index=index)
        ends_badly = fail_fast and first is not None
        if ends_badly and first is not None:
            self._say(LoopIterationFailed(path, first) if path else StepFailed(step_run_id, first))
            return first
        self._say(LoopDone(step_run_id, count, ok, failed, count - ok - failed, path))
        return None

    def _inner(self, level: LoopPlan, seen: LoopProgress | None, path: Path) -> Passes:
        if seen is not None and seen.items is not None:
            return (yield from self._pass_through(level, seen.items, seen, path, 1))
        chain, counts = self._around(path)
        names = {"iter": iteration_names(self._outermost, path, chain, counts)}
        steps = {name: ResultView(value.outcome, value.results) for name, value in self.command.steps.items()}
        command = self.command
        scope = Scope(
            {
                "workload": command.workload,
                "ctx": self._scope.ctx,
                "args": command.args,
                "steps": dict.fromkeys(self._plan.steps, ABSENT) | steps,
                "execution_id": command.execution_id,
                **names,
            }
        )
        items, at_once = loop_items(level, scope, command.limits.max_in_flight)
        return (yield from self._pass_through(level, items, None, path, at_once))

    def _around(self, path: Path) -> tuple[list[Any], list[int]]:
        """The elements and counts of the levels around the iteration ``path``, the command's own ones first."""
        chain, counts = list(self.command.chain), list(self.command.counts)
        for depth in range(len(chain), len(path)):
            items = self._levels[path[:depth]]
            chain.append(items[path[depth]])
            counts.append(len(items))
        return chain, counts

    @property
    def _outermost(self) -> LoopPlan:
        assert self._step.loop is not None
        return self._step.loop

    def _iteration_at(self, path: Path, chain: list[Any], counts: list[int]) -> Iteration:
        return Iteration(path, iteration_names(self._outermost, path, chain, counts))

    def _end_command(self, error: ErrorInfo | None) -> None:
        path, step_run_id = self.command.path, self.command.step_run_id
        self.over = True
        if path:
            self._tell(LoopIterationDone(path) if error is None else LoopIterationFailed(path, error))
        else:
            self._tell(StepDone(step_run_id) if error is None else StepFailed(step_run_id, error))

    def _say(self, fact: Fact) -> None:
        """Tells it, or keeps it for :meth:`begin`."""
        if self._spoken:
            self._tell(fact)
        else:
            self._unsaid.append(fact)

    def _tell(self, fact: Fact) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        self._tell_fold(Occurrence(fact, self.run, number))
