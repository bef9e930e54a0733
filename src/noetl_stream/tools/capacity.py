"""Bounds on the concurrent work of a worker's tools, in addition to the slots of its commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

Queued = Callable[[], AbstractContextManager[None]]
"""A context that is entered while a task waits."""


class Capacity:
    """Up to ``most`` places for tasks; further tasks wait in order of arrival.

    Attributes:
        busy: The number of places taken.
        waiting: The number of waiting tasks.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = self.waiting = 0
        self._slots = asyncio.Semaphore(most)

    @property
    def is_full(self) -> bool:
        """Whether the next task would wait."""
        return self._slots.locked()

    @asynccontextmanager
    async def place(self, queued: Queued) -> AsyncIterator[None]:
        """Holds a place for a task during the context; ``queued`` is entered while it waits."""
        if self.is_full:
            self.waiting += 1
            try:
                with queued():
                    await self._slots.acquire()
            finally:
                self.waiting -= 1
        else:
            await self._slots.acquire()
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self._slots.release()


@runtime_checkable
class Bounded(Protocol):
    """A tool whose tasks wait for places of their own, although their commands have slots of the worker."""

    @property
    def capacity(self) -> Capacity: ...
