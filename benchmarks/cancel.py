"""How long it takes from a cancel over HTTP until the work has really ended.

    python benchmarks/cancel.py [iterations] [kinds]

Embedded NATS and Postgres, a server, a worker with as many slots as there are iterations, and a gateway, in a temporary
home. Parallel loops of `shell`, `http`, `python` and `postgres` tasks, a quarter each, which would all take an hour; of
the last two a worker has 4 processes and 8 connections, for which the other iterations wait. Looked at from outside:
processes in the process table, queries in ``pg_stat_activity``, requests at the server that is asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil
from aiohttp import ClientSession, web

from noetl_stream.hosting import StackAccess, open_stack, prepare_embedded
from noetl_stream.local.processes import LOOPBACK, choose_port
from noetl_stream.processes import Supervised
from noetl_stream.settings.environment import Settings

LONG_S: Final = 3600
POLL_S: Final = 0.02
PATIENCE_S: Final = 120.0
QUERIES: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND application_name LIKE '%each_postgres%'"
)
TASKS: Final[dict[str, dict[str, Any]]] = {
    "shell": {"command": f"sleep {LONG_S} & wait"},
    "http": {"url": "{{ workload.url }}"},
    "python": {"code": f"import time\ntime.sleep({LONG_S})"},
    "postgres": {"auth": "local_postgres", "command": f"SELECT pg_sleep({LONG_S})"},
}
AT_ONCE: Final = {"python": 4, "postgres": 8}
"""How many of a kind a worker runs at once, where that is bounded (on up to four processors)."""


def playbook(kinds: list[str], iterations: int) -> str:
    """One loop a kind, all at once."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "cancel", "path": "bench/cancel"}}
    arcs = {"spec": {"mode": "inclusive"}, "arcs": [{"step": f"each_{kind}"} for kind in kinds]}
    loop = {"in": list(range(iterations)), "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 1000}}
    patient = {"timeout": {"connect": LONG_S, "read": LONG_S}}
    steps = [
        {"step": f"each_{kind}", "loop": loop, "tool": {"kind": kind, **TASKS[kind], "spec": patient}} for kind in kinds
    ]
    return json.dumps({**head, "workload": {"url": ""}, "workflow": [{"step": "start", "next": arcs}, *steps]})


class SlowServer:
    """Takes requests and answers none; ``open`` counts those whose client is still there."""

    def __init__(self) -> None:
        self.open = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/", self._hold)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        try:
            yield "http://{}:{}".format(*runner.addresses[0])
        finally:
            await runner.cleanup()

    async def _hold(self, request: web.Request) -> web.Response:
        self.open += 1
        try:
            await asyncio.sleep(LONG_S)
        finally:
            self.open -= 1
        return web.Response()


class Measured:
    """The stack under measurement, as it is seen from outside."""

    def __init__(self, worker: psutil.Process, server: SlowServer, database: Any, api: ClientSession) -> None:
        self._worker = worker
        self._server = server
        self._database = database
        self._api = api

    async def traces(self) -> dict[str, int]:
        """What there is of each kind of work."""
        commands = [_command(child) for child in self._worker.children(recursive=True)]
        return {
            "shell": sum(command == ["sleep", str(LONG_S)] for command in commands),
            "http": self._server.open,
            "python": sum("noetl_stream.tools.python.child" in " ".join(command) for command in commands),
            "postgres": await self._database.fetchval(QUERIES),
        }

    async def run(self, kinds: list[str], iterations: int, url: str) -> tuple[str, float]:
        """Starts it; its address and the seconds until all iterations run."""
        each = iterations // len(kinds)
        body = {"playbook": playbook(kinds, each), "workload": {"url": url}}
        began_s = time.perf_counter()
        async with self._api.post("/api/v1/executions", json=body) as response:
            assert response.status == 202, await response.text()
            address = response.headers["Location"]
        expected = {kind: min(each, AT_ONCE.get(kind, each)) for kind in kinds}

        async def all_running() -> bool:
            traces = await self.traces()
            return await self._busy() >= each * len(kinds) and all(traces[kind] >= expected[kind] for kind in kinds)

        await until(all_running)
        return address, time.perf_counter() - began_s

    async def cancel(self, address: str) -> dict[str, float]:
        """Seconds from the call: until it is answered, nothing of a kind is left, and the status says so."""
        began_s, ended_s = time.perf_counter(), dict[str, float]()

        def passed_s() -> float:
            return time.perf_counter() - began_s

        async with self._api.post(f"{address}/cancel") as response:
            assert response.status == 202, await response.text()
        ended_s["answered"] = passed_s()

        async def all_gone() -> bool:
            traces = await self.traces()
            for kind in [kind for kind, left in traces.items() if left]:
                ended_s.pop(kind, None)
            for kind in [kind for kind, left in traces.items() if not left]:
                ended_s.setdefault(kind, passed_s())
            async with self._api.get(address) as response:
                if (await response.json())["status"] == "cancelled":
                    ended_s.setdefault("status cancelled", passed_s())
            return not any(traces.values()) and "status cancelled" in ended_s and not await self._busy()

        await until(all_gone)
        return ended_s

    async def _busy(self) -> int:
        async with self._api.get("/api/v1/workers") as response:
            return sum(worker["busy"] for worker in (await response.json())["items"])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(POLL_S)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@asynccontextmanager
async def stack(place: StackAccess, slots: int, server: SlowServer) -> AsyncIterator[Measured]:
    async with AsyncExitStack() as ending:
        port = choose_port()
        roles = [["server"], ["worker", "--slots", str(slots)], ["gateway", "--port", str(port)]]
        children = [Supervised(role[0], role, place) for role in roles]
        for child in children:
            ending.callback(asyncio.create_task(child.run()).cancel)
            ending.push_async_callback(child.stop)
        assert place.embedded is not None
        database = await asyncpg.connect(place.embedded.address.playbooks_dsn)
        ending.push_async_callback(database.close)
        api = await ending.enter_async_context(ClientSession(f"http://{LOOPBACK}:{port}"))

        async def ready() -> bool:
            try:
                async with api.get("/api/v1/workers") as response:
                    return bool((await response.json()).get("items"))
            except OSError:
                return False

        await until(ready)
        yield Measured(psutil.Process(children[1].pid), server, database, api)


async def measure(iterations: int, kinds: list[str], home: Path) -> None:
    settings = Settings(home_folder=home)
    with open_stack(settings) as place:
        await prepare_embedded(place)
        server = SlowServer()
        async with server.serving() as url, stack(place, iterations, server) as measured:
            address, began_s = await measured.run(kinds, iterations, url)
            print(f"{iterations} iterations run after {began_s:.1f} s: {await measured.traces()}")
            ended_s = await measured.cancel(address)
            for what, seconds in ended_s.items():
                print(f"{what:18} {seconds:6.2f} s after the call")


def main() -> None:
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    kinds = sys.argv[2].split(",") if len(sys.argv) > 2 else list(TASKS)
    print(f"{psutil.cpu_count()} processors, Python {sys.version.split()[0]}, one worker with {iterations} slots")
    with tempfile.TemporaryDirectory(prefix="noetl-cancel-") as home:
        asyncio.run(measure(iterations, kinds, Path(home).resolve()))


if __name__ == "__main__":
    main()
