"""Drives one pass of a step's pipeline: run a task, decide, record both at once, go where the decision says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from noetl_stream.engine.evolve.progress import advance_progress
from noetl_stream.engine.pipeline.local_loops import OpenedLevel, cut, open_level
from noetl_stream.engine.pipeline.policy import current_task, decide_task, fail_task
from noetl_stream.model import codec
from noetl_stream.model.events import Fact, Path, TaskProcessed, TaskStarted, Wait
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand, path_key
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import ItemPosition
from noetl_stream.playbook.plan import LoopPlan, StepPlan, TaskPlan
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.command.attempt import Attempts, resolved
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.command.results import ReferenceUnavailable, RunResults
from noetl_stream.worker.command.scope import NOTHING_SEEN, Iteration, RunScope
from noetl_stream.worker.limits import MAX_WAITS_BYTES, TURNS_PER_YIELD

Ending = Callable[[ErrorInfo | None], Fact]
"""The fact that ends a pass: that it went well, or its error."""


class Standstill(NamedTuple):
    """Where a pass stands when it does not go on here: at its end, well or with ``error``, or at a ``wait``."""

    progress: Progress
    error: ErrorInfo | None = None
    wait: Wait | None = None


class PipelineRun:
    """The pipeline of one step run; a local loop drives several passes of it, in parallel too.

    Args:
        go: Where passes that had begun in another run, or before a suspension, go on.
    """

    def __init__(
        self,
        step: StepPlan,
        command: StepCommand,
        go: Go,
        attempts: Attempts,
        scope: RunScope,
        results: RunResults,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._step = step
        self._command = command
        self._go = go
        self._attempts = attempts
        self._scope = scope
        self._results = results
        self._reporter = reporter
        self._clock = clock
        self._turns = 0
        self._goes_on = bool(go.progress or go.answers or go.waits)
        self._waits_bytes = sum(len(codec.encode(wait)) for wait in go.waits.values()) if go.waits else 0

    def has_begun(self, path: Path) -> bool:
        """Whether the pass of this iteration began before this run."""
        go, key = self._go, path_key(path)
        return self._goes_on and (key in go.progress or key in go.answers or key in go.waits)

    def parked(self, path: Path) -> Wait | None:
        """What the pass of this iteration waits for still."""
        return self._go.waits.get(path_key(path)) if self._go.waits else None

    async def open_level(
        self, loop: LoopPlan, around: Iteration, stands: LoopProgress | None = None
    ) -> OpenedLevel | ErrorInfo:
        """What a level inside the iteration ``around`` runs over; where it ``stands`` if it has begun before.

        Too many items for an event, and those a command asks for, are paged out when this returns.
        """
        await self._give_way()
        scope, limits = self._scope.for_level(around), self._command.limits
        try:
            opened = await resolved(self._results, lambda: open_level(loop, scope, limits, stands))
        except ReferenceUnavailable as error:
            return ErrorInfo(error.kind, f"loop: {error}")
        if isinstance(opened, ErrorInfo) or stands is not None:
            return opened
        pages = cut(opened, limits, paging=self._command.paging)
        if pages is None or isinstance(pages, ErrorInfo):
            return pages or opened
        return OpenedLevel([], opened.at_once, await self._results.keep_pages(pages))

    async def item(self, opened: OpenedLevel, index: int) -> Any:
        """An item of a level that has opened.

        Raises:
            ReferenceLost: its page cannot be read.
        """
        item = opened.at(index)
        return await self._results.item(item) if isinstance(item, ItemPosition) else item

    async def run(self, variables: dict[str, Any], iteration: Iteration, ending: Ending) -> Standstill:
        """Runs from where the pass stands until it ends or has to wait.

        The last task's fact and that of ``ending`` go out in one report, so that no journal holds a pipeline that is
        over but has not ended.

        Args:
            variables: ``vars`` of a pass that begins.
        """
        go, key = self._go, path_key(iteration.path) if self._goes_on else ""
        progress = go.progress.get(key) or Progress(vars=variables)
        is_answered, answer = key in go.answers, go.answers.get(key)
        while True:
            task = current_task(self._step, progress)
            if progress.delay_s > 0 and not is_answered:
                wait = Wait(iteration.path, task.name, delay_s=progress.delay_s)
                if progress.delay_s > self._command.limits.inline_delay_s and self._may_wait(wait):
                    return Standstill(progress, wait=wait)
                await self._clock.sleep(progress.delay_s)
            await self._give_way()
            if answer is not None:
                outcome: Outcome | Wait = self._attempts.answered(answer, progress)
            else:
                self._reporter.add(TaskStarted(task.name, progress.attempt, iteration.path))
                outcome = await self._attempts.run(task, progress, iteration)
            is_answered, answer = False, None
            if isinstance(outcome, Wait):
                if self._may_wait(outcome):
                    return Standstill(progress, wait=outcome)
                outcome = self._attempts.answered(_too_much(task), progress)
            fact = await self._decide(task, progress, iteration, outcome)
            progress = advance_progress(progress, fact)
            if fact.set_ctx:
                self._scope.patch_ctx(fact.set_ctx)
            if fact.set_shared and not iteration.path:
                self._scope.share(fact.set_shared)
            if fact.to is None:
                self._reporter.add(fact, ending(fact.error))
                return Standstill(progress, fact.error)
            self._reporter.add(fact)

    def _may_wait(self, wait: Wait) -> bool:
        """Whether what this command waits for still fits one event."""
        size = len(codec.encode(wait))
        if self._waits_bytes + size > MAX_WAITS_BYTES:
            return False
        self._waits_bytes += size
        return True

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
        except ReferenceUnavailable as error:
            failure = ErrorInfo(error.kind, f"the policy of task {task.label}: {error}", task=task.name)
            return fail_task(task, progress, outcome, failure, path)

    async def _give_way(self) -> None:
        """Lets others run now and then, and waits while too much is unreported: no tool needs to wait for anything."""
        self._turns += 1
        if self._turns % TURNS_PER_YIELD == 0:
            await asyncio.sleep(0)
        if self._reporter.crowded:
            await self._reporter.room()


def _too_much(task: TaskPlan) -> Outcome:
    limit = f"what this command waits for is together larger than {MAX_WAITS_BYTES} bytes"
    hint = "hand smaller args to the playbook, or let fewer iterations of the loop run at once"
    return Outcome("error", error=ErrorInfo("limit_exceeded", f"task {task.name}: {limit}; {hint}"))
