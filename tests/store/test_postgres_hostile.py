"""What Postgres refuses of hostile messages sets executions aside and stops no server (PROTOCOL §5 *Poison*, §7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from effort import times
from hostile_messages import Attack, requests_to
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.catalog import MemoryCatalog
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.messages import Request
from noetl_stream.playbook.compile.compiler import digest_of
from noetl_stream.ports.sealed_blobs import SealedBlobs
from noetl_stream.ports.subjects import playbook_key
from noetl_stream.server.parts import ServerTimes
from noetl_stream.testing.keys import OBJECT_KEYS, SIGNER
from noetl_stream.testing.simulation.host import FaultInjector, SimulatedHost
from noetl_stream.testing.simulation.roles import run_worker, server_on
from noetl_stream.testing.simulation.work import WorkTool, playbook, work

QUICK = playbook("quick", [{"step": "only", "tool": work("done")}])
LOOP = playbook("loop", [{"step": "only", "loop": {"in": [1, 2], "iterator": "n"}, "tool": work("{{ iter.n }}", 1)}])


async def test_hostile_messages_stop_no_server_on_postgres(postgres_store: PostgresStore) -> None:
    clock = SystemClock()
    broker, store = MemoryBroker(clock), postgres_store
    hosts = {role: SimulatedHost(role, broker, store, FaultInjector()) for role in ("server", "worker")}
    server = server_on(hosts["server"], MemoryCatalog(MemoryStore(clock)), {"work": WorkTool.spec}, ServerTimes())
    serving = asyncio.create_task(server.run())
    tool = WorkTool(clock, Counter(), hosts["worker"].awake)
    working = asyncio.create_task(run_worker(hosts["worker"], {"work": tool}, 8))
    for source in (QUICK, LOOP):
        await SealedBlobs(broker.blobs, OBJECT_KEYS).put(playbook_key(digest_of(source)), source.encode())

    async def begin(execution_id: str, source: str) -> None:
        fact = ExecutionRequested(f"of-{execution_id}", digest_of(source))
        body = SIGNER.encode(Request(execution_id, fact.request_id, fact))
        await broker.event_log.publish_request(execution_id, fact.request_id, body)

    async def ended(execution_id: str) -> str:
        while (row := await store.execution(execution_id)) is None or row.finished_ms is None:
            assert not serving.done(), serving
            await asyncio.sleep(0.02)
        return row.status

    attack = Attack(Random(1), broker.event_log, lambda one: requests_to(one, digest_of(QUICK)))
    for number in range(times(12)):
        await begin(f"victim-{number}", LOOP)
        await attack.send(50, [f"victim-{one}" for one in range(max(0, number - 3), number + 1)])
        await begin(f"other-{number}", QUICK)
        assert await ended(f"other-{number}") == "completed"
    for task in (serving, working):
        task.cancel()
    await asyncio.gather(serving, working, return_exceptions=True)
