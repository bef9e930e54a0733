"""An imaginary worker's run of one command: tool outcomes come from the test, everything else is the real thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from noetl_stream.engine.evolve.progress import advance_progress
from noetl_stream.engine.pipeline.local_loops import OpenedLevel, cut, open_level
from noetl_stream.engine.pipeline.policy import current_task, decide_task
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ChildCall,
    Fact,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopPagedOut,
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
from noetl_stream.model.reference import ItemPosition, Page
from noetl_stream.playbook.kinds.language import PlaybookInputs, WaitInputs
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.plan import LoopPlan, Plan, TaskPlan
from noetl_stream.template import ExpressionError, render
from noetl_stream.testing.scenario.objects import Objects
from noetl_stream.testing.scenario.scripted_loop import WORKER, Pass, ScriptedLoop
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.command.scope import Iteration, RunScope, iteration_around, level_at
from noetl_stream.worker.command.wait_tasks import SUSPENDING_KINDS

ARGS: Final = object()
"""As a task's result: its rendered ``args``, as ``kind: noop`` gives them."""

Sink = Callable[[RecordedFact], Any]
"""Takes what a run reports, one event at a time, as the fold would."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the worker's scope reads of a tool."""

    spec: KindSpec


class ScriptedRun:
    """One run of one command (PROTOCOL §3), one task at a time.

    Guards, patches, jumps, retries and loops are decided from the playbook. Nothing waits here: a short retry delay is
    only recorded; a long one, ``kind: wait`` and ``kind: playbook`` suspend the command once nothing else can run.

    Args:
        command: The order as the server built it.
        tell: Where the run's events go, numbered without holes.
        num_delivered: Which delivery of the command this is; a later one has the higher rank.
        objects: Where results and pages are put, and where templates and loops read them.

    Attributes:
        over: Whether the run has reported an end or was told to drop the command.
        pausing: Whether it was told to begin no further iteration.
    """

    def __init__(
        self,
        plan: Plan,
        kinds: Kinds,
        command: StepCommand,
        tell: Sink,
        *,
        num_delivered: int = 1,
        nonce: str = "n",
        objects: Objects,
    ) -> None:
        self.command = command
        self.run = RunId(command.command_id, command.issue, num_delivered, nonce)
        self.over = False
        self.pausing = False
        self._step = plan.steps[command.step]
        self._tell_fold = tell
        self._objects = objects
        self._next_number = 0
        self._begun = self._spoken = False
        self._unsaid: list[Fact] = []
        tools = cast(Mapping[str, Tool], {kind: _Kind(spec) for kind, spec in kinds.items()})
        self._scope = RunScope(plan, self._step, command, tools, objects)
        self._go = command.resume or Go(next_number=0, vars=command.vars)
        self._vars = command.vars
        self._loop: ScriptedLoop | None = None
        self._only: Pass | None = None

    def claim(self) -> None:
        """Asks whether it may run; the answer is handed in by :meth:`answered`."""
        self._tell_fold(RecordedFact(StepClaimed("a reply subject"), self.run, 0))

    def answered(self, answer: Go | Drop) -> None:
        """Goes on from where the fold says the step run stands, or drops the command."""
        if isinstance(answer, Drop):
            self.over = True
            return
        self._go = answer
        self._next_number = answer.next_number

    @property
    def ready(self) -> list[Path]:
        """The passes that can run a task now, by their iterations: ``()`` outside loops."""
        return [one.iteration.path for one in self._ready]

    @property
    def task(self) -> str:
        """The name of the task that runs next, in the first pass that can go on."""
        return self._task_of(self._next()).name

    @property
    def path(self) -> Path:
        """The iteration of that pass."""
        return self._next().iteration.path

    def stands_at(self, path: Path) -> tuple[str, int]:
        """The task that runs next in the pass of this iteration, and which attempt of it that is."""
        one = self._next(path)
        return self._task_of(one).name, one.progress.attempt

    @property
    def inputs(self) -> dict[str, Any]:
        """What the tool of that task is given.

        Raises:
            ExpressionError: they cannot be evaluated.
        """
        return self._inputs_of(self._next())

    def begin(self) -> None:
        """Reports that it has started; a second time it does nothing. Implied by all that runs a task."""
        self._set_out()
        self._spoken = True
        unsaid, self._unsaid = self._unsaid, []
        for fact in unsaid:
            self._tell(fact)

    def answer(self, result: Any = ARGS, *, error: ErrorInfo | None = None, path: Path | None = None) -> None:
        """The next task (of the pass ``path``) runs once, with this result, or with this error (and then no result
        unless one is given). One that suspends begins to wait; one whose wait is over takes what it waited for.
        """
        self.begin()
        if self.over:
            raise AssertionError(f"the run of {self.command.step} is over: there is no task to answer for")
        one = self._next(path)
        task, progress, here = self._task_of(one), one.progress, one.iteration.path
        outcome = one.answer
        if outcome is None:
            self._tell(TaskStarted(task.name, progress.attempt, here))
            found = self._attempt(one, task, result, error)
            if isinstance(found, Wait):
                self._park(one, found)
                return
            outcome = found
        one.answer, one.is_answered = None, False
        scope = self._scope.for_policy(task, progress, one.iteration, outcome)
        seed = f"{self.command.command_id}{here}"
        fact = decide_task(self._step, progress, outcome, scope, seed=seed, limits=self.command.limits, path=here)
        one.progress = advance_progress(progress, fact)
        self._scope.patch_ctx(fact.set_ctx)
        if fact.set_shared and not here:
            self._scope.share(fact.set_shared)
        self._tell(fact)
        if fact.to is None:
            self._end_pass(one, fact.error)
        elif one.progress.delay_s > self.command.limits.inline_delay_s:
            self._park(one, Wait(here, fact.to, delay_s=one.progress.delay_s))

    def finish(self, result: Any = ARGS) -> None:
        """Runs what is left, each task with this result, until it ends or must wait."""
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

    def pause(self) -> None:
        """Is told that the execution pauses: a local loop begins no further iteration."""
        self._set_out()
        self.pausing = True

    def suspend(self, *waits: Wait) -> None:
        """Ends the command with its pipelines waiting for this (LANGUAGE §8)."""
        self.begin()
        self.over = True
        self._tell(StepSuspended(list(waits)))

    # --- for the loop -------------------------------------------------------------------------------------------------

    def say(self, fact: Fact) -> None:
        """Tells it, or keeps it for :meth:`begin`."""
        if self._spoken:
            self._tell(fact)
        else:
            self._unsaid.append(fact)

    def begin_pass(self, iteration: Iteration) -> Pass:
        """The pass of this iteration, where it stands."""
        go, key = self._go, path_key(iteration.path)
        progress = go.progress.get(key) or Progress(vars=self._vars)
        is_answered = key in go.answers
        parked = go.waits.get(key)
        if parked is None and progress.delay_s > self.command.limits.inline_delay_s and not is_answered:
            parked = Wait(iteration.path, progress.task or "", delay_s=progress.delay_s)
        return Pass(iteration, progress, parked, is_answered, go.answers.get(key))

    def has_begun(self, path: Path) -> bool:
        """Whether the pass of this iteration began in another run or segment."""
        go, key = self._go, path_key(path)
        return key in go.progress or key in go.answers or key in go.waits

    def open_level(
        self, level: LoopPlan, around: Iteration, stands: LoopProgress | None = None
    ) -> OpenedLevel | ErrorInfo:
        """What a level inside the iteration ``around`` runs over, paged out if it must be."""
        limits = self.command.limits
        opened = open_level(level, self._scope.for_level(around), limits, stands)
        if isinstance(opened, ErrorInfo) or stands is not None:
            return opened
        cut_up = cut(opened, limits, paging=self.command.paging)
        if cut_up is None or isinstance(cut_up, ErrorInfo):
            return cut_up or opened
        pages: list[Page] = []
        first = 0
        for items in cut_up:
            pages.append(Page(first, len(items), self._objects.put(items)))
            first += len(items)
        return OpenedLevel([], opened.at_once, pages)

    def item(self, item: Any) -> Any:
        """The item of a loop, read from its page if that is where it stands."""
        return self._objects[item.page.key][item.index] if isinstance(item, ItemPosition) else item

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _passes(self) -> list[Pass]:
        self._set_out()
        if self.over:
            return []
        return self._loop.passes if self._loop is not None else [self._only] if self._only is not None else []

    @property
    def _ready(self) -> list[Pass]:
        return [one for one in self._passes if one.parked is None]

    def _next(self, path: Path | None = None) -> Pass:
        for one in self._ready:
            if path is None or one.iteration.path == path:
                return one
        raise AssertionError(f"no pass of {self.command.step} can go on{f' at {path}' if path else ''}")

    def _task_of(self, one: Pass) -> TaskPlan:
        return current_task(self._step, one.progress)

    def _inputs_of(self, one: Pass) -> dict[str, Any]:
        task = self._task_of(one)
        rendered = render(task.inputs, self._scope.for_inputs(task, one.progress, one.iteration, {}))
        return {**rendered, **task.verbatim}

    def _set_out(self) -> None:
        """Looks where the step run stands. What is to be reported of that waits for :meth:`begin`."""
        if self._begun or self.over:
            return
        self._begun = True
        command, go = self.command, self._go
        if go.ctx:
            self._scope.patch_ctx(go.ctx)
        self._vars = go.vars or command.vars
        chain = [self.item(command.places.get(depth, item)) for depth, item in enumerate(command.chain)]
        around = iteration_around(self._step, command, chain)
        if command.path:
            self.say(LoopIterationStarted(command.path, WORKER))
        elif command.items is None:
            self.say(StepStarted(WORKER))
        if command.paging:
            self._page_out(around)
            return
        if command.items is None:
            self._only = self.begin_pass(around)
        else:
            level = level_at(self._step, len(command.path))
            at_once = 1 if level.mode == "sequential" else command.max_in_flight
            opened = OpenedLevel(command.items, at_once, command.pages)
            is_new = not (go.progress or go.answers or go.waits) and go.loop in (None, LoopProgress())
            self._loop = ScriptedLoop(self, command.step_run_id, level, around, opened, go.loop, is_new=is_new)
        self._look()

    def _page_out(self, around: Iteration) -> None:
        self.over = True
        opened = self.open_level(level_at(self._step, len(self.command.path)), around)
        if isinstance(opened, ErrorInfo):
            self.say(self._ending(opened))
        else:
            self.say(LoopPagedOut(opened.total, list(opened.pages), opened.at_once, self.command.path))

    def _attempt(self, one: Pass, task: TaskPlan, result: Any, error: ErrorInfo | None) -> Outcome | Wait:
        if error is None and (result is ARGS or task.kind in SUSPENDING_KINDS):
            try:
                inputs = self._inputs_of(one)
            except ExpressionError as failure:
                return Outcome("error", error=ErrorInfo("expression_error", str(failure)))
            if task.kind in SUSPENDING_KINDS:
                return _wait(task, inputs, one.iteration.path)
            return Outcome("ok", self._objects.keep(inputs.get("args") or {}))
        if error is not None:
            return Outcome("error", self._objects.keep(None if result is ARGS else result), error)
        return Outcome("ok", self._objects.keep(result))

    def _park(self, one: Pass, wait: Wait) -> None:
        one.parked = wait
        self._look()

    def _end_pass(self, one: Pass, error: ErrorInfo | None) -> None:
        if self._loop is None:
            self._end_command(error)
            return
        self._vars = one.progress.vars
        self._loop.take(one.iteration.path, error)
        self._look()

    def _look(self) -> None:
        """Ends the run if its loop has ended or nothing can go on here."""
        if self._loop is not None and self._loop.ended:
            self.over = True
        elif not self._ready:
            waits = [one.parked for one in self._passes if one.parked is not None]
            self.over = True
            self.say(StepSuspended(waits, self.pausing and self._loop is not None))

    def _end_command(self, error: ErrorInfo | None) -> None:
        self.over = True
        self._tell(self._ending(error))

    def _ending(self, error: ErrorInfo | None) -> Fact:
        path, step_run_id = self.command.path, self.command.step_run_id
        if path:
            return LoopIterationDone(path) if error is None else LoopIterationFailed(path, error)
        return StepDone(step_run_id) if error is None else StepFailed(step_run_id, error)

    def _tell(self, fact: Fact) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        self._tell_fold(RecordedFact(fact, self.run, number))


def _wait(task: TaskPlan, inputs: dict[str, Any], path: Path) -> Wait:
    """What the task waits for, as a worker would say it; the called playbook's digest is imaginary."""
    total_s = task.timeouts.total
    if task.kind == "playbook":
        call = PlaybookInputs.model_validate(inputs)
        child = ChildCall(f"digest of {call.path}", call.path, call.version, call.args or {}, call.return_step)
        return Wait(path, task.name, child=child, timeout_s=total_s)
    wait = WaitInputs.model_validate(inputs)
    timeout_s = wait.timeout_s if total_s is None or wait.timeout_s is None else min(wait.timeout_s, total_s)
    return Wait(
        path=path,
        task=task.name,
        delay_s=None,
        for_s=wait.for_s,
        until_ms=wait.until_ms,
        signal=wait.signal,
        child=None,
        timeout_s=timeout_s,
    )
