"""The straight path: one task that can neither wait nor be retried runs without the lanes of the general runner.

Most steps of most playbooks are such runs. A property test checks that both runners give the same outputs.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from noetl_stream.engine.pipeline import decide_task
from noetl_stream.engine.runner.lanes import IllegalInput, Output, ReportFacts, RunTask
from noetl_stream.engine.runner.runner import CommandRunner, end_of
from noetl_stream.engine.runner.scope import NOTHING_SEEN, OUTSIDE, RunScope
from noetl_stream.model.events import StepStarted, TaskStarted
from noetl_stream.model.messages import Go, Progress, StepCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS, Kinds
from noetl_stream.playbook.plan import Plan
from noetl_stream.template.runtime.scope import References

_RUN: Final = 1

FROM_THE_START: Final = Go()


def is_straight(plan: Plan, command: StepCommand, go: Go) -> bool:
    """Whether the command runs one task without policy from the beginning, outside loops."""
    tasks = plan.steps[command.step].tasks
    if len(tasks) != 1 or tasks[0].policy is not None or tasks[0].kind in SUSPENDING_KINDS:
        return False
    if tasks[0].limit is not None:
        return False
    return command.items is None and not command.path and not command.paging and go == FROM_THE_START


def runner_of(plan: Plan, command: StepCommand, go: Go, *, kinds: Kinds, worker: str, references: References) -> Runner:
    """The runner for this run. The arguments are those of :class:`CommandRunner`."""
    if is_straight(plan, command, go):
        return StraightRunner(plan, command, kinds=kinds, worker=worker, references=references)
    return CommandRunner(plan, command, go, kinds=kinds, worker=worker, references=references)


class StraightRunner:
    """A :class:`CommandRunner` for a command that :func:`is_straight`; it reports at the beginning and at the end."""

    def __init__(self, plan: Plan, command: StepCommand, *, kinds: Kinds, worker: str, references: References) -> None:
        self.scope = RunScope(plan, command, kinds, references)
        self.over = False
        self._step = plan.steps[command.step]
        self._command = command
        self._worker = worker
        self._progress: Progress | None = None

    def begin(self) -> list[Output]:
        if self._progress is not None:
            raise IllegalInput("the run has begun")
        task, self._progress = self._step.tasks[0], Progress(vars=self._command.vars)
        started = ReportFacts((StepStarted(self._worker), TaskStarted(task.name)))
        return [started, RunTask(_RUN, task, self._progress, OUTSIDE)]

    def complete(self, action_id: int, result: Any) -> list[Output]:
        progress, command = self._progress, self._command
        if progress is None or self.over or action_id != _RUN:
            raise IllegalInput(f"no action {action_id} is under way: it has ended, or was never handed out")
        if not isinstance(result, Outcome):
            raise IllegalInput(f"a task that cannot wait cannot be completed with {result!r}")
        self.over = True
        fact = decide_task(self._step, progress, result, NOTHING_SEEN, seed="", limits=command.limits)
        return [ReportFacts((fact, end_of(command, (), fact.error)))]

    def pause(self) -> None:
        """Does nothing: a pause has no effect outside loops."""


Runner: TypeAlias = CommandRunner | StraightRunner
