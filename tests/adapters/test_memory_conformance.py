"""The port suites over the broker in memory."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.broker import MemoryBlobs, MemoryTaskLogs
from noetl_stream.adapters.memory.bus import MemoryBus
from noetl_stream.adapters.memory.command_queue import MemoryCommandQueue
from noetl_stream.adapters.memory.event_log import MemoryEventLog
from noetl_testkit.conformance.blobs import BlobsConformance
from noetl_testkit.conformance.bus import BusConformance
from noetl_testkit.conformance.command_queue import CommandQueueConformance
from noetl_testkit.conformance.event_log import EventLogConformance, Lose
from noetl_testkit.conformance.task_logs import TaskLogsConformance
from noetl_testkit.conformance.trigger_streams import STREAM, TriggerStreamsConformance
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.trigger_streams import MemoryTriggerStreams


@pytest.fixture
def broker() -> StagedBroker:
    return StagedBroker(SystemClock())


@pytest.fixture
def event_log(broker: StagedBroker) -> MemoryEventLog:
    return broker.event_log


@pytest.fixture
def lose(broker: StagedBroker) -> Lose:
    async def lose(execution_id: str) -> None:
        held = broker.event_log.held_above(0)
        broker.event_log.lose(*(one.message.sequence for one in held if one.message.execution_id == execution_id))

    return lose


@pytest.fixture
def queue(broker: StagedBroker) -> MemoryCommandQueue:
    return broker.command_queue


@pytest.fixture
def bus(broker: StagedBroker) -> MemoryBus:
    return broker.bus


@pytest.fixture
def blobs(broker: StagedBroker) -> MemoryBlobs:
    return broker.blobs


@pytest.fixture
def task_logs(broker: StagedBroker) -> MemoryTaskLogs:
    return broker.task_logs


@pytest.fixture
def streams(broker: StagedBroker) -> MemoryTriggerStreams:
    return broker.trigger_streams


class MemoryStreamUser:
    def __init__(self, streams: MemoryTriggerStreams) -> None:
        self._streams = streams

    async def make(self, stream: str) -> None:
        self._streams.make(stream)

    async def delete(self, stream: str) -> None:
        self._streams.delete(stream)

    async def purge(self, stream: str) -> None:
        self._streams.purge(stream)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._streams.publish(STREAM, subject, body, headers)


@pytest.fixture
def user(streams: MemoryTriggerStreams) -> MemoryStreamUser:
    return MemoryStreamUser(streams)


class TestMemoryTriggerStreams(TriggerStreamsConformance):
    pass


class TestMemoryEventLog(EventLogConformance):
    pass


class TestMemoryCommandQueue(CommandQueueConformance):
    pass


class TestMemoryBus(BusConformance):
    pass


class TestMemoryBlobs(BlobsConformance):
    pass


class TestMemoryTaskLogs(TaskLogsConformance):
    pass
