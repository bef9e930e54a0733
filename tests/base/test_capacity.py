"""Places for tasks: how many there are, whose turn it is for the next one, and which are spare."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from noetl_stream.concurrency import Capacity, spare_of


class Held:
    """Tasks that hold a place until they are told to end; ``begun`` has their names in the order of their begin."""

    def __init__(self, most: int, spare: int = 0) -> None:
        self.capacity = Capacity(most, spare)
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        """Starts tasks: their namespace is what is before the dot."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await asyncio.sleep(0)

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self.tasks[name]
        await asyncio.sleep(0)

    async def _hold(self, name: str) -> None:
        async with self.capacity.place(contextlib.nullcontext, name.partition(".")[0]):
            self.begun.append(name)
            await self._ends[name].wait()


async def test_tasks_of_one_namespace_begin_in_order_of_arrival() -> None:
    held = Held(2, spare=1)
    await held.start("a.1", "a.2", "a.3", "a.4")
    assert (held.begun, held.capacity.busy, held.capacity.waiting) == (["a.1", "a.2"], 2, 2)
    await held.end("a.2", "a.1")
    assert held.begun == ["a.1", "a.2", "a.3", "a.4"]
    await held.end("a.3", "a.4")
    assert (held.capacity.busy, held.capacity.waiting) == (0, 0)


async def test_the_next_place_goes_to_the_namespace_that_has_the_fewest() -> None:
    held = Held(3)
    await held.start("a.1", "a.2", "b.1", "a.3", "a.4", "b.2", "c.1")
    for name in ("a.1", "a.2", "b.1", "c.1"):
        await held.end(name)
    assert held.begun == ["a.1", "a.2", "b.1", "c.1", "a.3", "b.2", "a.4"]


async def test_a_namespace_without_a_place_gets_a_spare_one_while_another_has_them_all() -> None:
    held = Held(2, spare=1)
    await held.start("a.1", "a.2", "a.3", "b.1", "b.2", "c.1")
    assert held.begun == ["a.1", "a.2", "b.1"]
    await held.end("b.1")
    assert held.begun[3:] == ["b.2"]
    await held.end("b.2")
    assert held.begun[4:] == ["c.1"]


async def test_a_place_that_is_not_spare_goes_to_everybody() -> None:
    held = Held(2, spare=1)
    await held.start("a.1", "a.2", "b.1", "a.3", "c.1")
    await held.end("a.1")
    assert held.begun == ["a.1", "a.2", "b.1", "c.1"]
    await held.end("c.1")
    assert held.begun == ["a.1", "a.2", "b.1", "c.1"]
    await held.end("b.1")
    assert held.begun[4:] == ["a.3"]


async def test_a_task_that_is_cancelled_while_it_waits_keeps_no_turn() -> None:
    held = Held(1)
    await held.start("a.1", "a.2", "a.3")
    held.tasks["a.2"].cancel()
    await held.end("a.1")
    assert held.begun == ["a.1", "a.3"]
    assert (held.capacity.busy, held.capacity.waiting) == (1, 0)


async def test_a_task_that_is_cancelled_as_it_gets_its_place_passes_it_on() -> None:
    held = Held(1)
    await held.start("a.1", "a.2", "a.3")
    held.tasks["a.1"].cancel()
    await asyncio.sleep(0)  # the place is that of a.2 now, which has not gone on yet
    held.tasks["a.2"].cancel()
    for name in ("a.1", "a.2"):
        with pytest.raises(asyncio.CancelledError):
            await held.tasks[name]
    await asyncio.sleep(0)
    assert held.begun == ["a.1", "a.3"]
    assert (held.capacity.busy, held.capacity.waiting) == (1, 0)


@pytest.mark.parametrize(("most", "spare"), [(1, 1), (4, 1), (8, 1), (9, 2), (64, 8)])
def test_there_is_a_spare_place_for_eight_others(most: int, spare: int) -> None:
    assert spare_of(most) == spare
