"""A server of HTTP for tasks with files, tables and streams, and a client that runs such tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from aiohttp import web

from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.http.tool import HttpTool

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY = b"id,name\n" + b"1,Ada\n" * 50_000
CHECKSUM = f"sha256:{sha256(BODY).hexdigest()}"


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


class Server:
    """A server of one file, and the requests that it saw."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""
        self.is_left = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        assert self.handler is not None
        return await self.handler(request)

    def answer(self, body: bytes = BODY, **response: Any) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, **response)

        self.handler = handler

    def say(self, *pieces: bytes, content_type: str = "application/x-ndjson", stays_open: bool = False) -> None:
        """Answers in pieces; a connection that stays open says nothing more."""

        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": content_type})
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
            if stays_open:
                await self.is_left.wait()
            return response

        self.handler = handler

    def say_events(self, *events: bytes, times: int) -> None:
        """Answers with the first of these events that follows the last one that the client names, and half of the next;
        each time but the last ones it breaks off then.
        """
        breaks = 0

        async def handler(request: web.Request) -> web.StreamResponse:
            nonlocal breaks
            left = events[int(request.headers.get("Last-Event-ID", 0)) :]
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            breaks += 1
            if breaks > times:
                await response.write(b"".join(left))
                return response
            await response.write(b"".join(left[:1]) + b"".join(left[1:2])[:-2])
            for _ in range(100):
                await asyncio.sleep(0)  # so that it is read
            assert request.transport is not None
            request.transport.abort()
            return response

        self.handler = handler

    def break_off(self, *, at: int, times: int, headers: dict[str, str], changed: bytes = b"") -> None:
        """Answers with ranges, and breaks off the first answers after some bytes."""
        broken = 0

        async def handler(request: web.Request) -> web.StreamResponse:
            nonlocal broken
            asked = request.headers.get("Range", "bytes=0-")
            first = int(asked.removeprefix("bytes=").rstrip("-"))
            if changed and first:
                return web.Response(body=changed, headers=headers)
            ranged = {"Content-Range": f"bytes {first}-{len(BODY) - 1}/{len(BODY)}"} if first else {}
            response = web.StreamResponse(status=206 if first else 200, headers={**headers, **ranged})
            response.content_length = len(BODY) - first
            await response.prepare(request)
            if broken < times:
                broken += 1
                await response.write(BODY[first : first + at])
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(BODY[first:])
            return response

        self.handler = handler


@asynccontextmanager
async def served() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application(client_max_size=10**9)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    made.is_left.set()
    await runner.cleanup()


class Client:
    """The tool, and the files of its tasks."""

    def __init__(self, tool: HttpTool) -> None:
        self.files = FilesInMemory()
        self._tool = tool

    async def send(self, knobs: Any = None, **inputs: Any) -> Any:
        return (await self._tool.run(tool_call(inputs, knobs=knobs, data=self.files))).result

    async def content(self, file: Any) -> bytes:
        reference = self.files.reference(file)
        assert reference is not None
        return b"".join([part async for part in self.files.read(reference)])
