"""An event loop on simulated time, which advances only when the loop is idle: hours of a run take milliseconds, and a
seed always yields the same run.

``asyncio.sleep``, ``asyncio.timeout`` and ``loop.call_later`` use that time too. There are no threads: their work
(``asyncio.to_thread``) runs at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from noetl_stream.adapters.clock import START_MS, ManualClock

Value = TypeVar("Value")
ROUNDS_OF_CANCELLING = 20

TURNS_AT_A_MOMENT = 100_000
"""Turns of the loop at one moment of simulated time; more means that a task spins."""

REAL_WORK_S = 60.0


class NothingWouldHappen(RuntimeError):
    """All asyncio tasks wait and none sleeps, or one spins: without this error the loop would hang for ever."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time; pass :attr:`clock` to everything that runs in it.

    Args:
        real_work_s: The time, by a real clock, for which :meth:`real_work` may be silent.
    """

    def __init__(self, seed: int = 0, now_ms: int = START_MS, real_work_s: float = REAL_WORK_S) -> None:
        self.clock = ManualClock(now_ms, seed)
        self._idling = _Idling(self.clock, real_work_s)
        super().__init__(self._idling)
        self.set_default_executor(_AtOnce())

    def time(self) -> float:
        return self.clock.monotonic_s()

    async def until_idle(self) -> None:
        """Waits until no task can proceed without an advance of simulated time."""
        self._idling.idle = self.create_future()
        await self._idling.idle

    async def pass_time(self, until_s: float | None = None) -> None:
        """Advances simulated time to the next due timer, or to ``until_s`` if that is earlier."""
        self._idling.until_s = until_s
        self._idling.passed = self.create_future()
        await self._idling.passed

    @contextmanager
    def real_work(self) -> Iterator[None]:
        """Stops simulated time during the block, for work of threads and processes, which have none."""
        self._idling.real_works += 1
        try:
            yield
        finally:
            self._idling.real_works -= 1


def simulated_loop() -> SimulatedLoop:
    """Returns the running :class:`SimulatedLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def simulated_clock() -> ManualClock:
    """Returns the clock of the running :class:`SimulatedLoop`."""
    return simulated_loop().clock


async def cancel_all_tasks() -> None:
    """Cancels all other tasks of the loop, also those that start meanwhile."""
    for _ in range(ROUNDS_OF_CANCELLING):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.001)


class _Idling(selectors.DefaultSelector):
    """A selector that, instead of waiting, moves the clock to the next due timer.

    Attributes:
        idle: Resolved, once, instead of moving the clock.
        passed: Resolved, once, when the clock has moved; to ``until_s`` at most.
        real_works: The number of running blocks of :meth:`SimulatedLoop.real_work`.
    """

    def __init__(self, clock: ManualClock, real_work_s: float) -> None:
        super().__init__()
        self._clock = clock
        self._real_work_s = real_work_s
        self._turns = 0
        self.idle: asyncio.Future[None] | None = None
        self.passed: asyncio.Future[None] | None = None
        self.until_s: float | None = None
        self.real_works = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._turns += 1
            if self._turns > TURNS_AT_A_MOMENT:
                raise NothingWouldHappen(f"a task spins: {TURNS_AT_A_MOMENT} turns of the loop and no time has passed")
            return ready
        self._turns = 0
        if self.real_works:
            if not (ready := super().select(self._real_work_s)):
                raise NothingWouldHappen(f"nothing was heard of a thread or process for {self._real_work_s:g} s")
            return ready
        if _resolve(self.idle):
            return []
        due = [self._clock.next_waking_s, None if timeout is None else self._clock.monotonic_s() + timeout]
        if self.passed is not None and not self.passed.done():
            due.append(self.until_s)
        moments = [moment for moment in due if moment is not None]
        if not moments:
            raise NothingWouldHappen("every task waits, and none sleeps on the clock")
        self._clock.advance_to(min(moments))
        _resolve(self.passed)
        return []


def _resolve(future: asyncio.Future[None] | None) -> bool:
    """Resolves a future; returns whether this call did."""
    if future is None or future.done():
        return False
    future.set_result(None)
    return True


class _AtOnce(ThreadPoolExecutor):
    """An executor that runs work before ``submit`` returns."""

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        done: Future[Value] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
