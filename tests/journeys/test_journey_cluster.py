"""What runs the executions, on a whole stack: a worker comes and is killed, a bad message is found and settled."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from journey_stack import NOETL

from noetl_stream.errors import Unreachable
from noetl_stream.hosting.role_processes import run_worker
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.operations.cluster import DirectCluster
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER
from noetl_stream.protocol.subjects import command_subject
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.role_assembly import make_worker
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import Connected, connect
from noetl_testkit.waiting import TIMEOUT_S, until_it_is

pytestmark = pytest.mark.xdist_group("stack")

POOL = "journey-cluster"
BAD = b'{"type":"report","execution_id":7}'


@asynccontextmanager
async def connected_as(identity: str, home: Path) -> AsyncIterator[Connected]:
    stack = await asyncio.to_thread(EmbeddedStack.join, home)
    opened = await connect(embedded_endpoint(stack, Settings(), identity), name="journey")
    yield opened
    await opened.close()
    await asyncio.to_thread(stack.leave)


@pytest.fixture
async def connected(shared_home: Path) -> AsyncIterator[Connected]:
    async with connected_as(GATEWAY, shared_home) as opened:
        yield opened


@pytest.fixture
async def server(shared_home: Path) -> AsyncIterator[Connected]:
    """What a server holds: only servers put commands into the queue and take them out."""
    async with connected_as(SERVER, shared_home) as opened:
        yield opened


@pytest.fixture
def cluster(connected: Connected) -> DirectCluster:
    found = DirectOperations(connected, Endpoint("", "", {})).cluster
    assert isinstance(found, DirectCluster)
    return found


@contextmanager
def killed_worker(home: Path) -> Iterator[None]:
    """A worker of this test's pool, killed at the end."""
    arguments = ("worker", "--pool", POOL, "--slots", "3", "--home", str(home))
    process = subprocess.Popen([*NOETL, *arguments], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def of_pool(list_all: Callable[[], Awaitable[list[Any]]], *keys: str) -> Callable[[], Awaitable[list[Any]]]:
    """Reads what is listed of this test's pool."""

    async def read() -> list[Any]:
        return [tuple(getattr(one, key) for key in keys) for one in await list_all() if one.pool == POOL]

    return read


async def test_a_worker_is_seen_until_it_is_killed_and_its_pool_as_long_as_it_has_commands(
    shared_home: Path, server: Connected, cluster: DirectCluster
) -> None:
    workers = of_pool(cluster.workers, "slots", "draining")
    pools = of_pool(cluster.pools, "workers", "slots", "queued")
    subject = command_subject(POOL, "journey", "cluster")
    await server.nats.request(subject, b"no command", TIMEOUT_S)
    assert await workers() == []
    await until_it_is([(0, 0, 1)], pools)  # a pool without a consumer may be overlooked while others' work moves
    with killed_worker(shared_home):
        await until_it_is([(3, False)], workers)
        assert [one[:2] for one in await pools()] == [(1, 3)]
    await until_it_is([], workers)
    await server.queue.withdraw([("journey", "cluster")])
    await until_it_is([(0, 0, 0)], pools)


async def test_a_bad_message_is_found_requeued_and_discarded(connected: Connected, cluster: DirectCluster) -> None:
    stored = await connected.log.publish_request("journey-bad", "journey-bad", BAD)

    async def sequences() -> list[int]:
        page = await cluster.dead_letters(100, None)
        return [one.sequence for one in page.items if one.execution_id == "journey-bad"]

    await until_it_is([stored], sequences)
    (listed,) = [one for one in (await cluster.dead_letters(100, None)).items if one.sequence == stored]
    assert (await cluster.dead_letter(listed.id)).body == BAD.decode()
    assert (await cluster.requeue(listed.id, "alice")).state == "requeued"

    async def is_redelivered() -> bool:
        return bool(await sequences()) and (await sequences())[0] > stored

    await until_it_is(True, is_redelivered)
    (again,) = [one for one in (await cluster.dead_letters(100, None)).items if one.execution_id == "journey-bad"]
    await cluster.discard(again.id, "alice")
    assert await sequences() == []

    async def behind() -> int:
        partitions = await cluster.partitions()
        assert len(partitions) == PARTITIONS and all(one.live for one in partitions)
        return sum(one.behind for one in partitions)

    await until_it_is(0, behind)


async def test_a_role_whose_connection_to_nats_has_ended_for_good_ends_with_an_error(connected: Connected) -> None:
    hosted = make_worker(connected, Endpoint("", None, {}), pool=POOL, slots=1)
    running = asyncio.create_task(run_worker(hosted, connected.nats))
    await asyncio.sleep(0)
    await connected.nats.client.close()
    with pytest.raises(Unreachable, match="the connection was closed"):
        await running
