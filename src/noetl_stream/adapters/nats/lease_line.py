"""A connection in a separate thread, over which leases are renewed even while the worker's loop is busy.

Opened on first use; most workers never need it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque

from noetl_stream.adapters.nats.connection import NatsConnection
from noetl_stream.errors import NoetlError

log = logging.getLogger(__name__)

OPEN_AGAIN_AFTER_S = 1.0
WAITING_LIMIT = 10_000


class LeaseLine:
    """Sends short messages from any thread; drops what it cannot send, since renewals repeat."""

    def __init__(self, connection: NatsConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._guard = threading.Lock()
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=WAITING_LIMIT)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._closed = False

    def send(self, subject: str, body: bytes) -> None:
        """Sends soon; may be called from any thread."""
        with self._guard:
            if self._closed:
                return
            self._waiting.append((subject, body))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._poke()

    async def close(self) -> None:
        with self._guard:
            self._closed = True
            self._poke()
            thread = self._thread
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _poke(self) -> None:
        if self._loop is not None and self._wake is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            with self._guard:
                self._loop = self._wake = self._thread = None

    async def _serve(self) -> None:
        wake = asyncio.Event()
        with self._guard:
            self._loop, self._wake = asyncio.get_running_loop(), wake
        while not self._closed:
            try:
                connection = await self._connection.sibling(self._name)
            except NoetlError as error:
                log.warning("cannot renew leases from a separate thread yet: %s", error)
                await asyncio.sleep(OPEN_AGAIN_AFTER_S)
                continue
            try:
                await self._send_all(connection, wake)
            finally:
                await connection.close()

    async def _send_all(self, connection: NatsConnection, wake: asyncio.Event) -> None:
        ended = False

        def note_end() -> None:
            nonlocal ended
            ended = True
            wake.set()

        connection.on_ended(note_end)
        while not self._closed and not ended:
            while self._waiting:
                connection.wire.send(*self._waiting.popleft())
            await wake.wait()
            wake.clear()
