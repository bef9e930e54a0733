"""A real nats-server and a real Postgres that lose what they held, under a server and a worker (PROTOCOL §5)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_stack import JOURNALS, RealStack, rows

from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.protocol.subjects import EVENTS, RESULTS

pytestmark = pytest.mark.verify


async def deleted(stack: RealStack, stream: str) -> None:
    await stack.admin(lambda connection: connection.api(f"STREAM.DELETE.{stream}"))


async def test_events_deleted_under_a_server_is_made_good_once_it_exists_again(stack: RealStack) -> None:
    async with stack.running() as connected:
        old = await stack.submit(connected)
        await stack.ended(connected, old)
        living = await stack.submit(connected)
        await deleted(stack, EVENTS)
        await asyncio.sleep(0)
        await stack.admin(ensure_streams)
        await stack.ended(connected, living)
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
    assert await stack.is_whole_in_events()


async def test_the_tail_of_events_cut_off_is_made_good(stack: RealStack, tmp_path: Path) -> None:
    data, saved = tmp_path / "nats-data", tmp_path / "saved"
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
        stack.nats.pause()
        shutil.copytree(data, saved)
        stack.nats.resume()
        await stack.ended(connected, await stack.submit(connected))
        living = await stack.submit(connected)
        stack.nats.kill()
        shutil.rmtree(data)
        saved.rename(data)
        stack.nats.start()
        await stack.ended(connected, living)
        await stack.ended(connected, await stack.submit(connected))
    assert await stack.is_whole_in_events()


async def test_a_postgres_restored_from_a_dump_catches_up(stack: RealStack) -> None:
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
    name = str(stack.endpoint.postgres_dsn).split("/")[3].split("?")[0]
    dump = await stack.database("dump", name)
    async with stack.running() as connected:
        late = await stack.submit(connected)
        await stack.ended(connected, late)
        living = await stack.submit(connected)
    journal = await rows(stack.endpoint.postgres_dsn, JOURNALS)
    stack.endpoint = replace(stack.endpoint, postgres_dsn=dump)
    async with stack.running() as connected:
        await stack.ended(connected, late)
        await stack.ended(connected, living)
        await stack.agree()
    assert set(journal) <= set(await rows(dump, JOURNALS))
    assert await stack.is_whole_in_events()


async def test_the_object_store_deleted_is_waited_out(stack: RealStack) -> None:
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await deleted(stack, RESULTS)
        task = asyncio.create_task(stack.submit(connected))
        await asyncio.sleep(0)
        assert not task.done()
        await stack.admin(ensure_streams)
        await stack.ended(connected, await task)
    assert await stack.is_whole_in_events()
