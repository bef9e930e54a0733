"""A loop that runs in one worker under one lease, one after the other or several at once (LANGUAGE §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepFailed,
)
from noetl_stream.model.messages import Go, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import StepPlan
from noetl_stream.worker.pipeline_run import PipelineRun
from noetl_stream.worker.report import Reporter
from noetl_stream.worker.scope import iteration_of


class _LoopBroken(Exception):
    """An iteration failed and the loop is ``fail_fast``."""


class LocalLoop:
    """One run of a local loop, from the beginning or from where another run of it got to."""

    def __init__(
        self, step: StepPlan, command: StepCommand, go: Go, pipeline: PipelineRun, reporter: Reporter, worker: str
    ) -> None:
        assert step.loop is not None and command.items is not None
        self._step = step
        self._command = command
        self._items = command.items
        self._go = go
        self._pipeline = pipeline
        self._reporter = reporter
        self._worker = worker
        self._fail_fast = step.loop.failure_mode == "fail_fast"
        self._sequential = step.loop.mode == "sequential"
        self._ok = len(go.done)
        self._failed = len(go.failed)
        self._first: ErrorInfo | None = None
        self._vars = go.vars
        if go.failed:
            index = min(go.failed)
            self._first = msgspec.structs.replace(go.failed[index], index=index)

    async def run(self) -> None:
        """Runs what is left of the loop and adds the fact that ends it. Cancelled, it ends its iterations first."""
        go, count = self._go, len(self._items)
        if not (go.done or go.failed or go.progress):
            at_once = self._command.max_in_flight
            self._reporter.add(LoopStarted(self._command.step_run_id, count, max_in_flight=at_once, local=True))
        ended = go.failed.keys() | set(go.done)
        left = iter([index for index in range(count) if index not in ended])
        if not (self._fail_fast and self._first):
            at_once = 1 if self._sequential else max(1, self._command.max_in_flight)
            if at_once == 1:
                await self._run_in_order(left)
            else:
                await self._run_at_once(left, min(at_once, count))
        self._reporter.add(self._end(count))

    def _end(self, count: int) -> Fact:
        step_run_id = self._command.step_run_id
        if self._fail_fast and self._first is not None:
            return StepFailed(step_run_id, self._first)
        return LoopDone(step_run_id, count, self._ok, self._failed, count - self._ok - self._failed)

    async def _run_in_order(self, left: Iterator[int]) -> None:
        try:
            for index in left:
                await self._iterate(index)
        except _LoopBroken:
            return

    async def _run_at_once(self, left: Iterator[int], at_once: int) -> None:
        """So many runners share what is left; the first failure of a ``fail_fast`` loop ends them all."""

        async def take_turns() -> None:
            for index in left:
                await self._iterate(index)

        runners = [asyncio.ensure_future(take_turns()) for _ in range(at_once)]
        try:
            await asyncio.wait(runners, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for runner in runners:
                runner.cancel()
            if runners:
                await asyncio.wait(runners)
        for runner in runners:
            error = None if runner.cancelled() else runner.exception()
            if error is not None and not isinstance(error, _LoopBroken):
                raise error

    async def _iterate(self, index: int) -> None:
        """One iteration. In a sequential loop ``vars`` pass from each to the next.

        Raises:
            _LoopBroken: it failed and that ends the loop.
        """
        iteration = iteration_of(self._step, index, self._items[index], len(self._items))

        def ending(error: ErrorInfo | None) -> Fact:
            path = iteration.path
            return LoopIterationDone(path) if error is None else LoopIterationFailed(path, error)

        progress = self._go.progress.get(index) or Progress(vars=self._vars)
        self._reporter.add(LoopIterationStarted(iteration.path, self._worker))
        progress, error = await self._pipeline.run(progress, iteration, ending)
        if self._sequential:
            self._vars = progress.vars
        if error is None:
            self._ok += 1
            return
        self._failed += 1
        if self._first is None:
            self._first = msgspec.structs.replace(error, index=index)
        if self._fail_fast:
            raise _LoopBroken
