"""The operations over a server and a worker in memory, in simulated time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.model.events import InterventionFact
from noetl_stream.model.ids import uuid7
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.operations.cluster import ClusterPorts, DirectCluster
from noetl_stream.operations.executions.direct import DirectExecutions, ExecutionPorts
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.reading.logs import ExecutionLogs
from noetl_stream.operations.executions.submit import Requests
from noetl_stream.operations.playbooks import DirectPlaybooks, PlaybookPorts
from noetl_stream.operations.starters import DirectSchedules, DirectTriggers, RegisteredStarters, StarterPorts
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.ports.operations.executions import AcceptedDocument, ExecutionDocument, Start
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.settings.grants import GrantsFile
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.pipeline import NoopTool
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.access import MemoryRights, MemoryTokens
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import run_worker, server_on
from noetl_testkit.simulation.work import Effect, WorkTool, playbook

KINDS = {"work": WorkTool.spec, "noop": NoopTool.spec}
BY = "token:ada"
NO_SECRETS = UsedSecrets(MemoryCredentials(ManualClock()), None)


class OperationsStage:
    """``executions`` and ``playbooks`` on one broker and one store; roles are started by the test."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.clock = simulated_clock()
        self.broker = StagedBroker(self.clock)
        self.blobs = SealedBlobs(self.broker.blobs, OBJECT_KEYS)
        self.requests = Requests(self.broker.event_log, SIGNER)
        self.store = StagedStore(self.clock)
        self.catalog = MemoryCatalog(self.store)
        self.effects: Counter[Effect] = Counter()
        broker, checking = self.broker, PlaybookChecker(lambda: KINDS, limits)
        self.checking = checking
        self.cluster_ports = ClusterPorts(
            broker.event_log, broker.command_queue, broker.bus, self.store, self.store.dead_letters, self.clock
        )
        self.cluster = DirectCluster(self.cluster_ports, NO_SECRETS)
        logs = ExecutionLogs(broker.task_logs, NO_SECRETS, self.clock)
        ports = ExecutionPorts(
            self.requests, broker.bus, self.blobs, self.store, self.catalog, self.clock, logs, OBJECT_KEYS
        )
        self.execution_ports = ports
        self.fresh_executions = partial(DirectExecutions, ports, checking, lambda: self.cluster)
        self.executions = self.fresh_executions()
        self.tokens = MemoryTokens()
        starter_ports = StarterPorts(self.requests, broker.bus, self.store, self.catalog, self.clock)
        self.schedules = DirectSchedules(starter_ports, checking)
        catalog_ports = PlaybookPorts(self.store, self.catalog, self.clock, self.blobs, broker.bus)
        triggers = DirectTriggers(starter_ports, checking)
        starters = RegisteredStarters(lambda: self.schedules, lambda: triggers)
        self.playbooks = DirectPlaybooks(catalog_ports, checking, begin=starters.begin)
        self.fresh_views = partial(DirectViews, self.store, checking, NO_SECRETS)
        self.views = self.fresh_views()
        self._limits = limits
        self._running: list[asyncio.Task[None]] = []

    async def begin(self, workers: Sequence[str] = ("worker",), grants: GrantsFile | None = None) -> None:
        """Starts a server with these grants, and workers of these names."""
        rights = MemoryRights(self.tokens)
        host, times = self._host("server"), ServerTimes()
        server = server_on(host, self.catalog, KINDS, times, self._limits, rights=rights, grants=grants)
        self._running.append(asyncio.create_task(server.run()))
        while not len(server.ownership):
            await self.clock.sleep(0.01)
        for name in workers:
            self.begin_worker(name)

    def begin_worker(self, name: str, work: Tool | None = None) -> asyncio.Task[None]:
        """Starts a worker; cancelling its task kills it. ``work`` is its tool of that kind."""
        host = self._host(name)
        tools = {"work": work or WorkTool(self.clock, self.effects, host.awake), "noop": NoopTool()}
        self._running.append(asyncio.create_task(run_worker(host, tools, slots=8)))
        return self._running[-1]

    async def run(self, source: str, by: str = BY, **wanted: Any) -> ExecutionDocument:
        """Runs a playbook. Returns the execution at its end."""
        started = await self.executions.start(Start(playbook=source, **wanted), by)
        return await self.executions.wait(started.execution_id, 3600)

    async def until_status(self, execution_id: str, status: str) -> ExecutionDocument:
        while (found := await self.executions.get(execution_id)).status != status:
            assert found.finished is None, found
            await self.clock.sleep(0.01)
        return found

    async def ask(self, execution_id: str, kind: type[Any], **fields: Any) -> AcceptedDocument:
        """Sends a request to an execution, with a new request id."""
        fact: InterventionFact = kind(uuid7(self.clock.now_ms(), self.clock.random_bytes(10)), principal=BY, **fields)
        return await self.executions.ask(execution_id, fact)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _host(self, name: str) -> SimulatedHost:
        return SimulatedHost(name, self.broker, self.store, FaultInjector())


def labelled(name: str, workflow: list[dict[str, Any]], **labels: Any) -> str:
    """A playbook with labels."""
    head = {"name": name, "path": f"tests/{name}", "labels": labels}
    return playbook(name, workflow, metadata=head)
