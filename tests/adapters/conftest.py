"""A real nats-server for these tests, and connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats_proxy import LossyProxy

from effort import first_in_gate
from nats_process import NatsCluster, NatsServer
from noetl_stream.adapters.nats.api_errors import STREAM_NOT_FOUND
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import NoetlError
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.streams.command_queue import CommandQueue, CommandSource
from noetl_stream.ports.streams.event_log import EventLog, EventReader
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, LOGS, RESULTS
from noetl_testkit.conformance.command_queue import source_of
from noetl_testkit.waiting import until, until_it_is


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all tests that do not damage it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.end()


async def make_anew(server: NatsServer, connection: NatsConnection) -> None:
    """Deletes the streams, waits until the server has removed their folders, and makes them."""
    for stream in (EVENTS, COMMANDS, RESULTS, LOGS):
        try:
            await connection.api(f"STREAM.DELETE.{stream}")
        except ApiRefused as error:
            assert error.err_code == STREAM_NOT_FOUND, error
    await until(lambda: not server.is_removing())
    await ensure_streams(connection)


@pytest.fixture
async def source(queue: CommandQueue) -> AsyncIterator[CommandSource]:
    """A source of the queue that a module provides."""
    opened = await source_of(queue, "default")
    yield opened
    await opened.close()


@pytest.fixture
async def reader(event_log: EventLog) -> AsyncIterator[EventReader]:
    """A reader of the log that a module provides."""
    opened = await event_log.open_reader(range(PARTITIONS), 0)
    yield opened
    await opened.close()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of its own for this test, to be killed, paused and restarted."""
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    """Three servers that are one, of this test's own."""
    servers = NatsCluster(tmp_path)
    servers.start()
    yield servers
    servers.end()


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


@pytest.fixture(params=first_in_gate(["fast", "plain"]))
async def connection(shared_nats: NatsServer, request: pytest.FixtureRequest) -> AsyncIterator[NatsConnection]:
    """A connection to the shared server with fresh, empty streams; each test runs on the fast and on the plain path."""
    opened = await NatsConnection.open(shared_nats.url, name="test", fast=request.param == "fast")
    await make_anew(shared_nats, opened)
    yield opened
    await opened.close()


@pytest.fixture
async def proxy(shared_nats: NatsServer, connection: NatsConnection) -> AsyncIterator[LossyProxy]:
    """A lossy line to the shared server, whose streams are fresh and empty."""
    opened = LossyProxy(shared_nats.port)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def through_proxy(proxy: LossyProxy) -> AsyncIterator[NatsConnection]:
    """A connection over the lossy line."""
    opened = await NatsConnection.open(proxy.url, name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def own_nats_connection(own_nats: NatsServer) -> AsyncIterator[NatsConnection]:
    """A connection to the test's own server, without any stream."""
    opened = await NatsConnection.open(own_nats.url, name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def own_connection(own_nats_connection: NatsConnection) -> NatsConnection:
    """A connection to the test's own server, streams made."""
    await ensure_streams(own_nats_connection)
    return own_nats_connection
