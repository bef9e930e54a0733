"""The fitness of a worker for tasks: self-tests after a task could not begin (PROTOCOL §3 *Give back*)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from noetl_stream.concurrency import end_tasks
from noetl_stream.ports.clock import Clock
from noetl_stream.retries import backoff_s
from noetl_stream.tools.contract import OWN_TROUBLE, SelfTested, Tool, beginning
from noetl_stream.worker.waiting import done_within
from noetl_stream.worker.worker_limits import FIRST_TEST_S, LONGEST_TEST_S, TEST_S

log = logging.getLogger(__name__)

_CONNECTIONS: Final = 8
_SCRATCH: Final = bytes(64 * 1024)


class Fitness:
    """Tests a worker that could not begin a task, with backoff, until the task's requirements are met.

    Attributes:
        why_not: The reason why the worker takes no commands; empty while it is fit.
    """

    def __init__(self, tools: Mapping[str, Tool], clock: Clock) -> None:
        self.why_not = ""
        self._tools = tools
        self._clock = clock
        self._kinds: set[str] = set()
        self._noted = asyncio.Event()
        self._paused = asyncio.Event()
        self._fit_s = 0.0
        self._tries = 0

    async def note(self, kind: str, why: str) -> None:
        """Notes that a task of this kind could not begin; returns when the worker has stopped taking commands."""
        if not self.why_not and self._clock.monotonic_s() - self._fit_s > LONGEST_TEST_S:
            self._tries = 0
        self.why_not = why
        self._kinds.add(kind)
        self._noted.set()
        await self._paused.wait()

    async def run(self, pause: Callable[[], Awaitable[None]], resume: Callable[[], None]) -> None:
        """Tests until cancelled; calls ``pause`` when the worker is unfit, and ``resume`` when it is fit again."""
        while True:
            await self._noted.wait()
            await pause()
            self._paused.set()
            while self._kinds:
                await self._clock.sleep(max(FIRST_TEST_S, backoff_s(FIRST_TEST_S, self._tries, LONGEST_TEST_S)))
                self._tries += 1
                await self._test_each()
            self._noted.clear()
            self._paused.clear()
            self.why_not, self._fit_s = "", self._clock.monotonic_s()
            log.info("tasks can begin again: the worker takes commands")
            resume()

    async def _test_each(self) -> None:
        for kind in sorted(self._kinds):
            testing = asyncio.create_task(_test(self._tools[kind]))
            try:
                if not await done_within(self._clock, TEST_S, testing):
                    self.why_not = f"a self-test of {kind} takes longer than {TEST_S:g} s"
                elif (error := testing.exception()) is not None:
                    self.why_not = str(error)
                else:
                    self._kinds.discard(kind)
                    continue
            finally:
                await end_tasks([testing])
            log.warning("%s; tried again later", self.why_not)


async def _test(tool: Tool) -> None:
    """Opens some descriptors, writes some files, and begins what the tool's tasks need.

    Raises:
        WorkerUnfit: One of them cannot be had.
    """
    with beginning("open connections"), contextlib.ExitStack() as closing:
        for _ in range(_CONNECTIONS):
            for end in socket.socketpair():
                closing.enter_context(end)
    with beginning("write a temporary file", OWN_TROUBLE), tempfile.TemporaryFile() as file:
        file.write(_SCRATCH)
    if isinstance(tool, SelfTested):
        await tool.self_test()
