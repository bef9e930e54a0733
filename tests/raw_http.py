"""A server that sends any bytes as the answer to an HTTP request, also such as no server should send."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

Answer = bytes | Callable[[bytes], bytes]


class RawServer:
    """Each connection gets ``answer``, or what that makes of the request, and is closed. ``seen`` has the requests."""

    def __init__(self) -> None:
        self.answer: Answer = b""
        self.seen: list[bytes] = []
        self.url = ""

    @property
    def targets(self) -> list[str]:
        """The targets of the requests, as they came."""
        return [request.split(b" ", 2)[1].decode("ascii") for request in self.seen]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line.split(b":", 1) for line in head.lower().split(b"\r\n") if b":" in line]
            length = next((int(value) for name, value in lines if name == b"content-length"), 0)
            request = head + await reader.readexactly(length)
            self.seen.append(request)
            writer.write(self.answer if isinstance(self.answer, bytes) else self.answer(request))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone, as it may
        finally:
            writer.close()


@asynccontextmanager
async def raw_server() -> AsyncIterator[RawServer]:
    """One on a port of its own."""
    server = RawServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server


@contextmanager
def raw_server_in_thread() -> Iterator[RawServer]:
    """One for a test that is no coroutine."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = raw_server()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def answer(body: bytes = b"", *headers: bytes, status: int = 200) -> bytes:
    """A whole answer, of a length that its headers say."""
    lines = [b"HTTP/1.1 %d X" % status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
