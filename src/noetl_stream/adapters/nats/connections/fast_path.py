"""The fast path: a parser for the program's own subscriptions, one write per loop turn; alone in using nats-py's
internals.

nats-py runs several regular expressions, awaits and a queue hop per message; this calls a plain function. Everything
else (other subscriptions, PING, INFO, errors) goes to nats-py's own parser unchanged. HOT_PATH §5 *Own parser*.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, cast

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from noetl_stream.adapters.nats.connections.wire import PlainWire, RawHandler, WireSubscription

log = logging.getLogger(__name__)

KNOWN_RELEASE = "2.16."
"""The release of nats-py whose internals are used here; others get the plain path."""

_CRLF = b"\r\n"
_MESSAGE = ord("M")
_MESSAGE_WITH_HEADERS = ord("H")


def fast_path_fits(client: Client) -> bool:
    """Returns whether this client is of that release and uses plain TCP or TLS."""
    insides = ("_ps", "_transport", "_pending", "_pending_data_size")
    return (
        version("nats-py").startswith(KNOWN_RELEASE)
        and all(hasattr(client, name) for name in insides)
        and isinstance(client._transport, TcpTransport)
    )


class FastWire(PlainWire):
    """A :class:`PlainWire` with its own parser and writer. Must be created right after the client has connected."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._inside = cast(Any, client)
        self._parser = FrameParser(self._inside._ps)
        self._inside._ps = self._parser

    def send(self, subject: str, body: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        target = f"{subject} {reply}" if reply else subject
        if headers:
            fields = "NATS/1.0\r\n"
            for name, value in headers.items():
                fields += f"{name}: {value}\r\n"
            block = f"{fields}\r\n".encode()
            head = f"HPUB {target} {len(block)} {len(block) + len(body)}\r\n".encode()
        else:
            block = b""
            head = f"PUB {target} {len(body)}\r\n".encode()
        if not self._frames:
            self._loop.call_soon(self._write_frames)
        if self._inside._pending:
            self._take_over_pending()
        self._frames += (head, block, body, _CRLF)

    async def push(self) -> None:
        if self._frames or self._inside._pending:
            self._take_over_pending()
            self._write_frames()

    async def subscribe(self, subject: str, handler: RawHandler, group: str = "") -> WireSubscription:
        subscription = await self._subscribe(subject, handler, group)
        sid = str(subscription._id).encode()
        self._parser.ours[sid] = handler
        return FastSubscription(subscription, self._parser, sid)

    def _take_over_pending(self) -> None:
        """Writes nats-py's pending output first: its SUB of an inbox must precede a PUB that names it."""
        if self._client.is_connected:
            self._frames += self._inside._pending
            self._inside._pending = []
            self._inside._pending_data_size = 0

    def _write_frames(self) -> None:
        frames, self._frames = self._frames, []
        transport = self._inside._transport
        if not self._client.is_connected or transport is None:
            return
        try:
            transport.write(b"".join(frames))
        except (OSError, RuntimeError):
            # The socket has just closed and nats-py has not noticed yet: treat it as not connected.
            return


class FastSubscription(WireSubscription):
    def __init__(self, subscription: Subscription, parser: FrameParser, sid: bytes) -> None:
        super().__init__(subscription)
        self._parser = parser
        self._sid = sid

    async def close(self) -> None:
        self._parser.ours.pop(self._sid, None)
        await super().close()

    async def drain(self) -> None:
        await super().drain()
        self._parser.ours.pop(self._sid, None)


class FrameParser:
    """Replaces nats-py's parser: nats-py only calls ``parse`` and ``reset``."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.ours: dict[bytes, RawHandler] = {}
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._needed = 0

    def reset(self) -> None:
        """Resets the parser for a new connection."""
        self._waiting = []
        self._waiting_size = 0
        self._needed = 0
        self._original.reset()

    async def parse(self, data: bytes = b"") -> None:
        """Handles every complete frame; keeps an incomplete one for the next call."""
        if self._waiting:
            self._waiting.append(data)
            self._waiting_size += len(data)
            if self._waiting_size < self._needed:
                return
            data = b"".join(self._waiting)
        at = await self._handle_frames(data)
        rest = data[at:]
        self._waiting = [rest] if rest else []
        self._waiting_size = len(rest)

    async def _handle_frames(self, data: bytes) -> int:
        ours = self.ours
        size = len(data)
        at = 0
        while True:
            line_end = data.find(_CRLF, at)
            if line_end < 0:
                self._needed = size - at + 1
                return at
            body_at = line_end + 2
            kind = data[at]
            if kind != _MESSAGE and kind != _MESSAGE_WITH_HEADERS:
                await self._original.parse(data[at:body_at])
                at = body_at
                continue
            words = data[at:line_end].split(b" ")
            end = body_at + int(words[-1])
            if end + 2 > size:
                self._needed = end + 2 - at
                return at
            handler = ours.get(words[2])
            if handler is None:
                await self._original.parse(data[at : end + 2])
            else:
                try:
                    if kind == _MESSAGE:
                        handler(words[1], words[3] if len(words) == 5 else b"", b"", data[body_at:end])
                    else:
                        headers_end = body_at + int(words[-2])
                        reply = words[3] if len(words) == 6 else b""
                        handler(words[1], reply, data[body_at:headers_end], data[headers_end:end])
                except Exception:
                    # Raised further, it would silently end nats-py's read loop.
                    log.exception("receiving a message on %s failed", words[1])
            at = end + 2
