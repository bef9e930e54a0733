"""How long work keeps running after its execution is cancelled over HTTP.

    python benchmarks/cancel.py [iterations] [kinds]

Embedded NATS and Postgres, a server, a worker with as many slots as there are iterations, and a gateway, in a temporary
home. Parallel loops of `shell`, `http`, `python` and `postgres` tasks, a quarter each, every task an hour long. The
worker runs at most 4 Python processes and 8 queries at once; the other iterations wait for them. What still runs is
observed from outside: the process table, ``pg_stat_activity``, and the open requests of the HTTP server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil
from aiohttp import ClientSession, web

from bench_stack import access_to, running, until
from noetl_stream.local.processes import LOOPBACK, choose_port
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import StackAccess, open_stack, prepare_embedded

LONG_S: Final = 3600
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
    """One loop for each kind, all at the same time."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "cancel", "path": "bench/cancel"}}
    arcs = {"spec": {"mode": "inclusive"}, "arcs": [{"step": f"each_{kind}"} for kind in kinds]}
    loop = {"in": list(range(iterations)), "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 1000}}
    patient = {"timeout": {"connect": LONG_S, "read": LONG_S}}
    steps = [
        {"step": f"each_{kind}", "loop": loop, "tool": {"kind": kind, **TASKS[kind], "spec": patient}} for kind in kinds
    ]
    return json.dumps({**head, "workload": {"url": ""}, "workflow": [{"step": "start", "next": arcs}, *steps]})


class SlowServer:
    """Accepts requests and never answers; ``open`` counts those whose client is still connected."""

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
    """The stack under measurement, observed from outside."""

    def __init__(self, worker: psutil.Process, server: SlowServer, database: Any, api: ClientSession) -> None:
        self._worker = worker
        self._server = server
        self._database = database
        self._api = api

    async def traces(self) -> dict[str, int]:
        """How much work of each kind is running."""
        commands = [_command(child) for child in self._worker.children(recursive=True)]
        return {
            "shell": sum(command == ["sleep", str(LONG_S)] for command in commands),
            "http": self._server.open,
            "python": sum("noetl_stream.tools.python.child" in " ".join(command) for command in commands),
            "postgres": await self._database.fetchval(QUERIES),
        }

    async def run(self, kinds: list[str], iterations: int, url: str) -> tuple[str, float]:
        """Starts an execution. Returns its URL, and the seconds until all its iterations run."""
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
        """Seconds from the call until it is answered, no work of a kind is left, and the status is `cancelled`."""
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


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@asynccontextmanager
async def stack(place: StackAccess, slots: int, server: SlowServer) -> AsyncIterator[Measured]:
    async with AsyncExitStack() as ending:
        port, headers = choose_port(), await access_to(place)  # made before a gateway looks for it
        roles = (["server"], ["worker", "--slots", str(slots)], ["gateway", "--port", str(port)])
        children = await ending.enter_async_context(running(place, *roles))
        assert place.embedded is not None
        database = await asyncpg.connect(place.embedded.address.playbooks_dsn)
        ending.push_async_callback(database.close)
        api = await ending.enter_async_context(ClientSession(f"http://{LOOPBACK}:{port}", headers=headers))

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
