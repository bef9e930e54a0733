"""Restate on this machine: its server, one service process, and the same load that ``noetl-stream bench`` has.

    python restate_stack.py SERVER PROTOCOL

SERVER is the program, PROTOCOL how it speaks with the service: ``bidi`` or ``request_response``. Prints one line of
JSON: steps per second, microseconds of CPU per step by process, the median latency of an execution, and the seconds
from the first process to the first result in an empty folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
import psutil

EXECUTIONS: Final = 500
STEPS: Final = 3
LATENCY_RUNS: Final = 30
CONNECTIONS: Final = 200
POLL_S: Final = 0.01


class Restate:
    """A running server with its service."""

    def __init__(self, folder: Path, server: str, protocol: str, processes: ExitStack) -> None:
        self._ingress, self._admin, node, self._service = (free_port() for _ in range(4))
        settings = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "warn",
        }
        words = [server, "--no-logo", "--base-dir", str(folder)]
        hypercorn = [sys.executable, "-m", "hypercorn", "--bind", f"127.0.0.1:{self._service}", "service:app"]
        here = Path(__file__).parent
        self.groups = {
            "server": processes.enter_context(running(words, settings, folder)),
            "worker": processes.enter_context(running(hypercorn, {"PROTOCOL": protocol}, here)),
            "client": psutil.Process(),
        }

    async def register(self, session: aiohttp.ClientSession) -> None:
        """Waits for both, and tells the server of the service."""
        deployment = {"uri": f"http://127.0.0.1:{self._service}", "force": True}
        while not await self._answers(session, f"http://127.0.0.1:{self._admin}/deployments", deployment):  # noqa: ASYNC110  # it tells nobody when it is ready
            await asyncio.sleep(POLL_S)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """One execution, until its result."""
        while not await self._answers(session, f"http://127.0.0.1:{self._ingress}/chain/run", STEPS):  # noqa: ASYNC110  # it tells nobody when it is ready
            await asyncio.sleep(POLL_S)

    def spent_s(self) -> dict[str, float]:
        """CPU seconds so far."""
        found = {}
        for name, root in self.groups.items():
            family = [root] if name == "client" else [root, *root.children(recursive=True)]
            found[name] = sum(sum(process.cpu_times()[:2]) for process in family)
        return found

    async def _answers(self, session: aiohttp.ClientSession, url: str, body: object) -> bool:
        try:
            async with session.post(url, json=body) as response:
                await response.read()
                return response.status < 300
        except aiohttp.ClientConnectionError:
            return False


@contextmanager
def running(words: list[str], settings: dict[str, str], folder: Path) -> Iterator[psutil.Process]:
    process = subprocess.Popen(
        words, env=os.environ | settings, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    root = psutil.Process(process.pid)
    try:
        yield root
    finally:
        for one in (*root.children(recursive=True), root):  # hypercorn's workers outlive it
            one.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def measured(server: str, protocol: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        began = time.perf_counter()
        restate = Restate(Path(folder), server, protocol, processes)
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            await restate.register(session)
            await restate.run(session)
            cold_s = time.perf_counter() - began
            await burst(restate, session, 200)
            before = restate.spent_s()
            seconds = await burst(restate, session, EXECUTIONS)
            spent = {name: after - before[name] for name, after in restate.spent_s().items()}
            waits = [await burst(restate, session, 1) for _ in range(LATENCY_RUNS)]
    steps = EXECUTIONS * STEPS
    return {
        "steps_per_s": steps / seconds,
        "cpu_us_per_step": {name: value / steps * 1e6 for name, value in spent.items()},
        "p50_ms": median(waits) * 1e3,
        "cold_s": cold_s,
    }


async def burst(restate: Restate, session: aiohttp.ClientSession, count: int) -> float:
    """Seconds from the first request to the last result."""
    began = time.perf_counter()
    await asyncio.gather(*(restate.run(session) for _ in range(count)))
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], sys.argv[2]))))
