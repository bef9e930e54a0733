"""Events as they happen, for many readers: nothing missed, nothing twice, nothing kept without bound."""

from __future__ import annotations

import asyncio

import pytest
from feed_world import numbered, some, world

from noetl_stream.errors import NotFound, Unreachable, UsageError


async def test_history_comes_first_then_what_happens() -> None:
    stage = await world()
    await stage.grow("a", by=3)
    feed = await stage.one("a", 1)
    assert await some(feed, 2) == numbered("a", 2, 3)
    waiting = asyncio.ensure_future(some(feed, 2))
    await asyncio.sleep(0)
    await stage.grow("a")
    await stage.grow("a")
    assert await waiting == numbered("a", 4, 5)


async def test_an_event_committed_between_history_and_live_comes_once() -> None:
    stage = await world()
    await stage.grow("a", by=2)
    feed = await stage.one("a", 0)
    received = []
    for _ in range(50):
        received += await some(feed, 1)
        await stage.grow("a")
    assert received == numbered("a", 1, 50)


async def test_news_that_is_lost_costs_time_and_no_event() -> None:
    stage = await world()
    await stage.grow("a")
    feed = await stage.one("a", 0)
    await some(feed, 1)
    waiting = asyncio.ensure_future(some(feed, 1))
    await asyncio.sleep(0)
    await stage.grow("a", quietly=True)
    assert await waiting == ["a.2"]


async def test_readers_at_the_end_share_one_look() -> None:
    stage = await world()
    await stage.grow("a", by=10)
    feeds = [await stage.one("a", 0) for _ in range(20)]
    assert [await some(feed, 10) for feed in feeds] == [numbered("a", 1, 10)] * 20
    waiting = [asyncio.ensure_future(some(feed, 5)) for feed in feeds]
    await asyncio.sleep(0.1)
    before = stage.store.looks
    await stage.grow("a", by=5)
    assert [await one for one in waiting] == [numbered("a", 11, 15)] * 20
    assert stage.store.looks - before <= 2


async def test_an_overtaken_reader_continues_from_the_store() -> None:
    stage = await world(kept_events=5)
    await stage.grow("a")
    slow, quick = await stage.one("a", 0), await stage.one("a", 0)
    first = await some(slow, 1), await some(quick, 1)
    assert first == (["a.1"], ["a.1"])
    begun = asyncio.ensure_future(some(slow, 1)), asyncio.ensure_future(some(quick, 1))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    assert [await one for one in begun] == [["a.2"], ["a.2"]]
    for position in range(3, 30):
        await stage.grow("a")
        assert await some(quick, 1) == [f"a.{position}"]
    assert await some(slow, 27) == numbered("a", 3, 29)


async def test_a_feed_of_one_ends_with_its_execution() -> None:
    stage = await world()
    await stage.grow("a")
    await stage.end("a")
    assert [one.id async for one in await stage.one("a", 0)] == ["1", "2"]


async def test_an_execution_that_is_not_there_has_no_feed() -> None:
    stage = await world()
    with pytest.raises(NotFound, match="execution nothing not found"):
        await anext(await stage.one("nothing", 0))


async def test_everything_begins_now_and_tells_of_all_executions() -> None:
    stage = await world()
    await stage.grow("old", by=5)
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(some(feed, 4))
    await asyncio.sleep(0.1)
    await stage.grow("a", "b")
    await stage.grow("c", partition=1)
    await stage.grow("a")
    received = await waiting
    assert sorted(received) == ["a.1", "a.2", "b.1", "c.1"] and received.index("a.1") < received.index("a.2")


async def test_a_feed_of_everything_continues_after_any_event_even_within_a_tick() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    for _ in range(3):
        await stage.grow("a", "b", by=2)
        await stage.grow("c", partition=1)
    whole = [await waiting] + [await anext(feed) for _ in range(14)]
    names = [one.event.event_id for one in whole]
    assert len(set(names)) == 15
    for at, one in enumerate(whole):
        again = await stage.all(one.id)
        rest = await some(again, 14 - at)
        assert sorted(rest) == sorted(names[at + 1 :])


async def test_a_reader_whose_line_breaks_before_the_first_event_goes_on_from_where_it_began() -> None:
    stage = await world()
    (place,) = await anext(await stage.feed.everything(None))
    assert place.event is None
    await stage.grow("a", by=2)
    assert await some(await stage.all(place.id), 2) == ["a.1", "a.2"]


async def test_an_id_of_another_generation_is_refused_and_one_of_an_older_version_is_not() -> None:
    stage = await world()
    (place,) = await anext(await stage.feed.everything(None))
    generation, _, ticks = place.id.partition(":")
    assert generation == "0"
    await stage.grow("a")
    assert await some(await stage.all(ticks), 1) == ["a.1"]
    stage.store.tables.partitions[7].generation += 1
    with pytest.raises(UsageError, match="older than the last repair"):
        await stage.all(place.id)
    (place,) = await anext(await stage.feed.everything(None))
    assert place.id.startswith("1:")


@pytest.mark.parametrize("text", ["", "x", "0:x", "1-2", "-".join(["zz"] * 32), "-".join(["1.1.1"] * 32), "é" * 5])
async def test_an_id_of_something_else_is_refused(text: str) -> None:
    stage = await world()
    with pytest.raises(UsageError, match="does not belong to this feed"):
        await anext(await stage.all(text))


async def test_an_id_that_is_too_old_is_refused() -> None:
    stage = await world()
    feed = await stage.all(None)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.1)
    await stage.grow("a")
    old = (await waiting).id
    await stage.grow("a")
    await stage.ticks.trim(-1_000, 1_000)
    with pytest.raises(UsageError, match="too old"):
        await anext(await stage.all(old))


async def test_a_store_that_goes_away_ends_the_feed_of_everyone() -> None:
    stage = await world()
    await stage.grow("a")
    feeds = [await stage.one("a", 0) for _ in range(2)]
    waiting = [asyncio.ensure_future(some(feed, 2)) for feed in feeds]
    await asyncio.sleep(0.1)
    stage.store.away = True
    for one in waiting:
        with pytest.raises(Unreachable):
            await one
    stage.store.away = False
    await stage.grow("a")
    assert await some(await stage.one("a", 0), 2) == numbered("a", 1, 2)
