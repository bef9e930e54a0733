"""The operations of people over memory adapters, and a gateway over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession

from doctor_in_memory import doctor_ports
from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.gateway.gateway import Gateway, GatewayPorts
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.messages import MemoryUse
from noetl_stream.operations.access import AuditRecord, DirectAccess, DirectCredentials
from noetl_stream.operations.cluster import ClusterPorts, DirectCluster
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
from noetl_stream.ports.stores.identities import Authenticator
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.settings.grants import GrantsSource
from noetl_stream.storage.grants import RegisteredGrants
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_testkit.conformance.store_rows import execution_row, taken, tick_of
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.access import MemoryAudit, MemoryGrants, MemoryIdempotency, MemorySessions, MemoryTokens
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.memory.store import StagedStore

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: {name}
  path: {path}
workflow:
  - step: start
    tool:
      kind: noop
"""


class Stack:
    """No server runs: requests are stored and not answered."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.tokens, self.sessions, self.audit = MemoryTokens(), MemorySessions(), MemoryAudit()
        self.grants = MemoryGrants()
        self.in_force: GrantsSource = RegisteredGrants(self.grants, "own")
        self.keeper = DirectAccess(self.tokens, self.audit, clock)
        self.store = StagedStore(clock)
        broker = StagedBroker(clock)
        catalog = MemoryCatalog(self.store)
        checking = PlaybookChecker(lambda: kinds_of(load_tools()), DEFAULT_LIMITS)
        letters = self.store.dead_letters
        secrets = UsedSecrets(MemoryCredentials(clock), None)
        cluster = DirectCluster(
            ClusterPorts(broker.event_log, broker.command_queue, broker.bus, self.store, letters, clock), secrets
        )
        logs = ExecutionLogs(broker.task_logs, secrets, clock)
        requests = Requests(broker.event_log, SIGNER)
        ports = ExecutionPorts(requests, broker.bus, broker.blobs, self.store, catalog, clock, logs, OBJECT_KEYS)
        executions = DirectExecutions(ports, checking, lambda: cluster)
        schedules = DirectSchedules(StarterPorts(requests, broker.bus, self.store, catalog, clock), checking)
        triggers = DirectTriggers(StarterPorts(requests, broker.bus, self.store, catalog, clock), checking)
        starters = RegisteredStarters(lambda: schedules, lambda: triggers)
        self.operations = Operations(
            executions,
            LiveFeed(self.store, MemoryFeed(self.store, clock), broker.bus, clock, secrets),
            DirectPlaybooks(
                PlaybookPorts(self.store, catalog, clock, broker.blobs, broker.bus), checking, begin=starters.begin
            ),
            DirectCredentials(MemoryCredentials(clock), None),
            cluster,
            self.keeper,
            DirectDiagnosis(doctor_ports(broker, self.store, clock, self.tokens)),
            DirectViews(self.store, checking, secrets),
            DirectSelections(executions, self.store, clock, AuditRecord(self.audit, clock)),
            schedules,
            triggers,
            DirectGrants(GrantsPorts(self.grants, self.in_force, broker.bus, clock)),
        )

    async def add_executions(self, **paths: str) -> None:
        """Executions that have ended, by id, each of the playbook at a path."""
        rows = [execution_row(one, path=path, status="completed", finished_ms=2_000) for one, path in paths.items()]
        await self.store.commit(tick_of("one", await taken(self.store), executions=rows))

    async def register(self, *paths: str) -> None:
        for path in paths:
            await self.operations.playbooks.register(playbook(path).encode(), path, "ann")

    @asynccontextmanager
    async def gateway(self, authenticator: Authenticator) -> AsyncIterator[ClientSession]:
        """A client of a gateway over all this."""
        ports = GatewayPorts(
            operations=self.operations,
            indexes=ExecutionIndexes(self.store),
            idempotency=MemoryIdempotency(self.clock),
            readiness=_Refusing(),
            memory=_Refusing(),
            living=_Refusing(),
            authenticator=authenticator,
            sessions=self.sessions,
            audit=self.audit,
            clock=self.clock,
            grants=self.in_force,
        )
        gateway = Gateway(ports, GatewayLimits())
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(gateway.run("127.0.0.1", 0, listening))
        async with ClientSession(await listening) as client:
            yield client
        gateway.stop()
        await serving


class _Refusing:
    """Ports that no test here may call."""

    async def report(self, report: Any) -> int:
        raise AssertionError(report)

    async def missing(self) -> list[str]:
        return []

    async def count(self) -> None:
        return None

    async def uses(self) -> list[MemoryUse]:
        return []


def playbook(path: str) -> str:
    return PLAYBOOK.format(name=path.rpartition("/")[2], path=path)
