"""A TCP proxy in front of nats-server that can lose single messages on their way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy import CHUNK_BYTES, Proxy

Frame = bytes


class LossyProxy(Proxy):
    """Forwards both ways, except frames from the server for which ``loses`` holds."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.loses: Callable[[Frame], bool] = lambda frame: False
        self.lost = asyncio.Event()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def _to_server(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            target.write(data)
        target.close()

    async def _to_client(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            frame = line
            if line.startswith((b"MSG ", b"HMSG ")):
                frame += await source.readexactly(int(line.split()[-1]) + 2)
            if self.loses(frame):
                self.lost.set()
                continue
            target.write(frame)
        target.close()
