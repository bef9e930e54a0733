"""What a worker can do so many times at once, beside the commands that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

Queued = Callable[[], AbstractContextManager[None]]
"""Entered while something waits."""


class Capacity:
    """Up to ``most`` at once; further ones wait in order of arrival.

    Attributes:
        busy: How many there are.
        waiting: How many wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = self.waiting = 0
        self._slots = asyncio.Semaphore(most)

    @property
    def is_full(self) -> bool:
        """Whether the next one would wait."""
        return self._slots.locked()

    @asynccontextmanager
    async def held(self, queued: Queued) -> AsyncIterator[None]:
        """One of them, for as long as the context lasts."""
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
    """A tool whose tasks wait for one another, though their commands have slots of the worker."""

    @property
    def capacity(self) -> Capacity: ...
