"""Loops that run in one worker under one lease: a level, and every level inside it (LANGUAGE §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from noetl_stream.engine.pipeline.local_loops import OpenedLevel
from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepFailed,
    Wait,
)
from noetl_stream.model.messages import Go, LoopProgress, StepCommand
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.worker.command.pipeline import PipelineRun
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.command.results import ReferenceUnavailable
from noetl_stream.worker.command.scope import Iteration, iteration_of


class Halted(NamedTuple):
    """What cannot go on here: its iterations wait for something, or the execution pauses (then maybe for nothing)."""

    waits: list[Wait]


Result = ErrorInfo | Halted | None
"""How an iteration or a level came to stand: it failed, it cannot go on here, it ended well."""


class _LevelBroken(Exception):
    """An iteration failed and its level is ``fail_fast``."""


class _Level:
    """One running level: its items in the iteration ``around`` it, and how many of them have ended how."""

    def __init__(self, plan: LoopPlan, around: Iteration, opened: OpenedLevel, stands: LoopProgress) -> None:
        self.plan = plan
        self.around = around
        self.opened = opened
        self.stands = stands
        self.ok = stands.ok
        self.failed = stands.failed
        self.first_error = stands.first_error
        self.halted = False
        self.waits: list[Wait] = []

    @property
    def is_broken(self) -> bool:
        return self.first_error is not None and self.plan.failure_mode == "fail_fast"

    def left(self) -> Iterator[int]:
        above = frozenset(self.stands.above)
        return (index for index in range(self.stands.low, self.opened.total) if index not in above)

    def take(self, index: int, result: Result) -> None:
        """Counts how the iteration ``index`` came to stand.

        Raises:
            _LevelBroken: it failed and that ends the level.
        """
        if result is None:
            self.ok += 1
        elif isinstance(result, Halted):
            self.halted = True
            self.waits += result.waits
        else:
            self.failed += 1
            if self.first_error is None:
                self.first_error = msgspec.structs.replace(result, index=index)
            if self.is_broken:
                raise _LevelBroken


class LocalLoop:
    """One run of a local loop, from the beginning or from where another run or segment of it got to.

    Args:
        loop: The level whose items the command brings.
        around: The iteration of distributed loops around that level.
        pausing: Whether no further iteration is to begin.
    """

    def __init__(
        self,
        loop: LoopPlan,
        around: Iteration,
        command: StepCommand,
        go: Go,
        pipeline: PipelineRun,
        reporter: Reporter,
        worker: str,
        pausing: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._around = around
        self._command = command
        self._go = go
        self._pipeline = pipeline
        self._reporter = reporter
        self._worker = worker
        self._pausing = pausing
        self._vars = go.vars or command.vars

    async def run(self) -> list[Wait] | None:
        """Runs what is left and adds the fact that ends the loop; or gives what it waits for.

        Cancelled, it ends its iterations first.
        """
        go, command = self._go, self._command
        assert command.items is not None
        at_once = 1 if self._loop.mode == "sequential" else max(1, command.max_in_flight)
        opened = OpenedLevel(command.items, at_once, command.pages)
        if not (go.progress or go.answers or go.waits) and go.loop in (None, LoopProgress()):
            if self._pausing():
                return []
            self._reporter.add(self._started(opened, self._around, with_items=False))
        result = await self._run_level(_Level(self._loop, self._around, opened, go.loop or LoopProgress()))
        return result.waits if isinstance(result, Halted) else None

    async def _run_level(self, level: _Level) -> Result:
        """Runs what is left of the level and adds the fact that ends it."""
        if not level.is_broken:
            await (self._run_in_order(level) if level.opened.at_once == 1 else self._run_at_once(level))
        if level.is_broken:
            assert level.first_error is not None
            self._reporter.add(self._failed(level.around, level.first_error))
            return level.first_error
        if level.halted:
            return Halted(level.waits)
        self._reporter.add(self._done(level))
        return None

    async def _run_in_order(self, level: _Level) -> None:
        try:
            await self._take_turns(level, level.left())
        except _LevelBroken:
            return

    async def _run_at_once(self, level: _Level) -> None:
        """So many runners share what is left; the first failure of a ``fail_fast`` level ends them all."""
        left = level.left()
        most = min(level.opened.at_once, level.opened.total)
        runners = [asyncio.ensure_future(self._take_turns(level, left)) for _ in range(most)]
        if not runners:
            return
        try:
            await asyncio.wait(runners, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for runner in runners:
                runner.cancel()
            await asyncio.wait(runners)
        for runner in runners:
            error = None if runner.cancelled() else runner.exception()
            if error is not None and not isinstance(error, _LevelBroken):
                raise error

    async def _take_turns(self, level: _Level, left: Iterator[int]) -> None:
        """One iteration after the other until none is left, or one has to wait: it stays in flight."""
        for index in left:
            if self._pausing() and not self._has_begun(level, index):
                level.halted = True
                continue
            result = await self._iterate(level, index)
            level.take(index, result)
            if isinstance(result, Halted):
                return

    def _has_begun(self, level: _Level, index: int) -> bool:
        path = (*level.around.path, index)
        return index in level.stands.inner or (level.plan.inner is None and self._pipeline.has_begun(path))

    async def _iterate(self, level: _Level, index: int) -> Result:
        try:
            item = await self._pipeline.item(level.opened, index)
        except ReferenceUnavailable as error:
            lost = ErrorInfo(error.kind, f"loop: {error}")
            self._reporter.add(LoopIterationFailed((*level.around.path, index), lost))
            return lost
        iteration = iteration_of(level.plan, index, item, level.opened.total, level.around)
        if level.plan.inner is None:
            return await self._run_pipeline(iteration)
        stands = level.stands.inner.get(index)
        if stands is None:
            self._reporter.add(LoopIterationStarted(iteration.path, self._worker))
        opened = await self._pipeline.open_level(level.plan.inner, iteration, stands)
        if isinstance(opened, ErrorInfo):
            self._reporter.add(LoopIterationFailed(iteration.path, opened))
            return opened
        if stands is None:
            self._reporter.add(self._started(opened, iteration, with_items=True))
        return await self._run_level(_Level(level.plan.inner, iteration, opened, stands or LoopProgress()))

    async def _run_pipeline(self, iteration: Iteration) -> Result:
        """One pass. In loops that run in order ``vars`` pass from each to the next; others cannot set any."""
        parked = self._pipeline.parked(iteration.path)
        if parked is not None:
            return Halted([parked])

        def ending(error: ErrorInfo | None) -> Fact:
            path = iteration.path
            return LoopIterationDone(path) if error is None else LoopIterationFailed(path, error)

        self._reporter.add(LoopIterationStarted(iteration.path, self._worker))
        stands = await self._pipeline.run(self._vars, iteration, ending)
        self._vars = stands.progress.vars
        return stands.error if stands.wait is None else Halted([stands.wait])

    def _started(self, opened: OpenedLevel, around: Iteration, *, with_items: bool) -> Fact:
        """``with_items``: those of the outermost level stand in the command."""
        items, pages = (opened.items, list(opened.pages)) if with_items else ([], [])
        step_run_id = self._command.step_run_id
        return LoopStarted(
            step_run_id=step_run_id,
            count=opened.total,
            items=items,
            max_in_flight=opened.at_once,
            local=True,
            path=around.path,
            pages=pages,
        )

    def _done(self, level: _Level) -> Fact:
        count, path = level.opened.total, level.around.path
        skipped = count - level.ok - level.failed
        return LoopDone(self._command.step_run_id, count, level.ok, level.failed, skipped, path)

    def _failed(self, around: Iteration, error: ErrorInfo) -> Fact:
        return LoopIterationFailed(around.path, error) if around.path else StepFailed(self._command.step_run_id, error)
