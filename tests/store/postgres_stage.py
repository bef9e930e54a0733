"""A server and a worker over a real Postgres and a broker in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.events import ClientFact, ExecutionRequested
from noetl_stream.model.ids import digest_of
from noetl_stream.model.messages import Request
from noetl_stream.protocol.subjects import playbook_key
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import run_worker, server_on
from noetl_testkit.simulation.work import WorkTool


class PostgresStage:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.broker = StagedBroker(SystemClock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """A server, whose task it gives, and a worker at work; fails if the server has ended by itself."""
        clock = self.broker.clock
        hosts = {role: SimulatedHost(role, self.broker, self.store, FaultInjector()) for role in ("server", "worker")}
        catalog = MemoryCatalog(StagedStore(clock))
        server = server_on(hosts["server"], catalog, {"work": WorkTool.spec}, ServerTimes(reconcile_s=0.5))
        tool = WorkTool(clock, Counter(), hosts["worker"].awake)
        serving = asyncio.create_task(server.run())
        working = asyncio.create_task(run_worker(hosts["worker"], {"work": tool}, 8))
        try:
            yield serving
            assert not serving.done(), serving
        finally:
            for task in (serving, working):
                task.cancel()
            await asyncio.gather(serving, working, return_exceptions=True)

    async def begin(self, execution_id: str, source: str) -> None:
        """Requests an execution."""
        digest = digest_of(source)
        await SealedBlobs(self.broker.blobs, OBJECT_KEYS).put(playbook_key(digest), source.encode())
        await self.ask(execution_id, ExecutionRequested(f"of-{execution_id}", digest))

    async def ask(self, execution_id: str, fact: ClientFact) -> None:
        """Publishes a request."""
        body = SIGNER.encode(Request(execution_id, fact.request_id, fact))
        await self.broker.event_log.publish_request(execution_id, fact.request_id, body)

    async def until(self, execution_id: str, status: str) -> None:
        """Returns when the execution has this status; fails if it ends with another."""
        while (row := await self.store.execution(execution_id)) is None or row.status != status:
            assert row is None or row.finished_ms is None, row
            await asyncio.sleep(0.02)
