"""The port suites over NATS, on the fast and on the plain path."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
from noetl_stream.adapters.nats.trigger_streams import NatsTriggerStreams
from noetl_stream.protocol.subjects import EVENTS
from noetl_testkit.conformance.blobs import BlobsConformance
from noetl_testkit.conformance.bus import BusConformance
from noetl_testkit.conformance.command_queue import CommandQueueConformance
from noetl_testkit.conformance.event_log import EventLogConformance, Lose
from noetl_testkit.conformance.task_logs import TaskLogsConformance
from noetl_testkit.conformance.trigger_streams import TriggerStreamsConformance
from noetl_testkit.waiting import until


@pytest.fixture
async def event_log(connection: NatsConnection) -> AsyncIterator[NatsEventLog]:
    log = await NatsEventLog.open(connection, SystemClock())
    await log.verify()
    yield log
    await log.close()


@pytest.fixture
def lose(connection: NatsConnection) -> Lose:
    async def purge(execution_id: str) -> None:
        await connection.api(f"STREAM.PURGE.{EVENTS}", {"filter": f"noetl.events.*.{execution_id}.>"})

    return purge


@pytest.fixture
async def queue(connection: NatsConnection) -> AsyncIterator[NatsCommandQueue]:
    queue = await NatsCommandQueue.open(connection, look_again_s=0)
    await queue.verify()
    yield queue
    await queue.close()


@pytest.fixture
def bus(connection: NatsConnection) -> NatsBus:
    return NatsBus(connection)


@pytest.fixture
async def blobs(connection: NatsConnection) -> AsyncIterator[NatsBlobs]:
    store = await NatsBlobs.open(connection, SystemClock())
    await store.verify()
    yield store
    await store.close()


@pytest.fixture
async def task_logs(connection: NatsConnection) -> AsyncIterator[NatsTaskLogs]:
    logs = await NatsTaskLogs.open(connection)
    yield logs
    await logs.close()


@pytest.fixture
def streams(connection: NatsConnection) -> NatsTriggerStreams:
    return NatsTriggerStreams(connection, SystemClock())


class NatsStreamUser:
    def __init__(self, server: NatsServer, connection: NatsConnection) -> None:
        self._server = server
        self._connection = connection
        self._jetstream = connection.client.jetstream()

    async def make(self, stream: str) -> None:
        with contextlib.suppress(ApiRefused):
            await self.delete(stream)
        await until(lambda: not self._server.is_removing())
        await self._connection.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": ["orders.>"]})

    async def delete(self, stream: str) -> None:
        await self._connection.api(f"STREAM.DELETE.{stream}")

    async def purge(self, stream: str) -> None:
        await self._connection.api(f"STREAM.PURGE.{stream}")

    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        await self._jetstream.publish(subject, body, headers=headers)


@pytest.fixture
def user(shared_nats: NatsServer, connection: NatsConnection) -> NatsStreamUser:
    return NatsStreamUser(shared_nats, connection)


class TestNatsTriggerStreams(TriggerStreamsConformance):
    pass


class TestNatsEventLog(EventLogConformance):
    pass


class TestNatsCommandQueue(CommandQueueConformance):
    pass


class TestNatsBus(BusConformance):
    pass


class TestNatsBlobs(BlobsConformance):
    pass


class TestNatsTaskLogs(TaskLogsConformance):
    pass
