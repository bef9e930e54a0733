"""The clock of the operating system, and a manual one for tests."""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from itertools import count

START_MS = 1_750_000_000_000


class ManualClock:
    """:class:`~noetl_stream.ports.clock.Clock` that only :meth:`advance` moves; random bytes derive from ``seed``."""

    def __init__(self, now_ms: int = START_MS, seed: int = 0) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._seed = seed
        self._draws = count()
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watchers: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), woken))
        await woken

    def random_bytes(self, count: int) -> bytes:
        drawn = b""
        while len(drawn) < count:
            drawn += blake2b(f"{self._seed}.{next(self._draws)}".encode()).digest()
        return drawn[:count]

    @property
    def sleepers(self) -> int:
        """The number of tasks that sleep on this clock."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    @property
    def next_waking_s(self) -> float | None:
        """Returns the time at which the next sleep ends, by :meth:`monotonic_s`; ``None`` if no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance(self, seconds: float) -> None:
        """Advances the clock, then wakes tasks whose sleep has ended."""
        self.advance_to(self._elapsed_s + seconds)

    def advance_to(self, until_s: float) -> None:
        """Advances the clock to this value of :meth:`monotonic_s`."""
        while self._sleepers and self._sleepers[0][0] <= until_s:
            due_s, _, woken = heapq.heappop(self._sleepers)
            self._elapsed_s = max(self._elapsed_s, due_s)
            if not woken.done():
                woken.set_result(None)
        self._elapsed_s = until_s
        for watcher in self._watchers:
            watcher()

    def on_advance(self, watcher: Callable[[], None]) -> None:
        """Calls ``watcher`` after each :meth:`advance` of the clock."""
        self._watchers.append(watcher)


class SystemClock:
    """:class:`~noetl_stream.ports.clock.Clock` over the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
