"""A server outside of the engine that writes down each effect of a task, by its idempotency key."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from noetl_testkit.history.recorder import Recorder

MAX_BODY_BYTES = 1024 * 1024

TAKES_S = 0.2
"""How long an answer takes, so that faults strike between an effect and its report."""


class Ledger:
    """Takes ``POST /<start>/<execution>/<step>`` with ``{"n": …}``, answers ``{"n": … + 1}``.

    Attributes:
        effects: When each effect happened, in monotonic seconds, by execution and ``Idempotency-Key``.
    """

    def __init__(self, history: Recorder) -> None:
        self._history = history
        self.effects: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.url = ""

    async def write(self, request: web.Request) -> web.Response:
        body = await request.json()
        key, where = request.headers["Idempotency-Key"], request.match_info
        self.effects[where["execution"]][key].append(time.monotonic())
        self._history.note("effect", key=key, **where)
        await asyncio.sleep(TAKES_S)
        return web.json_response({"n": body["n"] + 1})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Ledger]:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_post("/{start}/{execution}/{step}", self.write)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        self.url = "http://{}:{}".format(*runner.addresses[0])
        try:
            yield self
        finally:
            await runner.cleanup()
