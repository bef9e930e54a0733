"""Counts what a Postgres connection receives, as it arrives, and ends the connection at a bound.

The driver keeps all rows of a statement, and the whole of a message, before anybody sees them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from noetl_stream.tools.contract import ToolFailure

MAX_BESIDE_BYTES: Final = 16 * 1024 * 1024
"""What may arrive outside of statements: answers about types, to a reset, and notices."""
SLACK_BYTES: Final = 256 * 1024
"""What may arrive with a statement beside its rows: the description of its columns, the parts of messages."""


class ReceivedBytes(asyncio.Protocol):
    """Stands between a transport and the driver's protocol.

    Attributes:
        has_exceeded: Whether the connection was ended at the bound.
    """

    def __init__(self, driver: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._driver = driver
        self._transport = transport
        self._left_bytes = MAX_BESIDE_BYTES
        self.has_exceeded = False
        transport.set_protocol(self)

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

    def data_received(self, data: bytes) -> None:
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self.has_exceeded = True
            self._transport.abort()
        else:
            self._driver.data_received(data)

    def eof_received(self) -> bool | None:
        return self._driver.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._driver.connection_lost(error)

    def pause_writing(self) -> None:
        self._driver.pause_writing()

    def resume_writing(self) -> None:
        self._driver.resume_writing()
