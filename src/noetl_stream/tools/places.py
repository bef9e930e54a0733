"""Places for tasks of a tool, with waits shown by ``why``, the log and a metric."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from noetl_stream.telemetry.measures import Metric
from noetl_stream.tools.capacity import Capacity
from noetl_stream.tools.contract import ToolCall, ToolFailure

WAITING: Final = Metric(
    "gauge", "noetl_worker_tasks_waiting", "Tasks that wait for others of their kind to end.", ("kind",)
)


class Places(Capacity):
    """A number of places for tasks.

    Args:
        what: The name of a place, for messages: ``database connection``.
    """

    def __init__(self, most: int, what: str) -> None:
        super().__init__(most)
        self._what = what

    @contextlib.asynccontextmanager
    async def held_for(self, call: ToolCall, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Holds a place for a task. A wait for one is no failure: the task's own timeout ends it.

        Args:
            timeout_s: The author's timeout of the wait alone, if any.

        Raises:
            ToolFailure: ``timeout`` after ``timeout_s``.
        """
        async with contextlib.AsyncExitStack() as holding:
            try:
                async with asyncio.timeout(timeout_s):
                    await holding.enter_async_context(self.place(partial(self._wait_notice, call)))
            except TimeoutError:
                message = f"no {self._what} within {timeout_s:g} s ({self.most} in use)"
                raise ToolFailure.of("timeout", message, retryable=True) from None
            yield

    def _wait_notice(self, call: ToolCall) -> contextlib.AbstractContextManager[None]:
        call.write("worker", f"waits for a {self._what} ({self.most} in use)\n".encode())
        return call.queued(f"a {self._what}: {self.most} of {self.most} in use")
