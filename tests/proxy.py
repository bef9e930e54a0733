"""A TCP proxy on loopback in front of a server there."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

CHUNK_BYTES = 65536


class Proxy(ABC):
    """Forwards connections to ``port``; subclasses say how."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def cut(self) -> None:
        """Cuts all connections. What is under way is lost; new connections are accepted."""
        for task in self._serving:
            task.cancel()

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
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                await asyncio.gather(self._to_server(from_client, to_server), self._to_client(from_server, to_client))
            finally:
                to_server.close()
        except OSError:
            pass  # one side has gone, and with it the connection
        finally:
            to_client.close()

    @abstractmethod
    async def _to_server(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Carries what the client sends, to its end."""

    @abstractmethod
    async def _to_client(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Carries what the server sends, to its end."""
