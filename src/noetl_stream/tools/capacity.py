"""Bounds on the concurrent work of a worker's tools, in addition to the slots of its commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, Protocol, runtime_checkable

from noetl_stream.concurrency import Capacity
from noetl_stream.telemetry.measures import Metric
from noetl_stream.tools.contract import ToolCall, ToolFailure

WAITING: Final = Metric(
    "gauge", "noetl_worker_tasks_waiting", "Tasks that wait for others of their kind to end.", ("kind",)
)


@runtime_checkable
class Bounded(Protocol):
    """A tool whose tasks wait for places of their own, although their commands have slots of the worker."""

    @property
    def capacity(self) -> Capacity: ...


class Places(Capacity):
    """A number of places for tasks.

    Args:
        what: The name of a place, for messages: ``database connection``.
    """

    def __init__(self, most: int, what: str, spare: int = 0) -> None:
        super().__init__(most, spare)
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
                    await holding.enter_async_context(self.place(partial(self._wait_notice, call), call.namespace))
            except TimeoutError:
                message = f"no {self._what} within {timeout_s:g} s ({self.most} in use)"
                raise ToolFailure.of("timeout", message, retryable=True) from None
            yield

    def _wait_notice(self, call: ToolCall) -> contextlib.AbstractContextManager[None]:
        call.write("worker", f"waits for a {self._what} ({self.most} in use)\n".encode())
        return call.queued(f"a {self._what}: {self.most} of {self.most} in use")
