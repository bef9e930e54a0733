"""The queue in a cluster of three nats-servers, whose leader checks fences before the followers have the commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nats_process import NatsCluster
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import NoetlError
from noetl_stream.model.ids import partition_of
from noetl_stream.testing.conformance.command_queue import command
from noetl_stream.testing.waiting import until_it_is


@pytest.fixture
async def clustered(cluster: NatsCluster) -> AsyncIterator[NatsConnection]:
    """A connection to a cluster in which each stream has three copies."""
    connection = await NatsConnection.open(cluster.url, name="tests")

    async def is_ready() -> bool:
        try:
            async with asyncio.timeout(1):
                await ensure_streams(connection, replicas=3)
        except (NoetlError, TimeoutError):
            return False
        return True

    await until_it_is(True, is_ready)
    yield connection
    await connection.close()


async def test_many_commands_of_one_partition_pass_a_cluster(clustered: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(clustered)
    fences = await queue.fence("one", {partition_of("run-1"): 1})
    commands = [command(f"c{number}") for number in range(200)]
    assert await queue.issue(commands, fences) == set()
    assert await queue.present() == {one.command_id for one in commands}
    newer = await queue.fence("other", {partition_of("run-1"): 2})
    assert await queue.issue([command("late")], fences) == {partition_of("run-1")}
    assert await queue.issue([command("next")], newer) == set()
    assert await queue.present() == {one.command_id for one in commands} | {"next"}


async def test_a_value_that_many_put_at_once_is_stored_once(clustered: NatsConnection) -> None:
    """While the followers do not have the first put, the leader refuses the others without a decision."""
    clock = SystemClock()
    stores = [await NatsBlobs.open(clustered, clock) for _ in range(4)]
    for number in range(5):
        await asyncio.gather(*(blobs.put(f"key-{number}", b"value") for blobs in stores for _ in range(8)))
        assert await stores[0].get(f"key-{number}") == b"value"
    for blobs in stores:
        await blobs.close()
