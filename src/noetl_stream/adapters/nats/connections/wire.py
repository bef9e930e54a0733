"""Raw messages over a nats-py client, by its public API only: the plain path.

:mod:`~noetl_stream.adapters.nats.connections.fast_path` does the same with less work per message (HOT_PATH §5
*Pull without fetch*, *Own parser*).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from noetl_stream.concurrency import end_tasks

log = logging.getLogger(__name__)

RawHandler = Callable[[bytes, bytes, bytes, bytes], None]
"""A handler of messages: subject, reply subject, header block (``b""``: none) and body. Must not block or raise."""

UNLIMITED = -1


class WireSubscription:
    """An active subscription to a subject."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def close(self) -> None:
        """Unsubscribes, and drops messages still in flight."""
        try:
            await self._subscription.unsubscribe()
        except NatsError as error:
            log.debug("unsubscribing: %s", error)

    async def drain(self) -> None:
        """Unsubscribes after messages still in flight were handled."""
        try:
            await self._subscription.drain()  # type: ignore[no-untyped-call]
        except NatsError as error:
            log.debug("draining a subscription: %s", error)


class PlainWire:
    """The sends of one client, in order, and its subscriptions. Messages sent while not connected are dropped; to store
    one, use :mod:`~noetl_stream.adapters.nats.outbox`, which holds and resends it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._outgoing: deque[tuple[str, bytes, str, dict[str, str] | None]] = deque()
        self._wake = asyncio.Event()
        self._writer = asyncio.get_running_loop().create_task(self._write())

    def send(self, subject: str, body: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Sends one message in this turn of the loop. Subjects and header values must not contain white space."""
        self._outgoing.append((subject, body, reply, dict(headers) if headers else None))
        self._wake.set()

    async def push(self) -> None:
        """Writes all messages and subscriptions so far to the socket: nats-py's own flush would overtake them."""
        while self._outgoing:  # noqa: ASYNC110  the writer takes them within a turn or two
            await asyncio.sleep(0)
        # One loop turn for nats-py's own writer.
        await asyncio.sleep(0)

    async def subscribe(self, subject: str, handler: RawHandler, group: str = "") -> WireSubscription:
        """Calls ``handler`` for each message of ``subject``. Active on the server after the next flush.

        Args:
            group: Subscriptions of the same group share the messages.
        """
        return WireSubscription(await self._subscribe(subject, handler, group))

    async def close(self) -> None:
        await end_tasks([self._writer])

    async def _subscribe(self, subject: str, handler: RawHandler, group: str) -> Subscription:
        async def call(message: Msg) -> None:
            try:
                handler(message.subject.encode(), message.reply.encode(), _header_block(message.headers), message.data)
            except Exception:
                log.exception("receiving a message on %s failed", message.subject)

        return await self._client.subscribe(
            subject, queue=group, cb=call, pending_msgs_limit=UNLIMITED, pending_bytes_limit=UNLIMITED
        )

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                subject, body, reply, headers = self._outgoing.popleft()
                if not self._client.is_connected:
                    continue
                try:
                    await self._client.publish(subject, body, reply, headers)
                except (NatsError, OSError, RuntimeError) as error:
                    log.debug("not sent to %s: %s", subject, error)


def _header_block(headers: Mapping[str, str] | None) -> bytes:
    if not headers:
        return b""
    fields = dict(headers)
    status = fields.pop("Status", "")
    text = fields.pop("Description", "").strip()
    first = f"NATS/1.0 {status} {text}".rstrip()
    return "".join([first, "\r\n", *(f"{name}: {value}\r\n" for name, value in fields.items()), "\r\n"]).encode()
