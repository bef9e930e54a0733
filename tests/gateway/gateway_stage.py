"""A gateway over everything that a run needs, in memory: broker, store, a server, a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from aiohttp import ClientSession

from doctor_in_memory import doctor_ports
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import PayloadRefused
from noetl_stream.gateway.access.authentication import Authentication, Network
from noetl_stream.gateway.gateway import BY_ADDRESS, Gateway, GatewayPorts
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.operations.access import AuditRecord, DirectAccess, DirectCredentials
from noetl_stream.operations.cluster import ClusterPorts, DirectCluster, DirectLiving, DirectMemory, DirectReadiness
from noetl_stream.operations.doctor.doctor import DirectDiagnosis
from noetl_stream.operations.executions.direct import DirectExecutions, ExecutionPorts
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.reading.logs import ExecutionLogs
from noetl_stream.operations.executions.selections import DirectSelections
from noetl_stream.operations.executions.submit import Requests
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.operations.grants import DirectGrants, GrantsPorts
from noetl_stream.operations.playbooks import DirectPlaybooks, PlaybookPorts
from noetl_stream.operations.starters import DirectSchedules, DirectTriggers, RegisteredStarters, StarterPorts
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.operations.views.index import ExecutionIndexes
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.stores.identities import LOCAL_NAME, StoredToken, hash_of, token_text
from noetl_stream.ports.stores.store import Tick
from noetl_stream.sealing.keys import key_ring, new_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.assembly import ServerPorts
from noetl_stream.server.server import Server
from noetl_stream.settings.gateway_settings import AgentAccess, GatewayLimits
from noetl_stream.storage.grants import RegisteredGrants
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.worker import Worker
from noetl_testkit.entries import events_in
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS, SIGNER
from noetl_testkit.memory.access import (
    MemoryAudit,
    MemoryGrants,
    MemoryIdempotency,
    MemoryRights,
    MemorySessions,
    MemoryTokens,
)
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.memory.observation import MemoryTracing
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.roles import check_once
from noetl_testkit.waiting import TIMEOUT_S

KINDS = {"python": PythonTool.spec, "shell": ShellTool.spec}
"""Those that may stand in a playbook, and that no worker here has."""


HEARTBEAT_S = 0.5
POLL_S = 0.002

TOKEN_ID, SECRET = "0" * 16, "5ec2e7" * 10 + "0000"
TOKEN = token_text(TOKEN_ID, SECRET)
"""An admin's, as an embedded stack makes it for itself."""

AS_ADMIN = {"Authorization": f"Bearer {TOKEN}"}


class GatewayStage:
    """``ports`` are the gateway's; a test may replace some of them before :meth:`open`.

    Args:
        signed_in: Whether ``client`` sends :data:`TOKEN` unless a request says otherwise.
        more_tools: What the worker has beside ``noop``, by kind.
        network: What the gateway is called, and by which proxies.
        agents: What agents may do at ``/mcp``.
    """

    def __init__(
        self,
        limits: GatewayLimits,
        signed_in: bool = True,
        more_tools: Mapping[str, Tool] = MappingProxyType({}),
        network: Network = BY_ADDRESS,
        agents: AgentAccess = "read",
    ) -> None:
        self._tools: dict[str, Tool] = {"noop": NoopTool(), **more_tools}
        self._kinds = KINDS | {kind: tool.spec for kind, tool in self._tools.items()}
        self.clock = SystemClock()
        self.broker = StagedBroker(self.clock)
        self.blobs = SealedBlobs(self.broker.blobs, OBJECT_KEYS)
        self.store = StagedStore(self.clock)
        self.indexes = ExecutionIndexes(self.store)
        self.catalog = MemoryCatalog(self.store)
        self.tokens, self.sessions = MemoryTokens(), MemorySessions()
        self.audit = MemoryAudit()
        self.grants = MemoryGrants()
        self.credentials, self._keys = MemoryCredentials(self.clock), key_ring((new_key(),), "a key")
        self.idempotency = MemoryIdempotency(self.clock)
        self._limits = limits
        self._network = network
        self._agents = agents
        self._headers = AS_ADMIN if signed_in else {}
        self.operations = self.own_operations()
        self.tracing: MemoryTracing | None = None
        self.url: str
        self.client: ClientSession
        self.gateway: Gateway

    def own_operations(self) -> Operations:
        """Those of a gateway over what this stage has now."""
        broker, store, clock = self.broker, self.store, self.clock
        log, bus, catalog = broker.event_log, broker.bus, self.catalog
        checking = PlaybookChecker(lambda: self._kinds, DEFAULT_LIMITS)
        secrets = UsedSecrets(MemoryCredentials(clock), None)
        cluster_ports = ClusterPorts(log, broker.command_queue, bus, store, store.dead_letters, clock)
        cluster = DirectCluster(cluster_ports, secrets)
        logs = ExecutionLogs(broker.task_logs, secrets, clock)
        ports = ExecutionPorts(Requests(log, SIGNER), bus, self.blobs, store, catalog, clock, logs, OBJECT_KEYS)
        executions = DirectExecutions(ports, checking, lambda: cluster)
        schedules = DirectSchedules(StarterPorts(Requests(log, SIGNER), bus, store, catalog, clock), checking)
        triggers = DirectTriggers(StarterPorts(ports.requests, bus, store, catalog, clock), checking)
        starters = RegisteredStarters(lambda: schedules, lambda: triggers)
        return Operations(
            executions,
            LiveFeed(store, MemoryFeed(store, clock), bus, clock, secrets),
            DirectPlaybooks(PlaybookPorts(store, catalog, clock, self.blobs, bus), checking, starters.begin),
            DirectCredentials(self.credentials, self._keys),
            cluster,
            DirectAccess(self.tokens, self.audit, clock),
            DirectDiagnosis(doctor_ports(broker, store, clock, self.tokens)),
            DirectViews(store, checking, secrets, lambda: self.indexes),
            DirectSelections(executions, store, clock, AuditRecord(self.audit, clock)),
            schedules,
            triggers,
            DirectGrants(GrantsPorts(self.grants, RegisteredGrants(self.grants, None), bus, clock)),
        )

    def replace(self, noun: str = "executions", /, **verbs: Any) -> None:
        """From now on these verbs of a noun are the test's."""
        replaced = {noun: _Replaced(getattr(self.operations, noun), verbs)}
        self.operations = msgspec.structs.replace(self.operations, **replaced)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[GatewayStage]:
        """Everything at work."""
        log, bus = self.broker.event_log, self.broker.bus
        ports = GatewayPorts(
            operations=self.operations,
            indexes=self.indexes,
            idempotency=self.idempotency,
            readiness=DirectReadiness(log, self.store, bus),
            memory=DirectMemory(self.broker.command_queue, bus),
            living=DirectLiving(self.store, self.store.dead_letters, self.clock, kept_s=0.0),
            authenticator=Authentication(self.tokens, self.sessions, self.clock),
            sessions=self.sessions,
            audit=self.audit,
            clock=self.clock,
            tracing=self.tracing,
        )
        self.gateway = Gateway(ports, self._limits, self._network, self._agents)
        now_ms = self.clock.now_ms()
        token = StoredToken(TOKEN_ID, LOCAL_NAME, "admin", (), hash_of(SECRET), now_ms, "test", last_used_ms=now_ms)
        await self.tokens.add(token)
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with self._running():
            serving = asyncio.create_task(self.gateway.run("127.0.0.1", 0, listening))
            self.url = await listening
            async with ClientSession(self.url, headers=self._headers) as self.client:
                yield self
            self.gateway.stop()
            await serving

    @contextmanager
    def refusing(self, execution_id: str, name: str) -> Iterator[None]:
        """The store takes no event of this name of the execution, as Postgres none that it cannot hold."""
        commit = self.store.commit

        async def refuse(tick: Tick) -> None:
            if (execution_id, name) in events_in(tick):
                raise PayloadRefused("a value that this store cannot hold")
            await commit(tick)

        self.store.commit = refuse  # type: ignore[method-assign]
        yield
        self.store.commit = commit  # type: ignore[method-assign]

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        broker = self.broker
        server = Server(
            "server-1",
            ServerPorts(
                log=broker.event_log,
                queue=broker.command_queue,
                store=self.store,
                blobs=self.blobs,
                task_logs=broker.task_logs,
                bus=broker.bus,
                clock=self.clock,
                catalog=self.catalog,
                evaluator=MemoryEvaluator(),
                capabilities=CAPABILITIES,
                signer=SIGNER,
                secrets=SecretsResponder(self.credentials, self.audit, self.clock, self._keys),
                rights=MemoryRights(self.tokens),
                trigger_streams=broker.trigger_streams,
                open_streams=["ORDERS"],
            ),
            self._kinds,
            checker=check_once,
        )
        worker = Worker(
            name="worker-1",
            pool="default",
            slots=8,
            event_log=broker.event_log,
            queue=broker.command_queue,
            bus=broker.bus,
            blobs=broker.blobs,
            task_logs=broker.task_logs,
            clock=self.clock,
            tools=self._tools,
            plans=PlanClient(self._kinds, checker=check_once),
        )

        async def beat() -> None:
            """As NATS does: a server that hears nothing from EVENTS gives its partitions back."""
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                broker.event_log.heartbeat()

        tasks = [asyncio.create_task(one) for one in (server.run(), worker.run(), beat())]
        try:
            await self.until(lambda: len(server.ownership) > 0)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await worker.close()

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Lets the others work until ``condition`` holds."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(POLL_S)


class _Replaced:
    """Executions of which some verbs are replaced."""

    def __init__(self, real: Executions, verbs: Mapping[str, Any]) -> None:
        self._real = real
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._real, name)
