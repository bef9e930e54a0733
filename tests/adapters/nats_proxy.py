"""A TCP proxy in front of nats-server that can lose single messages on their way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy import Proxy

Frame = bytes


class LossyProxy(Proxy):
    """Forwards both ways, except frames from the server for which ``loses`` holds.

    Attributes:
        published: How many messages with headers, as those of streams are, went to the server.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.loses: Callable[[Frame], bool] = lambda frame: False
        self.lost = asyncio.Event()
        self.published = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def _to_server(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            frame = line
            if line.startswith((b"PUB ", b"HPUB ")):
                frame += await source.readexactly(int(line.split()[-1]) + 2)
                self.published += line.startswith(b"HPUB ")
            target.write(frame)
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
