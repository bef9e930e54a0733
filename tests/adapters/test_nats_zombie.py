"""A server frozen between its commit and its publication, on real streams (PROTOCOL §5 *Fence at the queue*, *Fence in
EVENTS*).
"""

from __future__ import annotations

import asyncio

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import digest_of, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.operations.executions.submit import Requests
from noetl_stream.protocol.subjects import playbook_key
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.server.journal_records import last_record
from noetl_stream.server.ownership.recorded import RecordedPartition, read_partition
from noetl_stream.server.server import Server
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.conformance.command_queue import expect_present, source_of, take
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import server_on
from noetl_testkit.simulation.work import WorkTool, playbook, work
from noetl_testkit.waiting import until, until_it_is

EXECUTION = "execution-1"
SOURCE = playbook("one", [{"step": "only", "tool": work("done", 0.2)}])
TIMES = ServerTimes(lease_s=1.0, housekeeping_s=0.05)


class FrozenAt(FaultInjector):
    """Freezes a host when it is about to do something."""

    def __init__(self, point: str) -> None:
        self._point = point

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == self._point:
            host.freeze()


class Servers:
    """Servers on one broker and one store in memory, and on a log and a queue in NATS."""

    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        self.clock = SystemClock()
        self.broker = StagedBroker(self.clock)
        self.store = StagedStore(self.clock)
        self.running: list[asyncio.Task[None]] = []

    async def start(self, name: str, injector: FaultInjector) -> tuple[Server, SimulatedHost]:
        queue = await NatsCommandQueue.open(self.connection)
        log = await NatsEventLog.open(self.connection, self.clock)
        host = SimulatedHost(name, self.broker, self.store, injector, queue=queue, log=log)
        server = server_on(host, MemoryCatalog(self.store), {"work": WorkTool.spec}, TIMES)
        self.running.append(asyncio.create_task(server.run()))
        return server, host

    async def request(self) -> None:
        digest = digest_of(SOURCE)
        await SealedBlobs(self.broker.blobs, OBJECT_KEYS).put(playbook_key(digest), SOURCE.encode())
        fact = ExecutionRequested("request-1", digest, "tests/zombie")
        log = await NatsEventLog.open(self.connection, self.clock)
        await Requests(log, SIGNER).publish(Request(EXECUTION, "request-1", fact))
        await log.close()

    async def end(self) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.wait(self.running)


async def test_the_first_issue_of_a_zombie_is_refused_after_its_successor_has_issued_it_again(
    connection: NatsConnection,
) -> None:
    servers = Servers(connection)
    zombie, host = await servers.start("zombie", FrozenAt("queue.issue"))
    await until(lambda: len(zombie.ownership) > 0)
    await servers.request()
    await until(lambda: host.is_frozen)
    await servers.start("successor", FaultInjector())
    queue = await NatsCommandQueue.open(connection)
    source = await source_of(queue, "default")
    (delivery,) = await take(source, 1)
    assert codec.decode_command(delivery.body).issue == 2
    delivery.ack()
    await expect_present(queue, set())
    host.injector = FaultInjector()
    host.thaw()
    await until(lambda: not zombie.publications.commands_under_way())
    assert await queue.present() == {}
    await servers.end()
    await source.close()


async def test_a_record_of_a_zombie_does_not_count_and_its_successor_has_stored_it(connection: NatsConnection) -> None:
    servers, partition = Servers(connection), partition_of(EXECUTION)
    zombie, host = await servers.start("zombie", FrozenAt("log.publish_decided"))
    await until(lambda: len(zombie.ownership) > 0)
    await servers.request()
    await until(lambda: host.is_frozen)
    await servers.start("successor", FaultInjector())
    log = await NatsEventLog.open(connection, servers.clock)

    async def last_epoch() -> int:
        last = await log.last_decided(partition)
        return 0 if last is None else codec.decode_record(last[1]).epoch

    await until_it_is(2, last_epoch)
    host.injector = FaultInjector()
    host.thaw()
    await until_it_is(1, last_epoch)
    record = await last_record(log, partition)
    assert record is not None and record.epoch == 2

    async def lacks() -> int:
        recorded = RecordedPartition(await read_partition(log, partition, 0), 0, await log.fences(partition))
        stored = sum(entry.width for entry in recorded.executions[EXECUTION].entries(0))
        return servers.store.tables.executions[EXECUTION].position - stored

    await until_it_is(0, lacks)  # a tick is committed before its record is published
    await servers.end()
    await log.close()
