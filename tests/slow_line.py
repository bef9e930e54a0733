"""A TCP line to a server on loopback on which every byte takes its time, each way, or is held up, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65536


class SlowLine:
    """Forwards connections to ``port``.

    Attributes:
        delay_s: How long what is sent now takes, in each direction: half of the round trip.
    """

    def __init__(self, port: int, delay_s: float) -> None:
        self.delay_s = delay_s
        self._port = port
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()

    def hold(self) -> None:
        """Lets nothing through, in neither direction, until :meth:`release`. Connections stay open."""
        self._passing.clear()

    def release(self) -> None:
        """Lets through what was held up, and all that follows."""
        self._passing.set()

    def cut(self) -> None:
        """Cuts all connections. What is under way is lost; new connections are accepted."""
        for task in self._serving:
            task.cancel()

    @property
    def port(self) -> int:
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        serving = asyncio.get_running_loop().create_task(self._serve(from_client, to_client))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(self._carry(from_client, to_server), self._carry(from_server, to_client))
            finally:
                to_server.close()
        except OSError:
            pass  # one side has gone, and with it the line
        finally:
            to_client.close()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def arrive() -> None:
            while True:
                due_s, data = await under_way.get()
                await asyncio.sleep(due_s - loop.time())
                await self._passing.wait()
                if not data:
                    target.close()
                    return
                target.write(data)

        arriving = asyncio.create_task(arrive())
        try:
            while data := await source.read(CHUNK_BYTES):
                under_way.put_nowait((loop.time() + self.delay_s, data))
            under_way.put_nowait((loop.time() + self.delay_s, b""))
            await arriving
        finally:
            arriving.cancel()


@asynccontextmanager
async def slow_line(url: str, delay_s: float) -> AsyncIterator[str]:
    """The URL under which the server of ``url``, on loopback, answers after twice ``delay_s``."""
    parts = urlsplit(url)
    assert parts.port is not None
    line = SlowLine(parts.port, delay_s)
    await line.open()
    try:
        yield urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{line.port}")))
    finally:
        await line.close()
