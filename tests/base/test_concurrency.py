"""Waiting for tasks, ending them, and opening something when it is first used."""

from __future__ import annotations

import asyncio

import pytest

from noetl_stream.concurrency import Deferred, end_tasks, first_done, result_until, result_when_ended


class Probe:
    """A coroutine that runs until :attr:`go` is set; ``ended`` says how it ended."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ended = ""

    async def run(self) -> str:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return "result"


async def fail() -> str:
    raise LookupError("no")


async def test_a_future_that_is_done_first_is_returned_and_the_limit_is_cancelled() -> None:
    loop = asyncio.get_running_loop()
    first, other = loop.create_future(), loop.create_future()
    limit = Probe()
    waiting = asyncio.create_task(first_done([first, other], limit.run()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.set_result(1)
    assert await waiting == {first}
    await asyncio.sleep(0)
    assert (limit.ended, other.cancelled()) == ("cancelled", False)


async def test_futures_outlive_the_limit() -> None:
    future = asyncio.get_running_loop().create_future()
    limit = Probe()
    limit.go.set()
    assert await first_done([future], limit.run()) == set()
    assert not future.done()


async def test_a_future_that_was_done_before_wins_without_a_wait() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(LookupError("no"))
    limit = Probe()
    assert await first_done([future], limit.run()) == {future}
    assert limit.ended == ""
    assert isinstance(future.exception(), LookupError)


async def test_a_limit_that_fails_is_reported() -> None:
    future = asyncio.get_running_loop().create_future()
    with pytest.raises(LookupError):
        await first_done([future], fail())


async def test_without_futures_the_limit_is_awaited() -> None:
    limit = Probe()
    limit.go.set()
    assert await first_done([], limit.run()) == set()
    assert limit.ended == "done"


async def test_a_wait_that_is_cancelled_cancels_the_limit_alone() -> None:
    future = asyncio.get_running_loop().create_future()
    limit = Probe()
    waiting = asyncio.create_task(first_done([future], limit.run()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert (limit.ended, future.cancelled()) == ("cancelled", False)


async def test_the_result_of_work_that_ends_in_time() -> None:
    work = Probe()
    work.go.set()
    assert await result_until(work.run(), Probe().run()) == "result"


async def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(LookupError):
        await result_until(fail(), Probe().run())


async def test_work_that_is_late_is_cancelled_and_has_ended() -> None:
    work, limit = Probe(), Probe()
    limit.go.set()
    assert await result_until(work.run(), limit.run()) is None
    assert work.ended == "cancelled"


async def test_shared_work_ends_with_its_last_waiter() -> None:
    work = Probe()
    waiting = asyncio.create_task(result_until(work.run(), Probe().run()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert work.ended == "cancelled"


async def swallow(cancellations: int) -> None:
    """Goes on after this many cancellations, as a library may that is cancelled just when its own wait fails."""
    for _ in range(cancellations):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


async def test_tasks_end_even_if_they_swallow_cancellations() -> None:
    tasks = [asyncio.create_task(swallow(count)) for count in (0, 1, 3)]
    await asyncio.sleep(0)
    await end_tasks(tasks, again_s=0)
    assert [task.cancelled() for task in tasks] == [True, True, True]


async def test_ending_drops_results_and_errors_of_tasks_that_have_ended() -> None:
    tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.wait(tasks)
    await end_tasks(tasks)
    await end_tasks([])
    assert [task.done() for task in tasks] == [True, True]


async def test_an_awaited_task_ends_though_it_swallows_cancellations() -> None:
    assert await result_until(swallow(2), asyncio.sleep(0), again_s=0) is None


async def test_a_caller_that_is_cancelled_still_waits_for_a_task_that_cannot_be() -> None:
    probe = Probe()
    task = asyncio.create_task(probe.run())
    waiting = asyncio.create_task(result_when_ended(task))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    probe.go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert task.result() == "result"


class Line:
    """Something to open: it echoes, and remembers whether it was closed."""

    def __init__(self) -> None:
        self.echo = self
        self.is_closed = False

    async def say(self, word: str, *, times: int = 1) -> str:
        return word * times

    async def close(self) -> None:
        self.is_closed = True


async def test_a_deferred_resource_is_opened_once_at_its_first_use() -> None:
    opened: list[Line] = []

    async def open_line() -> Line:
        await asyncio.sleep(0)
        opened.append(Line())
        return opened[-1]

    line = Deferred(open_line)
    echo = line.part("echo")
    assert opened == []
    assert await asyncio.gather(echo.say("a"), echo.say("b", times=2)) == ["a", "bb"]
    assert await echo.say("c") == "c"
    await line.close()
    assert [one.is_closed for one in opened] == [True]


async def test_a_deferred_resource_that_failed_to_open_is_opened_by_the_next_use() -> None:
    lines = [None, Line()]

    async def open_line() -> Line:
        line = lines.pop(0)
        if line is None:
            raise LookupError("no line")
        return line

    echo = Deferred(open_line).part("echo")
    with pytest.raises(LookupError, match="no line"):
        await echo.say("a")
    assert await echo.say("a") == "a"


async def test_an_unused_deferred_resource_is_closed_without_being_opened() -> None:
    opened: list[Line] = []

    async def open_line() -> Line:
        opened.append(Line())
        return opened[-1]

    await Deferred(open_line).close()
    assert opened == []
