"""Drives one pass of a step's pipeline: run a task, decide, record both at once, go where the decision says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noetl_stream.engine.pipeline import current_task, decide_task, fail_task
from noetl_stream.engine.progress import advance_progress
from noetl_stream.model.events import Fact, TaskProcessed, TaskStarted
from noetl_stream.model.messages import Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.plan import StepPlan, TaskPlan
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.attempt import Attempts, resolved
from noetl_stream.worker.limits import TURNS_PER_YIELD
from noetl_stream.worker.report import Reporter
from noetl_stream.worker.results import ReferenceLost, RunResults
from noetl_stream.worker.scope import NOTHING_SEEN, Iteration, RunScope

Ending = Callable[[ErrorInfo | None], Fact]
"""The fact that ends a pass: that it went well, or its error."""


class PipelineRun:
    """The pipeline of one step run; a local loop drives several passes of it, in parallel too."""

    def __init__(
        self,
        step: StepPlan,
        command: StepCommand,
        attempts: Attempts,
        scope: RunScope,
        results: RunResults,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._step = step
        self._command = command
        self._attempts = attempts
        self._scope = scope
        self._results = results
        self._reporter = reporter
        self._clock = clock
        self._turns = 0

    async def run(self, progress: Progress, iteration: Iteration, ending: Ending) -> tuple[Progress, ErrorInfo | None]:
        """Runs from where ``progress`` stands to the end: where it stands then, and the error if it failed.

        The last task's fact and that of ``ending`` go out in one report, so that no journal holds a pipeline that is
        over but has not ended.
        """
        while True:
            if progress.delay_s > 0:
                await self._clock.sleep(progress.delay_s)
            await self._give_way()
            task = current_task(self._step, progress)
            self._reporter.add(TaskStarted(task.name, progress.attempt, iteration.path))
            outcome = await self._attempts.run(task, progress, iteration)
            fact = await self._decide(task, progress, iteration, outcome)
            progress = advance_progress(progress, fact)
            if fact.set_ctx:
                self._scope.patch_ctx(fact.set_ctx)
            if fact.to is None:
                self._reporter.add(fact, ending(fact.error))
                return progress, fact.error
            self._reporter.add(fact)

    async def _decide(
        self, task: TaskPlan, progress: Progress, iteration: Iteration, outcome: Outcome
    ) -> TaskProcessed:
        path, limits = iteration.path, self._command.limits
        if task.policy is None:
            return decide_task(self._step, progress, outcome, NOTHING_SEEN, seed="", limits=limits, path=path)
        scope = self._scope.for_policy(task, progress, iteration, outcome)
        seed = f"{self._command.command_id}{path}"
        try:
            return await resolved(
                self._results,
                lambda: decide_task(self._step, progress, outcome, scope, seed=seed, limits=limits, path=path),
            )
        except ReferenceLost as error:
            return fail_task(task, progress, outcome, f"the policy of task {task.name}: {error}", path)

    async def _give_way(self) -> None:
        """Lets others run now and then, and waits while too much is unreported: no tool needs to wait for anything."""
        self._turns += 1
        if self._turns % TURNS_PER_YIELD == 0:
            await asyncio.sleep(0)
        if self._reporter.crowded:
            await self._reporter.room()
