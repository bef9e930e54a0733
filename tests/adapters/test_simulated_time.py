"""The loop on simulated time: it says when nothing more happens, passes time so far, and stands still for real work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from noetl_stream.adapters.simulated_time import NothingWouldHappen, SimulatedLoop, simulated_loop


def in_simulated_time(work: Callable[[], Awaitable[Any]], real_work_s: float = 60.0) -> Any:
    loop = SimulatedLoop(real_work_s=real_work_s)

    async def run() -> Any:
        return await work()

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_simulated_time_is_idle_once_nothing_more_can_happen_now() -> None:
    async def work() -> tuple[list[str], float]:
        done = []

        async def other() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            done.append("now")
            await asyncio.sleep(60)
            done.append("later")

        task = asyncio.ensure_future(other())
        await simulated_loop().until_idle()
        seen, at_s = list(done), simulated_loop().time()
        await task
        return seen, at_s

    assert in_simulated_time(work) == (["now"], 0.0)


def test_time_passes_to_the_next_moment_at_most() -> None:
    async def work() -> list[float]:
        loop, moments = simulated_loop(), []
        sleeper = asyncio.ensure_future(asyncio.sleep(60))
        for until_s in (10.0, None, 100.0):
            await loop.pass_time(until_s)
            moments.append(loop.time())
        await sleeper
        return moments

    assert in_simulated_time(work) == [10.0, 60.0, 100.0]


def test_simulated_time_stops_while_a_thread_works() -> None:
    async def work() -> tuple[str, float, bool]:
        loop = simulated_loop()
        sleeper = asyncio.ensure_future(asyncio.sleep(1))
        heard: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(heard.set_result, "done"))
        with loop.real_work():
            thread.start()
            said = await heard
        at_s, is_over = loop.time(), sleeper.done()
        thread.join()
        await sleeper
        return said, at_s, is_over

    assert in_simulated_time(work) == ("done", 0.0, False)


def test_real_work_that_is_not_announced_is_an_error() -> None:
    async def work() -> None:
        with simulated_loop().real_work():
            await asyncio.sleep(1)

    with pytest.raises(NothingWouldHappen, match=r"nothing was heard of a thread or process for 0\.01 s"):
        in_simulated_time(work, real_work_s=0.01)


def test_a_loop_in_which_nothing_can_happen_is_an_error() -> None:
    async def work() -> None:
        await simulated_loop().create_future()

    with pytest.raises(NothingWouldHappen, match="every task waits"):
        in_simulated_time(work)
