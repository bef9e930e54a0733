"""An event loop whose time advances only when it is idle: hours of a run take milliseconds, and a seed always yields
the same run.

``asyncio.sleep``, ``asyncio.timeout`` and ``loop.call_later`` use that time too. There are no threads: work for one
(``asyncio.to_thread``) runs at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from noetl_stream.adapters.clock import ManualClock

Value = TypeVar("Value")
ROUNDS_OF_CANCELLING = 20

TURNS_AT_A_MOMENT = 100_000
"""Turns of the loop within one moment of simulated time; more means a task spins."""


class NothingWouldHappen(RuntimeError):
    """All tasks wait and none sleeps, or a task spins: without this error the loop would hang for ever."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop on simulated time; pass :attr:`clock` to everything that runs in it."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(seed=seed)
        super().__init__(_Idling(self.clock))
        self.set_default_executor(_AtOnce())

    def time(self) -> float:
        return self.clock.monotonic_s()


def simulated_clock() -> ManualClock:
    """The clock of the running :class:`SimulatedLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop.clock


async def cancel_all_tasks() -> None:
    """Cancels all other tasks of the loop, those that start meanwhile too."""
    for _ in range(ROUNDS_OF_CANCELLING):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.001)


class _Idling(selectors.DefaultSelector):
    """Instead of waiting, moves the clock to the next moment at which something is due."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._turns += 1
            if self._turns > TURNS_AT_A_MOMENT:
                raise NothingWouldHappen(f"a task spins: {TURNS_AT_A_MOMENT} turns of the loop and no time has passed")
            return ready
        self._turns = 0
        due = [self._clock.next_waking_s, None if timeout is None else self._clock.monotonic_s() + timeout]
        moments = [moment for moment in due if moment is not None]
        if not moments:
            raise NothingWouldHappen("every task waits, and none sleeps on the clock")
        self._clock.advance_to(min(moments))
        return []


class _AtOnce(ThreadPoolExecutor):
    """Runs work before ``submit`` returns."""

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        done: Future[Value] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
