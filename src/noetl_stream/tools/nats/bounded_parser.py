"""nats-py's parser with a bound: the library keeps as much of a message as the server announces."""

from __future__ import annotations

from typing import Final

from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a message: the largest that nats-server can be configured for."""
_MAX_LINE_BYTES: Final = 1024 * 1024
"""The most bytes of a line of the protocol, which the library searches again for each part that arrives."""


class BoundedParser(Parser):
    """A parser that ends its connection at a message or line above the bounds.

    Attributes:
        has_exceeded: Whether a bound was exceeded.
    """

    has_exceeded = False

    async def parse(self, data: bytes = b"") -> None:
        most = _MAX_LINE_BYTES if self.state == AWAITING_CONTROL_LINE else MAX_MESSAGE_BYTES
        if len(self.buf) + len(data) > most:
            self.has_exceeded = True
            raise ProtocolError
        await super().parse(data)
