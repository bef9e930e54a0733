"""A TCP line to a server on loopback on which every byte takes its time, each way, or is held up, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from proxy import CHUNK_BYTES, Proxy


class SlowLine(Proxy):
    """
    Attributes:
        delay_s: How long what is sent now takes, in each direction: half of the round trip.
    """

    def __init__(self, port: int, delay_s: float) -> None:
        super().__init__(port)
        self.delay_s = delay_s
        self._passing = asyncio.Event()
        self._passing.set()

    def hold(self) -> None:
        """Lets nothing through, in neither direction, until :meth:`release`. Connections stay open."""
        self._passing.clear()

    def release(self) -> None:
        """Lets through what was held up, and all that follows."""
        self._passing.set()

    async def _to_server(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
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

    _to_client = _to_server


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
