"""An API that echoes its requests, and a token endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class CanaryApi:
    """Answers with the whole request; ``/refuse`` answers 403, ``/token`` and ``/guarded`` are OAuth 2.0.

    Args:
        tokens: Given out one after the other; only the last is taken by ``/guarded``.
    """

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._given = 0
        self.received: list[str] = []

    async def echo(self, request: web.Request) -> web.Response:
        received = {"url": request.raw_path, "headers": dict(request.headers), "body": await request.text()}
        self.received += [received["url"], received["body"], *request.headers.values()]
        return web.json_response(received, status=403 if request.path == "/refuse" else 200)

    async def token(self, request: web.Request) -> web.Response:
        value, self._given = self._tokens[self._given], self._given + 1
        return web.json_response({"access_token": value, "token_type": "Bearer", "expires_in": 3600})

    async def guarded(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        is_taken = authorization == f"Bearer {self._tokens[-1]}"
        return web.json_response({"you": authorization}, status=200 if is_taken else 401)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The base URL, while it serves."""
        application = web.Application()
        application.router.add_post("/token", self.token)
        application.router.add_get("/guarded", self.guarded)
        application.router.add_route("*", "/{anything:.*}", self.echo)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield "http://{}:{}".format(*runner.addresses[0])
        finally:
            await runner.cleanup()
