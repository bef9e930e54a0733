"""A count of the bytes that a Postgres connection receives, from its first byte, with a bound at which it ends.

The driver keeps all rows of a statement, and the whole of a message, before anybody sees them. It creates its protocol
itself, so the loop that it connects with inserts a counter in front of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from noetl_stream.tools.contract import ToolFailure

MAX_BESIDE_BYTES: Final = 16 * 1024 * 1024
"""The bytes that may arrive outside of statements: before the connection is open, for types, resets and notices."""
SLACK_BYTES: Final = 256 * 1024
"""The bytes that may arrive with a statement in addition to its rows: column descriptions and parts of messages."""


class ReceivedBytes(asyncio.Protocol):
    """A protocol between a transport and the driver's protocol.

    Attributes:
        driver: The driver's protocol.
        has_exceeded: Whether the connection was ended at the bound.
    """

    def __init__(self, driver: asyncio.Protocol) -> None:
        self.driver = driver
        self._left_bytes = MAX_BESIDE_BYTES
        self._transport: asyncio.BaseTransport | None = None
        self.has_exceeded = False

    @contextmanager
    def at_most(self, max_bytes: int, failure: Callable[[], ToolFailure]) -> Iterator[None]:
        """Ends the connection if more arrives during the context, which then fails with ``failure``."""
        self._left_bytes = max_bytes + SLACK_BYTES
        try:
            yield
        except Exception:
            if self.has_exceeded:
                raise failure() from None
            raise
        finally:
            self._left_bytes = MAX_BESIDE_BYTES

    def renew(self, max_bytes: int) -> None:
        """Counts from here, in a context of :meth:`at_most`: what came before is no longer in memory."""
        self._left_bytes = max_bytes + SLACK_BYTES

    def stand_before(self, transport: asyncio.Transport) -> None:
        """Becomes the protocol of an open connection."""
        self._transport = transport
        transport.set_protocol(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.driver.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self.has_exceeded = True
            cast("asyncio.Transport", self._transport).abort()
        else:
            self.driver.data_received(data)

    def eof_received(self) -> bool | None:
        return self.driver.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.driver.connection_lost(error)

    def pause_writing(self) -> None:
        self.driver.pause_writing()

    def resume_writing(self) -> None:
        self.driver.resume_writing()


class CountedTransport:
    """A transport whose protocol, set by the driver, is counted.

    Attributes:
        received: The counter.
    """

    def __init__(self, transport: asyncio.Transport, received: ReceivedBytes) -> None:
        self.transport = transport
        self.received = received

    def set_protocol(self, driver: asyncio.Protocol) -> None:
        self.received = ReceivedBytes(driver)
        self.received.stand_before(self.transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class CountingLoop:
    """The running loop, for a driver that connects with it: its connections are counted.

    Attributes:
        loop: The loop itself.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def create_connection(self, make: Callable[[], asyncio.Protocol], *place: Any, **given: Any) -> Any:
        return _counted(await self.loop.create_connection(lambda: ReceivedBytes(make()), *place, **given))

    async def create_unix_connection(self, make: Callable[[], asyncio.Protocol], path: str, **given: Any) -> Any:
        return _counted(await self.loop.create_unix_connection(lambda: ReceivedBytes(make()), path, **given))

    async def start_tls(self, counted: CountedTransport, driver: asyncio.Protocol, *given: Any, **named: Any) -> Any:
        encrypted = await self.loop.start_tls(counted.transport, driver, *given, **named)
        return None if encrypted is None else CountedTransport(encrypted, ReceivedBytes(driver))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


def _counted(made: tuple[asyncio.Transport, ReceivedBytes]) -> tuple[CountedTransport, asyncio.Protocol]:
    transport, received = made
    return CountedTransport(transport, received), received.driver
