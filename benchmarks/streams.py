"""Server-Sent Events under load: whether many readers get every event once while many executions run.

    python benchmarks/streams.py [readers] [executions]

Embedded NATS and Postgres, one server, worker and gateway, in a temporary home. Half of the readers follow everything,
the others one execution each. Every twentieth pauses for a while, and every tenth disconnects midway and resumes with
`Last-Event-ID`. Prints lost and repeated events, and the memory of the gateway.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import psutil

from bench_stack import PATIENCE_S, access_to, running, until
from noetl_stream.local.processes import choose_port
from noetl_stream.model.ids import uuid7
from noetl_stream.ports.operations.executions import RequestIds, Start
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stack import StackAccess, connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected

AT_ONCE = 100
SLOW_S = 5.0
STEPS = 3
PLAYBOOK = json.dumps(
    {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "streams", "path": "bench/streams"},
        "workflow": [
            {"step": f"s{n}", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": f"s{n + 1}"}]}} for n in range(STEPS)
        ]
        + [{"step": f"s{STEPS}", "tool": {"kind": "noop"}}],
    }
)
EVENT = re.compile(r'"event_id":"([^"]+)"')


class Reader:
    """One stream, and the events read from it."""

    def __init__(self, url: str, *, slow: bool, breaks: bool) -> None:
        self._url = url
        self._slow = slow
        self._breaks = breaks
        self._last: str | None = None
        self.heard: Counter[str] = Counter()
        self._enough = asyncio.Event()
        self._wanted = sys.maxsize

    async def read(self, session: aiohttp.ClientSession) -> None:
        """Reads until the stream ends."""
        while True:
            headers = {"Last-Event-ID": self._last} if self._last else {}
            async with session.get(self._url, headers=headers) as response:
                response.raise_for_status()
                if await self._read(response):
                    return

    async def has_heard(self, count: int) -> None:
        """Returns once ``count`` events have been read, or after :data:`PATIENCE_S`."""
        self._wanted = count
        if len(self.heard) >= count:
            return
        await asyncio.wait({asyncio.ensure_future(self._enough.wait())}, timeout=PATIENCE_S)

    async def _read(self, response: aiohttp.ClientResponse) -> bool:
        """Whether the stream ended; ``False`` if this reader disconnects."""
        async for line in response.content:
            if line.startswith(b"id: "):
                self._last = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                found = EVENT.search(line.decode())
                assert found is not None
                self.heard[found[1]] += 1
                if len(self.heard) >= self._wanted:
                    self._enough.set()
                if self._slow and len(self.heard) == 5:
                    self._slow = False
                    await asyncio.sleep(SLOW_S)
                if self._breaks and len(self.heard) == 7:
                    self._breaks = False
                    return False  # before the empty line: the event was read whole, its id too
        return True


async def main(readers: int, executions: int) -> None:
    # All readers are one caller, who may hold a quarter of the streams.
    os.environ["NOETL_GATEWAY_MAX_STREAMS"] = str(4 * readers)
    os.environ["NOETL_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS"] = str(2 * readers)
    with tempfile.TemporaryDirectory(prefix="noetl-streams-", ignore_cleanup_errors=True) as home:
        settings = Settings(home_folder=Path(home))
        with open_stack(settings) as place:
            await prepare_embedded(place)
            async with connected_to(place, "noetl-bench") as connected:
                await _measure(place, connected, readers, executions)


async def _measure(place: StackAccess, connected: Connected, readers: int, executions: int) -> None:
    port, headers = choose_port(), await access_to(place)  # made before a gateway looks for it
    roles = (["server"], ["worker"], ["gateway", "--port", str(port)])
    operations = DirectOperations(connected, place.endpoint)
    async with AsyncExitStack() as stack:
        children = await stack.enter_async_context(running(place, *roles))
        base = f"http://127.0.0.1:{port}/api/v1"
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**16, headers=headers)
        )
        await until(partial(_is_ready, session, f"http://127.0.0.1:{port}/readyz"))
        gateway = psutil.Process(children[2].pid or 0)
        idle = gateway.memory_full_info().uss
        begun = await operations.playbooks.register(PLAYBOOK.encode(), "streams", "bench")
        digest = begun.digest
        watched = [_ids(connected) for _ in range(readers // 2)]
        whole = [
            Reader(f"{base}/events/stream", slow=n % 20 == 0, breaks=n % 10 == 1) for n in range(readers - len(watched))
        ]
        following = [asyncio.create_task(reader.read(session)) for reader in whole]
        await asyncio.sleep(2.0)
        began_s, peak = time.perf_counter(), [idle]
        sampling = asyncio.create_task(_sample(gateway, peak))
        gate = asyncio.Semaphore(AT_ONCE)

        async def start(ids: RequestIds) -> str:
            async with gate:
                started = await operations.executions.start(Start(digest=digest), "bench", ids)
                return started.execution_id

        ones: list[tuple[Reader, asyncio.Task[None]]] = []

        async def start_watched(ids: RequestIds, number: int) -> str:
            execution_id = await start(ids)
            url = f"{base}/executions/{execution_id}/events/stream"
            reader = Reader(url, slow=number % 20 == 0, breaks=number % 10 == 1)
            ones.append((reader, asyncio.create_task(reader.read(session))))
            return execution_id

        rest = [_ids(connected) for _ in range(executions - len(watched))]
        started = await asyncio.gather(
            *(start_watched(ids, number) for number, ids in enumerate(watched)), *(start(ids) for ids in rest)
        )
        for execution_id in started:
            await operations.executions.wait(execution_id, 300.0)
        ran_s = time.perf_counter() - began_s
        await asyncio.gather(*(task for _, task in ones))
        expected: dict[str, int] = {}
        for execution_id in started:
            row = await connected.store.execution(execution_id)
            assert row is not None
            expected[execution_id] = row.position
        total = sum(expected.values())
        for reader in whole:
            await reader.has_heard(total)
        all_heard_s = time.perf_counter() - began_s
        for task in following:
            task.cancel()
        sampling.cancel()
        await asyncio.gather(*following, sampling, return_exceptions=True)
    events = {f"{one}.{position}" for one, last in expected.items() for position in range(1, last + 1)}
    lost = sum(len(events - reader.heard.keys()) for reader in whole)
    repeated = sum(sum(reader.heard.values()) - len(reader.heard) for reader in (*whole, *(r for r, _ in ones)))
    for reader, _ in ones:
        execution_id = next(iter(reader.heard)).rpartition(".")[0]
        lost += expected[execution_id] - len(reader.heard)
    print(f"{readers} readers ({len(whole)} of everything), {executions} executions, {total:,} events")
    print(f"the executions took {ran_s:.1f} s, the last reader had everything after {all_heard_s:.1f} s")
    print(f"events sent {sum(sum(r.heard.values()) for r in (*whole, *(r for r, _ in ones))):,}")
    print(f"lost {lost}, repeated {repeated}")
    print(f"gateway memory: {idle / 2**20:.0f} MiB idle, {max(peak) / 2**20:.0f} MiB at most")


def _ids(connected: Connected) -> RequestIds:
    clock = connected.clock
    return RequestIds(uuid7(clock.now_ms(), clock.random_bytes(10)), uuid7(clock.now_ms(), clock.random_bytes(10)))


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def _sample(process: psutil.Process, peak: list[int]) -> None:
    while True:
        peak.append(process.memory_full_info().uss)
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    asyncio.run(main(*(given + [500, 1000][len(given) :])))
