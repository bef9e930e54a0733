"""Places in a tool: how many of its tasks run at once. The others wait for one, and are seen waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from noetl_stream.telemetry.measures import Metric
from noetl_stream.tools.contract import ToolCall, ToolFailure

WAITING: Final = Metric(
    "gauge", "noetl_worker_tasks_waiting", "Tasks that wait for others of their kind to end.", ("kind",)
)


class Places:
    """A number of places for tasks, which wait in order of arrival.

    Args:
        size: How many tasks may hold one at once.
        what: What a place is, for messages: ``database connection``.
    """

    def __init__(self, size: int, what: str) -> None:
        self.waiting = 0
        self._size = size
        self._what = what
        self._free = asyncio.Semaphore(size)

    @contextlib.asynccontextmanager
    async def held(self, call: ToolCall, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Holds a place. Waiting for one is no failure: it ends with the task's own timeout.

        Args:
            timeout_s: Ends the wait earlier, if the author says so.

        Raises:
            ToolFailure: ``timeout`` after ``timeout_s``.
        """
        if self._free.locked():
            call.write("worker", f"waits for a {self._what} ({self._size} in use)\n".encode())
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._free.acquire()
        except TimeoutError:
            message = f"no {self._what} within {timeout_s:g} s ({self._size} in use)"
            raise ToolFailure.of("timeout", message, retryable=True) from None
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()
