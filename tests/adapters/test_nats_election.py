"""Three nats-servers whose leader is killed: clients wait for the next one, and are told of no error."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from nats_process import NatsCluster
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import Unreachable
from noetl_stream.operations.executions.submit import Client, Requests
from noetl_stream.protocol.subjects import EVENTS
from noetl_stream.server.assembly import ServerPorts
from noetl_stream.server.server import Server
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.following import Submission, submit
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.work import WorkTool, playbook, work

pytestmark = pytest.mark.verify

CLOCK = SystemClock()
STARTS = 40
KILLED_AFTER = 5
EVERY_S = 0.25


class Ports:
    """The ports of one process, over a connection to any of the servers."""

    def __init__(self, nats: NatsConnection, log: NatsEventLog, queue: NatsCommandQueue, blobs: NatsBlobs) -> None:
        self.nats = nats
        self.log = log
        self.queue = queue
        self.objects = SealedBlobs(blobs, OBJECT_KEYS)

    @classmethod
    @asynccontextmanager
    async def opened(cls, cluster: NatsCluster) -> AsyncIterator[Ports]:
        nats = await NatsConnection.open(cluster.url, name="test")
        log, queue = await NatsEventLog.open(nats, CLOCK), await NatsCommandQueue.open(nats)
        blobs = await NatsBlobs.open(nats, CLOCK)
        yield cls(nats, log, queue, blobs)
        for one in (blobs, queue, log, nats):
            await one.close()


@asynccontextmanager
async def serving(ports: Ports) -> AsyncIterator[None]:
    """A server at work."""
    store = StagedStore(CLOCK)
    held = ServerPorts(
        log=ports.log,
        queue=ports.queue,
        store=store,
        blobs=ports.objects,
        task_logs=StagedBroker(CLOCK).task_logs,
        bus=NatsBus(ports.nats),
        clock=CLOCK,
        catalog=MemoryCatalog(store),
        evaluator=MemoryEvaluator(),
        capabilities=CAPABILITIES,
        signer=SIGNER,
    )
    server = Server("server", held, {"work": WorkTool.spec})
    running = asyncio.create_task(server.run())
    yield
    server.stop()
    await running


async def make_streams(nats: NatsConnection) -> None:
    """Makes them once the cluster has elected its leader."""
    while True:
        with contextlib.suppress(Unreachable):
            await ensure_streams(nats, replicas=3)
            return


async def leader_of_events(nats: NatsConnection) -> str:
    return str(msgspec.json.decode(await nats.api(f"STREAM.INFO.{EVENTS}"))["cluster"]["leader"])


async def test_no_error_reaches_a_client_while_a_leader_is_elected(
    cluster: NatsCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as closing:
        of_server, of_client = [await closing.enter_async_context(Ports.opened(cluster)) for _ in range(2)]
        await make_streams(of_server.nats)
        await closing.enter_async_context(serving(of_server))
        client = Client(Requests(of_client.log, SIGNER), of_client.objects, NatsBus(of_client.nats))
        accepted_s: list[float] = []

        async def start(number: int) -> None:
            await CLOCK.sleep(number * EVERY_S)
            if number == KILLED_AFTER:
                cluster.servers[await leader_of_events(of_server.nats)].kill()
            began_s = time.monotonic()
            source = playbook(f"quick-{number}", [{"step": "only", "tool": work("done")}])
            submission = Submission.new(source, "simulation/quick", {}, CLOCK)
            follower = await client.follow(submission.execution_id).open()
            await submit(client, submission, follower)
            await follower.close()
            accepted_s.append(time.monotonic() - began_s)

        await asyncio.gather(*(start(number) for number in range(STARTS)))
        assert len(accepted_s) == STARTS
    with capsys.disabled():
        print(f"\n{STARTS} starts around a leader's death, slowest accepted in {max(accepted_s):.1f} s")
