"""The queue in a cluster of three nats-servers, whose leader checks fences before the followers have the commands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from nats_process import NatsCluster
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.commands.command_source import NatsCommandSource
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams, list_streams, stream_api
from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError, NotReady, OutcomeUnknown
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json.codec import decode_json
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_stream.protocol.subjects import EVENTS
from noetl_testkit.conformance.command_queue import command
from noetl_testkit.waiting import until, until_it_is

log = logging.getLogger(__name__)


async def test_many_commands_of_one_partition_pass_through_a_cluster(clustered: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(clustered)
    fences = await queue.fence("one", {partition_of("run-1"): 1})
    commands = [command(f"c{number}") for number in range(200)]
    assert await queue.issue(commands, fences) == set()
    assert set(await queue.present()) == {one.command_id for one in commands}
    newer = await queue.fence("other", {partition_of("run-1"): 2})
    assert await queue.issue([command("late")], fences) == {partition_of("run-1")}
    assert await queue.issue([command("next")], newer) == set()
    assert set(await queue.present()) == {one.command_id for one in commands} | {"next"}


async def test_a_request_that_is_published_again_while_the_first_is_on_its_way_is_stored_once(
    clustered: NatsConnection, cluster: NatsCluster
) -> None:
    stream = decode_json(await stream_api(clustered, EVENTS, f"STREAM.INFO.{EVENTS}"))
    leader = stream["cluster"]["leader"]
    connection = await NatsConnection.open(cluster.servers[leader].url, name="tests")
    event_log = await NatsEventLog.open(connection, SystemClock(), acknowledge_within_s=0.3)
    followers = [server for name, server in cluster.servers.items() if name != leader]
    for server in followers:
        server.pause()
    try:
        with pytest.raises(OutcomeUnknown):
            await event_log.publish_request("run-1", "request-1", b"{}")
        again = asyncio.create_task(event_log.publish_request("run-1", "request-1", b"{}"))
        await until(lambda: again.done() or event_log.outbox.retries > 0)
    finally:
        for server in followers:
            server.resume()
    assert await again == stream["state"]["last_seq"] + 1
    await event_log.close()
    await connection.close()


async def test_a_value_that_many_put_at_once_is_stored_once(clustered: NatsConnection) -> None:
    """While the followers do not have the first put, the leader refuses the others without a decision."""
    clock = SystemClock()
    stores = [await NatsBlobs.open(clustered, clock) for _ in range(4)]
    for number in range(5):
        await asyncio.gather(*(blobs.put(f"key-{number}", b"value") for blobs in stores for _ in range(8)))
        assert await stores[0].get(f"key-{number}") == b"value"
    for blobs in stores:
        await blobs.close()


async def test_streams_get_their_copies_while_they_are_used(cluster: NatsCluster) -> None:
    connection = await NatsConnection.open(cluster.url, name="tests")

    async def made(**spread: Any) -> Sequence[str]:
        """What the last attempt changed, once the cluster has elected its leader and has moved no stream."""
        while True:
            try:
                return await ensure_streams(connection, **spread)
            except NotReady as error:
                if not any(one in str(error) for one in ("being moved", "being changed")):
                    raise  # the others are to be run again once that has ended
            except NoetlError as error:
                log.info("%s", error)

    await made()
    assert {(one.replicas, *one.current) for one in await list_streams(connection)} == {(1,)}
    queue = await NatsCommandQueue.open(connection)
    fences = await queue.fence("one", {partition_of("run-1"): 1})
    assert await queue.issue([command("before")], fences) == set()
    await made(replicas=3)
    assert await queue.issue([command("after")], fences) == set()

    async def copies() -> set[tuple[int, int]]:
        return {(one.replicas, len(one.current)) for one in await list_streams(connection)}

    await until_it_is({(3, 2)}, copies)
    assert await made(replicas=3) == []
    assert await made() == [], "copies are not taken away"
    assert set(await queue.present()) == {"before", "after"}
    with pytest.raises(NotReady, match="EVENTS needs 5 nats-servers with JetStream in one cluster"):
        await made(replicas=5)
    with pytest.raises(NotReady, match="EVENTS needs 3 nats-servers with JetStream with the tags us"):
        await made(replicas=3, tags=["us"])
    await made(replicas=3, tags=["eu"])
    assert {(one.replicas, *one.tags) for one in await list_streams(connection)} == {(3, "eu")}
    await queue.close()
    await connection.close()


async def test_one_nats_server_alone_holds_one_copy(own_nats_connection: NatsConnection) -> None:
    with pytest.raises(NotReady, match=r"EVENTS needs 3 nats-servers .*start them, or ask for fewer replicas"):
        await ensure_streams(own_nats_connection, replicas=3)


@pytest.fixture
def seeds() -> dict[str, str]:
    return {identity: new_seed() for identity in (ADMIN, SERVER, GATEWAY, "worker-default")}


async def test_messages_to_a_stopping_worker_go_to_another_worker(tmp_path: Path, seeds: dict[str, str]) -> None:
    """One is connected to each nats-server, so that JetStream hears of at least two from other servers. Leases do not
    end in this test.
    """
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()})
    servers = NatsCluster(tmp_path, accounts)
    servers.start()

    async def opened(identity: str, url: str = servers.url) -> NatsConnection:
        return await NatsConnection.open(url, name=identity, nkey=seeds[identity], identity=identity)

    async with AsyncExitStack() as closing:
        closing.callback(servers.end)
        admin, server = await opened(ADMIN), await opened(SERVER)
        workers = [await opened("worker-default", one.url) for one in servers.servers.values()]
        for one in (admin, server, *workers):
            closing.push_async_callback(one.close)

        async def is_made() -> bool:
            with contextlib.suppress(NoetlError):
                await ensure_streams(admin, replicas=3)
                return True
            return False

        await until_it_is(True, is_made)
        queue = await NatsCommandQueue.open(server, ack_wait_s=3600)
        closing.push_async_callback(queue.close)
        await queue.add_pool("default")
        sources = [await NatsCommandSource.open(one, "default") for one in (*workers, workers[0])]
        for source in sources:
            closing.push_async_callback(source.close)
        *stopping, staying = sources
        for source in stopping:
            source.request(5)
        await asyncio.gather(*(one.flush() for one in workers))
        ending = asyncio.gather(*(source.finish() for source in stopping))
        returning = [asyncio.create_task(return_all(source)) for source in stopping]
        fences = await queue.fence("one", {partition_of("run-1"): 1})
        assert await queue.issue([command(f"c{number}") for number in range(10)], fences) == set()
        staying.request(10)
        found = {(await staying.next()).subject for _ in range(10)}
        assert len(found) == 10
        await ending
        await end_tasks(returning)


async def return_all(source: NatsCommandSource) -> None:
    while True:
        (await source.next()).nak()
