"""A local API of pages: every path holds five rows, of which the first answer to each page may be 503."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

ROWS = 5


class PagesApi:
    """Answers ``{data, paging: {hasMore, page, pageSize}}``; ``fails_first``: a path's first request gets a 503."""

    def __init__(self) -> None:
        self.url = ""
        self.fails_first = ""
        self.asked: list[tuple[str, int]] = []

    async def handle(self, request: web.Request) -> web.Response:
        """One page."""
        page, size = int(request.query.get("page", "1")), int(request.query.get("pageSize", "10"))
        self.asked.append((request.path, page))
        if request.path == self.fails_first:
            self.fails_first = ""
            return web.json_response({"wrong": "busy"}, status=503)
        rows = [f"{request.path[1:]}{number}" for number in range(ROWS)][(page - 1) * size : page * size]
        paging = {"hasMore": page * size < ROWS, "page": page, "pageSize": size}
        return web.json_response({"data": rows, "paging": paging})


@asynccontextmanager
async def pages_api() -> AsyncIterator[PagesApi]:
    """The API on a free port."""
    api = PagesApi()
    app = web.Application()
    app.router.add_get("/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
