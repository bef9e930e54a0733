"""Clients that start executions one after the other, and a ledger of what these have done to the world."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.executions import MAX_WAIT_S, GatewayExecutions
from noetl_stream.ports.operations.executions import Executions, Start

STEPS = ("first", "second", "third")
AT_ONCE = 6
PATIENCE_S = 120.0
"""Far beyond what a few executions take; only a failing test takes this long."""

ENDED = ("completed", "failed", "cancelled")


class Ledger:
    """Counts effects: requests of steps, by execution and step."""

    def __init__(self) -> None:
        self.effects: Counter[tuple[str, str]] = Counter()
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Ledger]:
        application = web.Application()
        application.router.add_post("/{execution}/{step}", self._enter)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        yield self
        await runner.cleanup()

    async def _enter(self, request: web.Request) -> web.Response:
        effect = (request.match_info["execution"], request.match_info["step"])
        self.effects[effect] += 1
        return web.json_response({"entered": self.effects[effect]})


def playbook(ledger: Ledger) -> str:
    """Steps that each have one effect; the second is a loop of two iterations."""
    workflow: list[dict[str, Any]] = []
    for step, following in zip(STEPS, (*STEPS[1:], None), strict=True):
        name = f"{step}-{{{{ iter.n }}}}" if step == "second" else step
        tool = {"kind": "http", "method": "POST", "url": f"{ledger.url}/{{{{ execution_id }}}}/{name}"}
        loop = {"loop": {"in": "{{ [0, 1] }}", "iterator": "n"}} if step == "second" else {}
        arcs = {"next": {"arcs": [{"step": following}]}} if following else {}
        workflow.append({"step": step, **loop, "tool": tool, **arcs})
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "rolling", "path": "tests/rolling"}}
    return json.dumps({**head, "workflow": workflow})


EFFECTS = ("first", "second-0", "second-1", "third")


class Load:
    """Clients of a gateway. ``ended`` are executions with the status in which they ended."""

    def __init__(self, url: str, token: str, source: str) -> None:
        self.ended: dict[str, str] = {}
        self._source = source
        self._connection = GatewayConnection(url, token, SystemClock())
        self._executions = GatewayExecutions(Executions, self._connection)
        self._finishing = False
        self._progress = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """Errors of a client end the block. At its end every execution that was started has ended."""
        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(AT_ONCE):
                    clients.create_task(self._start_and_wait())
                yield self
                self._finishing = True
        finally:
            await self._connection.close()

    async def more(self, count: int) -> None:
        """Waits until so many more executions have ended."""
        wanted = len(self.ended) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.ended) < wanted:
                self._progress.clear()
                await self._progress.wait()

    async def _start_and_wait(self) -> None:
        while not self._finishing:
            found = await self._executions.start(Start(playbook=self._source, workload={}, ctx={}), "")
            while found.status not in ENDED:
                found = await self._executions.wait(found.execution_id, MAX_WAIT_S)
            self.ended[found.execution_id] = found.status
            self._progress.set()
