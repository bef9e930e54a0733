"""A proxy in front of a gateway that breaks connections where a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import ClientSession, web
from yarl import URL

from noetl_stream.adapters.clock import SystemClock


class FastClock(SystemClock):
    """A clock whose sleeps end at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class BrokenLine:
    """Forwards everything to ``url``; each of the first answers breaks off after some bytes of its body.

    Args:
        only: The suffix of the URLs whose answers break off.

    Attributes:
        seen: Method, path, Idempotency-Key and Last-Event-ID of each request.
    """

    def __init__(self, url: str, breaks: Iterable[int], only: str = "") -> None:
        self._url = URL(url)
        self.breaks = list(breaks)
        self._only = only
        self.seen: list[tuple[str, str, str | None, str | None]] = []
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[BrokenLine]:
        async with ClientSession() as self._session, serving(self._pass_on) as self.url:
            yield self

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = request.headers
        key, last = headers.get("Idempotency-Key"), headers.get("Last-Event-ID")
        self.seen.append((request.method, request.path, key, last))
        left = self.breaks.pop(0) if self.breaks and request.path.endswith(self._only) else None
        passed = {name: value for name, value in headers.items() if name not in ("Host", "Content-Length")}
        target = self._url.join(URL(request.raw_path, encoded=True))
        async with self._session.request(request.method, target, data=await request.read(), headers=passed) as found:
            answer = web.StreamResponse(status=found.status, headers={"Content-Type": found.headers["Content-Type"]})
            if left != 0:
                await answer.prepare(request)
            async for chunk in found.content.iter_any():
                if left is not None and len(chunk) >= left:
                    if left:
                        await answer.write(chunk[:left])
                    assert request.transport is not None
                    request.transport.close()
                    break
                left = None if left is None else left - len(chunk)
                await answer.write(chunk)
            return answer


@asynccontextmanager
async def serving(handler: Callable[[web.Request], object]) -> AsyncIterator[str]:
    """A server with one handler for everything. Yields its URL."""
    server = web.Server(handler, handler_cancellation=True)  # type: ignore[arg-type]
    runner = web.ServerRunner(server, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
