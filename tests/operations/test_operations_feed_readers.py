"""Feeds under readers of all kinds: stuck, late, ahead of the others; and over journals that are deleted."""

from __future__ import annotations

import asyncio

import pytest
from feed_world import each, numbered, some, world
from operations_stage import NO_SECRETS

from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import NotFound, Unreachable, UsageError
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.json import codec
from noetl_stream.operations.feed.live import BATCH_CHARS, PATIENCE_S, LiveFeed


async def test_a_stuck_reader_holds_others_up_once() -> None:
    stage = await world(kept_events=5)
    await stage.grow("a")
    stuck, quick = await stage.one("a", 0), await stage.one("a", 0)
    assert (await some(stuck, 1), await some(quick, 1)) == (["a.1"], ["a.1"])
    begun = asyncio.ensure_future(some(stuck, 1)), asyncio.ensure_future(some(quick, 1))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    await asyncio.gather(*begun)
    began_s = simulated_clock().monotonic_s()
    for position in range(3, 30):
        await stage.grow("a")
        assert await some(quick, 1) == [f"a.{position}"]
    assert simulated_clock().monotonic_s() - began_s <= PATIENCE_S


async def test_a_reader_that_always_lags_is_waited_for_once() -> None:
    stage = await world(kept_events=5)
    await stage.grow("a")
    slow, quick = await stage.one("a", 0), await stage.one("a", 0)
    assert (await some(slow, 1), await some(quick, 1)) == (["a.1"], ["a.1"])

    async def read_slowly() -> None:
        async for _ in slow:
            await asyncio.sleep(0.5)

    dawdling = asyncio.ensure_future(read_slowly())
    first = asyncio.ensure_future(some(quick, 1))
    await asyncio.sleep(0.1)
    began_s = simulated_clock().monotonic_s()
    await stage.grow("a")
    await first
    for position in range(3, 60):
        await stage.grow("a")
        assert await some(quick, 1) == [f"a.{position}"]
    assert simulated_clock().monotonic_s() - began_s <= 2 * PATIENCE_S
    dawdling.cancel()


async def test_a_reader_ahead_of_the_others_receives_nothing_twice() -> None:
    stage = await world()
    first = await stage.all(None)
    waiting = asyncio.ensure_future(some(first, 1))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    await waiting
    waiting = asyncio.ensure_future(some(first, 3))
    await asyncio.sleep(0.1)
    await stage.grow("a", by=2, quietly=True)  # the others have not heard of it yet
    late = await stage.all(None)
    received = asyncio.ensure_future(some(late, 1))
    await waiting_for_news()
    await stage.grow("a")
    assert (await waiting, await received) == (numbered("a", 2, 4), ["a.4"])


async def waiting_for_news() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_reader_receives_nothing_after_the_end() -> None:
    stage = await world()
    await stage.grow("a", by=2)
    await stage.end("a")
    for after in (3, 4, 1_000):
        assert [one.id async for one in await stage.one("a", after)] == []


async def test_a_position_that_does_not_exist_yet_is_refused() -> None:
    stage = await world()
    await stage.grow("a", by=2)
    with pytest.raises(UsageError, match="ends at position 2"):
        await stage.one("a", 3)


@pytest.mark.parametrize("received", [3, 1_000])
async def test_the_feed_of_an_execution_that_is_deleted_ends(received: int) -> None:
    stage = await world()
    await stage.grow("a", by=1_000)
    feed = await stage.one("a", 0)
    await some(feed, received)
    await stage.end("a")
    assert await stage.store.delete_execution("a")
    with pytest.raises(NotFound, match="deleted"):
        while True:
            await anext(feed)


async def test_a_deletion_within_a_tick_hides_only_its_own_events() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    await stage.grow("a", "b", by=3, named="playbook.processed")
    received = [await waiting] + [await anext(feed) for _ in range(3)]
    assert received[-1].event.event_id == "b.1"
    await stage.end("a", by=0)
    assert await stage.store.delete_execution("a")
    elsewhere = LiveFeed(stage.store, stage.ticks, stage.bus, simulated_clock(), NO_SECRETS)
    assert await some(each(await elsewhere.everything(received[-1].id)), 2) == ["b.2", "b.3"]


async def test_no_tick_is_read_again_at_the_end_of_the_feed() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(some(feed, 100))
    await asyncio.sleep(0.1)
    await stage.grow("a", by=100)
    await waiting
    waiting = asyncio.ensure_future(some(feed, 1))
    await asyncio.sleep(10)
    assert stage.ticks.rows == 100
    await stage.grow("a")
    assert (await waiting, stage.ticks.rows) == (["a.101"], 101)


async def test_a_reader_overtaken_by_trimming_gets_an_error() -> None:
    stage = await world(kept_events=5)
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    await waiting
    for _ in range(30):
        await stage.grow("a")
        await asyncio.sleep(PATIENCE_S)
    assert await some(feed, 1) == ["a.2"]
    await stage.ticks.trim(-1_000, 1_000)
    with pytest.raises(UsageError, match="too old"):
        await some(feed, 29)


async def test_the_rest_of_a_tick_is_too_old_too() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    await stage.grow("a", by=2)
    part, whole = await waiting, await anext(feed)
    await stage.ticks.trim(-1_000, 1_000)
    with pytest.raises(UsageError, match="too old"):
        await stage.all(part.id)
    await stage.all(whole.id)


async def test_large_events_come_few_at_a_time() -> None:
    stage = await world()
    large = CtxPatched("request", "ann", patch={"x": "x" * (BATCH_CHARS // 4)})
    await stage.grow("a", by=20, data=codec.encode(large))
    feed = await stage.feed.execution("a", 0)
    sizes: list[int] = []
    while sum(sizes) < 20:
        sizes.append(len(await anext(feed)))
    assert max(sizes) == 3


async def test_readers_share_again_after_a_look_that_failed() -> None:
    stage = await world()
    await stage.grow("a")
    feeds = [await stage.one("a", 0) for _ in range(2)]
    waiting = [asyncio.ensure_future(some(feed, 2)) for feed in feeds]
    await asyncio.sleep(0.1)
    stage.store.away = True
    await asyncio.gather(*waiting, return_exceptions=True)
    stage.store.away = False
    later = [asyncio.ensure_future(some(await stage.one("a", 1), 1)) for _ in range(2)]
    await asyncio.sleep(0.1)
    before = stage.store.looks
    await asyncio.sleep(10)
    assert stage.store.looks - before <= 11
    await stage.grow("a")
    assert [await one for one in later] == [["a.2"]] * 2


async def test_a_look_that_failed_ends_no_later_one() -> None:
    stage = await world()
    await stage.grow("a")
    slow = await stage.one("a", 0)
    await some(slow, 1)
    waiting = asyncio.ensure_future(some(slow, 1))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    await waiting
    stage.store.away = True
    await asyncio.sleep(10)
    stage.store.away = False
    later = [asyncio.ensure_future(some(await stage.one("a", 2), 1))]
    await asyncio.sleep(0.1)
    with pytest.raises(Unreachable):
        await anext(slow)  # only now does it hear of the failure, and leave
    later.append(asyncio.ensure_future(some(await stage.one("a", 2), 1)))
    await asyncio.sleep(0.1)
    before = stage.store.looks
    await asyncio.sleep(10)
    assert stage.store.looks - before <= 11, "the two that came later share one look"
    await stage.grow("a")
    assert [await one for one in later] == [["a.3"]] * 2


async def test_a_defect_in_looking_ends_the_feed_of_everyone() -> None:
    stage = await world()
    await stage.grow("a")
    waiting = [asyncio.ensure_future(anext(await stage.one("a", 1))) for _ in range(2)]
    await asyncio.sleep(0.1)
    stage.store.defect = ZeroDivisionError("a defect")
    for one in waiting:
        with pytest.raises(ZeroDivisionError):
            await one
