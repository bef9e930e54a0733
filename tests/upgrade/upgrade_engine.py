"""Runs playbooks in this process: a server, a worker with the installed tools, everything else in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Outcome
from noetl_stream.operations.executions.submit import Client, Requests
from noetl_stream.ports.clock import Clock
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.registry import create_tools, load_tools
from noetl_testkit.following import Submission, Watcher, submit
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import run_worker, server_on

PATIENCE_S = 60.0
SLOTS = 4


@dataclass(frozen=True, slots=True)
class Ended:
    """How an execution ended: ``result``, or the kind of its error."""

    status: str
    result: Any


class LocalEngine:
    """Executes playbooks to their end."""

    def __init__(self, broker: StagedBroker, store: StagedStore) -> None:
        self._broker = broker
        self._store = store
        self._client = Client(Requests(broker.event_log, SIGNER), SealedBlobs(broker.blobs, OBJECT_KEYS), broker.bus)

    async def run(self, source: str, workload: Mapping[str, Any] | None = None) -> Ended:
        """Runs a playbook to its end."""
        submission = Submission.new(source, "tests/upgraded", dict(workload or {}), self._broker.clock)
        follower = await Watcher(self._broker.bus, submission.execution_id).open()
        try:
            await submit(self._client, submission, follower)
            async with asyncio.timeout(PATIENCE_S):
                await follower.finished.wait()
        finally:
            await follower.close()
        rows = await self._store.journal(submission.execution_id)
        facts = [codec.decode_fact(row.data) for row in rows]
        [finished] = [fact for fact in facts if isinstance(fact, events.ExecutionFinished)]
        return Ended(finished.status, _result_of(finished.outcome))


def _result_of(outcome: Outcome) -> Any:
    return codec.decode_json(outcome.result.value) if outcome.error is None else outcome.error.kind


def local_tools(folder: Path) -> dict[str, Tool]:
    """The installed tools, which may reach this machine and a folder."""
    settings = ToolSettings(egress=egress_rules("loopback"), duckdb_folders=(folder,))
    return create_tools(load_tools(), settings)


@asynccontextmanager
async def local_engine(tools: Mapping[str, Tool], clock: Clock | None = None) -> AsyncIterator[LocalEngine]:
    """A server and a worker with these tools."""
    broker = StagedBroker(clock or SystemClock())
    store = StagedStore(broker.clock)
    hosts = [SimulatedHost(name, broker, store, FaultInjector()) for name in ("server-1", "worker-1")]
    kinds = {kind: tool.spec for kind, tool in tools.items()}
    server = server_on(hosts[0], MemoryCatalog(store), kinds, ServerTimes())
    roles = [asyncio.create_task(server.run()), asyncio.create_task(run_worker(hosts[1], tools, SLOTS))]
    try:
        yield LocalEngine(broker, store)
    finally:
        for role in roles:
            role.cancel()
        await asyncio.gather(*roles, return_exceptions=True)
        for tool in tools.values():
            await tool.close()
