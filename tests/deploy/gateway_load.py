"""Clients of a gateway that is away at times: each asks again, by the same key, until it is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.executions import GatewayExecutions
from noetl_stream.errors import NoetlError
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions, RequestIds, Start

AT_ONCE = 6
PATIENCE_S = 240.0
"""Far beyond what a few executions take; only a failing test takes this long."""

WAIT_S = 10.0
ENDED = ("completed", "failed", "cancelled", "quarantined")
PATH = "tests/containers"

PYTHON = {"kind": "python", "args": {"n": "{{ iter.n }}"}, "code": "result = n + 1"}
PLAYBOOK = json.dumps(
    {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "containers", "path": PATH},
        "workflow": [
            {"step": "first", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "second"}]}},
            {
                "step": "second",
                "loop": {"in": "{{ [0, 1] }}", "iterator": "n"},
                "tool": PYTHON,
                "next": {"arcs": [{"step": "third"}]},
            },
            {"step": "third", "tool": {"kind": "noop"}},
        ],
    }
)


class GatewayLoad:
    """``ended`` are executions with the status in which they ended."""

    def __init__(self, url: str, token: str) -> None:
        self.ended: dict[str, str] = {}
        self._connection = GatewayConnection(url, token, SystemClock())
        self._executions = GatewayExecutions(Executions, self._connection)
        self._finishing = False
        self._progress = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GatewayLoad]:
        """At the end of the block every execution that was asked for has ended."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(AT_ONCE):
                clients.create_task(self._start_and_wait())
            yield self
            self._finishing = True

    async def close(self) -> None:
        await self._connection.close()

    async def more(self, count: int = 2 * AT_ONCE) -> None:
        """Waits until so many more executions have ended."""
        wanted = len(self.ended) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.ended) < wanted:
                self._progress.clear()
                await self._progress.wait()

    async def known(self) -> dict[str, str]:
        """All executions that the gateway knows, with their status."""
        found: dict[str, str] = {}
        cursor = None
        while True:
            page = await self._executions.page(ExecutionFilter(path=PATH), 100, cursor)
            found |= {one.execution_id: one.status for one in page.items}
            cursor = page.next
            if cursor is None:
                return found

    async def _start_and_wait(self) -> None:
        while not self._finishing:
            async with asyncio.timeout(PATIENCE_S):
                execution_id, status = await self._started(), ""
                while status not in ENDED:
                    try:
                        status = (await self._executions.wait(execution_id, WAIT_S)).status
                    except NoetlError:
                        await asyncio.sleep(0)
            self.ended[execution_id] = status
            self._progress.set()

    async def _started(self) -> str:
        ids = RequestIds("", self._connection.new_key())
        while True:
            try:
                return (await self._executions.start(Start(playbook=PLAYBOOK), "", ids)).execution_id
            except NoetlError:
                await asyncio.sleep(0)
