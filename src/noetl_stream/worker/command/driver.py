"""Drives the runner of one command: calls tools and stores, sleeps, and reports facts (DESIGN §5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, TypeVar, assert_never

from noetl_stream.engine.runner.lanes import (
    Action,
    Evaluate,
    LoadPage,
    LoadReference,
    Output,
    ReportFacts,
    RunTask,
    Sleep,
    StorePage,
    Withdraw,
)
from noetl_stream.engine.runner.straight import Runner
from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import encoded
from noetl_stream.worker.command.attempt import Attempts
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.command.results import ReferenceUnavailable, RunResults, StorageExhausted
from noetl_stream.worker.worker_limits import TURNS_PER_YIELD

Value = TypeVar("Value")


class Driver:
    """Performs the actions of one command's runner, as many concurrently as it asks for."""

    def __init__(
        self, runner: Runner, attempts: Attempts, results: RunResults, reporter: Reporter, clock: Clock
    ) -> None:
        self._runner = runner
        self._attempts = attempts
        self._results = results
        self._reporter = reporter
        self._clock = clock
        self._turns = 0
        self._queue: deque[Action] = deque()
        self._in_progress: dict[int, asyncio.Task[None]] = {}
        self._is_starting = False

    async def run(self, current: asyncio.Task[None]) -> None:
        """Performs actions until the runner of the command is done. If ``current``, which awaits this call, is
        cancelled, the actions in progress end first.
        """
        queue = self._queue
        self._take(self._runner.begin())
        while queue:
            if len(queue) > 1:
                async with asyncio.TaskGroup() as group:
                    self._start(group)
            else:
                # No other action is in progress that could withdraw it, so it needs no task of its own.
                action = queue.popleft()
                self._take(self._runner.complete(action.id, await self._perform(action, current)))
        assert self._runner.over, "a runner that is not over has an action in progress"

    def _take(self, outputs: list[Output]) -> None:
        """Adds facts to the report and actions to the queue."""
        for output in outputs:
            if isinstance(output, ReportFacts):
                self._reporter.add(*output.facts)
                for fact in output.facts:
                    if type(fact) is TaskProcessed and fact.do == "retry":
                        self._attempts.log.retried(fact)
            else:
                self._queue.append(output)

    def _start(self, group: asyncio.TaskGroup) -> None:
        self._is_starting = True
        group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Performs queued actions until the queue is empty; starts another task if more are queued.

        There are as many asyncio tasks as actions in progress at the same time, not one per action.
        """
        self._is_starting = False
        task = asyncio.current_task()
        assert task is not None
        while self._queue:
            action = self._queue.popleft()
            if self._queue and not self._is_starting:
                self._start(group)
            self._in_progress[action.id] = task
            try:
                result = await self._perform(action, task)
            finally:
                del self._in_progress[action.id]
            self._take(self._runner.complete(action.id, result))

    async def _perform(self, action: Action, current: asyncio.Task[None]) -> Any:
        """Performs the action within the asyncio task ``current``; returns its result for the runner."""
        match action:
            case RunTask():
                self._turns += 1
                if self._turns % TURNS_PER_YIELD == 0 or self._reporter.is_full:
                    await self._yield()
                return await self._attempts.run(action, current)
            case Sleep():
                await (self._clock.sleep(action.seconds) if action.seconds else self._yield())
            case LoadReference():
                return await _or_error(self._results.load(action.reference))
            case LoadPage():
                return await _or_error(self._results.page(action.page))
            case Evaluate():
                return await self._attempts.evaluate(action.work)
            case StorePage():
                return await _or_error(self._results.store(await encoded(action.items)))
            case Withdraw():
                await self._withdraw(action)
            case _:
                assert_never(action)
        return None

    async def _withdraw(self, action: Withdraw) -> None:
        """Cancels the named actions of the runner that are still in progress."""
        tasks = [self._in_progress[number] for number in action.ids if number in self._in_progress]
        for task in tasks:
            if not task.cancelling():  # a second cancellation would interrupt its cleanup
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _yield(self) -> None:
        """Lets other asyncio tasks run, since a tool may never await, and waits while too much is unreported."""
        await asyncio.sleep(0)
        if self._reporter.is_full:
            await self._reporter.wait_for_room()


async def _or_error(moving: Awaitable[Value]) -> Value | ErrorInfo:
    try:
        return await moving
    except (ReferenceUnavailable, StorageExhausted) as error:
        return ErrorInfo(error.kind, str(error))
