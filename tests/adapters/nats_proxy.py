"""A TCP proxy in front of nats-server that can lose single messages on their way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Frame = bytes


class LossyProxy:
    """Forwards both ways, except frames from the server for which ``loses`` holds."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[None]] = set()
        self.loses: Callable[[Frame], bool] = lambda frame: False
        self.lost = asyncio.Event()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def cut(self) -> None:
        """Cuts all connections; new ones are accepted."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()

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
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += [to_client, to_server]
        await asyncio.gather(self._copy(from_client, to_server), self._filter(from_server, to_client))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    async def _filter(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            frame = line
            if line.startswith((b"MSG ", b"HMSG ")):
                frame += await source.readexactly(int(line.split()[-1]) + 2)
            if self.loses(frame):
                self.lost.set()
                continue
            target.write(frame)
        target.close()
