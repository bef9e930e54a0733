"""A run of one command by an imaginary worker: tool outcomes come from the test, everything else is real."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.runner.lanes import (
    Action,
    Evaluate,
    LoadPage,
    LoadReference,
    Output,
    ReportFacts,
    RunTask,
    StorePage,
    Withdraw,
)
from noetl_stream.engine.runner.runner import CommandRunner, end_of
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import ChildCall, Fact, Path, StepClaimed, StepSuspended, TaskStarted, Wait
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import Drop, Go, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS, Kinds, PlaybookInputs, WaitInputs
from noetl_stream.playbook.plan import Plan, TaskPlan
from noetl_stream.template import ExpressionError, render
from noetl_testkit.scenario.objects import Objects

WORKER: Final = "an imaginary worker"

ARGS: Final = object()
"""As a task's result: its rendered ``args``, as ``kind: noop`` returns them."""

Sink = Callable[[RecordedFact], Any]
"""Receives the events that a run reports, one at a time."""


class ScriptedRun:
    """One run of one command (PROTOCOL §3): drives its runner, as the test says.

    A short retry delay ends at once; a long one, ``kind: wait`` and ``kind: playbook`` suspend the command once
    nothing else can run.

    Args:
        command: As the server built it.
        sink: Where the run's events go, numbered without holes.
        num_delivered: Which delivery of the command this is; a later one has the higher rank.
        objects: Where results and pages are put, and where templates and loops read them.

    Attributes:
        over: Whether the run has ended or was told to drop the command.
    """

    def __init__(
        self,
        plan: Plan,
        kinds: Kinds,
        command: StepCommand,
        sink: Sink,
        *,
        num_delivered: int = 1,
        nonce: str = "n",
        objects: Objects,
    ) -> None:
        self.command = command
        self.run = RunId(command.command_id, command.issue, num_delivered, nonce)
        self.over = False
        self._plan = plan
        self._kinds = kinds
        self._sink = sink
        self._objects = objects
        self._go = command.resume or Go(next_number=0)
        self._next_number = 0
        self._runner: CommandRunner | None = None
        self._tasks: dict[Path, RunTask] = {}
        self._started: dict[Path, TaskStarted] = {}
        self._unreported: list[Fact] = []

    def claim(self) -> None:
        """Asks whether it may run; :meth:`answered` takes the answer."""
        self._sink(RecordedFact(StepClaimed(), self.run, 0))

    def give_back(self, why: str) -> None:
        """Reports that a task could not begin, and that its command goes back to the queue."""
        self._sink(RecordedFact(StepClaimed(why), self.run, self._next_number))

    def answered(self, answer: Go | Drop) -> None:
        """Continues from the progress in the answer, or drops the command."""
        if isinstance(answer, Drop):
            self.over = True
            return
        self._go = answer
        self._next_number = answer.next_number

    @property
    def ready(self) -> list[Path]:
        """The iterations whose pipelines can run a task now: ``()`` outside loops."""
        self._get_runner()
        return sorted(self._tasks)

    @property
    def task(self) -> str:
        """The name of the next task, in the first of those pipelines."""
        return self._next().task.name

    @property
    def path(self) -> Path:
        """The iteration of that pipeline."""
        return self._next().iteration.path

    def next_attempt(self, path: Path) -> tuple[str, int]:
        """The next task of this iteration, and which attempt of it that is."""
        action = self._next(path)
        return action.task.name, action.progress.attempt

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the tool of the next task.

        Raises:
            ExpressionError: they cannot be evaluated.
        """
        return self._inputs_of(self._next())

    def begin(self) -> None:
        """Reports that it has started; does nothing the second time. Everything that runs a task implies it."""
        if not self.over:
            self._get_runner()
        unreported, self._unreported = self._unreported, []
        for fact in unreported:
            self.report(fact)

    def answer(self, result: Any = ARGS, *, error: ErrorInfo | None = None, path: Path | None = None) -> None:
        """Runs the next task (of the iteration ``path``) once, with this result, or with this error and then without a
        result unless one is given. A task that suspends begins to wait; one whose wait has ended gets its outcome.
        """
        self.begin()
        if self.over:
            raise AssertionError(f"the run of {self.command.step} has ended")
        action = self._next(path)
        here = action.iteration.path
        if here in self._started:
            self.report(self._started.pop(here))
        outcome = action.answer or self._attempt(action, result, error)
        del self._tasks[here]
        self._take(self._get_runner().complete(action.id, outcome))
        self.begin()

    def finish(self, result: Any = ARGS) -> None:
        """Runs what is left, each task with this result, until it ends or must wait."""
        self.begin()
        while not self.over:
            self.answer(result)

    def fail(self, kind: str = "exception", message: str = "it broke") -> None:
        """Fails the next task, and every other one until the run ends."""
        self.begin()
        while not self.over:
            self.answer(error=ErrorInfo(kind, message))

    def stop(self) -> None:
        """Stops, as a worker told to: reports its end as ``cancelled``."""
        self._end(end_of(self.command, self.command.path, ErrorInfo("cancelled", "the run was told to stop")))

    def pause(self) -> None:
        """Pauses, as a worker told to: a local loop begins no further iteration."""
        self._get_runner().pause()

    def suspend(self, *waits: Wait) -> None:
        """Ends the command with its pipelines waiting for this (LANGUAGE §8)."""
        self.begin()
        self._end(StepSuspended(list(waits)))

    def report(self, fact: Fact) -> None:
        """Reports this as its next event."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._sink(RecordedFact(fact, self.run, number))

    # ------------------------------------------------------------------------------------------------------------------

    def _get_runner(self) -> CommandRunner:
        """The runner, begun from the progress of the step run. :meth:`begin` reports what that yields."""
        if self._runner is None:
            self._runner = CommandRunner(
                self._plan, self.command, self._go, kinds=self._kinds, worker=WORKER, references=self._objects
            )
            self._take(self._runner.begin())
        return self._runner

    def _take(self, outputs: list[Output]) -> None:
        """Keeps facts and tasks, and carries out everything else at once, in order.

        A task's start is reported with its outcome, which the test gives.
        """
        runner, line = self._get_runner(), deque(outputs)
        while line:
            output = line.popleft()
            if isinstance(output, ReportFacts):
                self._started |= {fact.path: fact for fact in output.facts if isinstance(fact, TaskStarted)}
                self._unreported += [fact for fact in output.facts if not isinstance(fact, TaskStarted)]
            elif isinstance(output, RunTask):
                self._tasks[output.iteration.path] = output
            else:
                line.extend(runner.complete(output.id, self._result_of(output)))
        self.over = runner.over

    def _result_of(self, action: Action) -> Any:
        match action:
            case LoadPage():
                return self._objects[action.page.key]
            case StorePage():
                return self._objects.put(action.items)
            case LoadReference():
                return ErrorInfo("result_lost", f"object {action.reference.key} does not exist")
            case Evaluate():
                return action.work()
            case Withdraw():
                self._tasks = {path: task for path, task in self._tasks.items() if task.id not in action.ids}
        return None

    def _next(self, path: Path | None = None) -> RunTask:
        for ready in self.ready:
            if path in (None, ready):
                return self._tasks[ready]
        raise AssertionError(f"no iteration of {self.command.step} can continue{f' at {path}' if path else ''}")

    def _inputs_of(self, action: RunTask) -> dict[str, Any]:
        scope = self._get_runner().scope.for_inputs(action.task, action.progress, action.iteration)
        return {**render(action.task.inputs, replace(scope, budget=None)), **action.task.verbatim}

    def _attempt(self, action: RunTask, result: Any, error: ErrorInfo | None) -> Outcome | Wait:
        if error is None and (result is ARGS or action.task.kind in SUSPENDING_KINDS):
            try:
                inputs = self._inputs_of(action)
            except ExpressionError as failure:
                return Outcome("error", error=ErrorInfo("expression_error", str(failure)))
            if action.task.kind in SUSPENDING_KINDS:
                return _wait(action.task, inputs, action.iteration.path)
            return Outcome("ok", self._objects.keep(inputs.get("args") or {}))
        if error is not None:
            return Outcome("error", self._objects.keep(None if result is ARGS else result), error)
        return Outcome("ok", self._objects.keep(result))

    def _end(self, fact: Fact) -> None:
        self.over = True
        self._tasks.clear()
        self.report(fact)


def _wait(task: TaskPlan, inputs: dict[str, Any], path: Path) -> Wait:
    """What the task waits for, as a worker reports it; the digest of a called playbook is imaginary."""
    total_s = task.timeouts.total
    if task.kind == "playbook":
        call = PlaybookInputs.model_validate(inputs)
        child = ChildCall(f"digest of {call.path}", call.path, call.version, call.args or {}, call.return_step)
        return Wait(path, task.name, child=child, timeout_s=total_s)
    wait = WaitInputs.model_validate(inputs)
    bounds = [seconds for seconds in (wait.timeout_s, total_s) if seconds is not None]
    timeout_s = min(bounds, default=None)
    return Wait(path, task.name, for_s=wait.for_s, until_ms=wait.until_ms, signal=wait.signal, timeout_s=timeout_s)
