"""Transient messages over core NATS."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.connections.wire import WireSubscription
from noetl_stream.adapters.nats.protocol import NO_RESPONDERS
from noetl_stream.concurrency import end_tasks, set_within
from noetl_stream.ports.streams.bus import Handler, Subscription

log = logging.getLogger(__name__)


class NatsBus:
    """:class:`~noetl_stream.ports.streams.bus.Bus` over core NATS; the port documents each method."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    def send(self, subject: str, body: bytes) -> None:
        self._connection.wire.send(subject, body)

    async def flush(self) -> None:
        await self._connection.flush()

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes | None:
        try:
            answer = await self._connection.request(subject, body, timeout_s)
        except TimeoutError:
            return None
        return answer.data if answer is not None else None

    async def ask_all(self, subject: str, body: bytes, wait_s: float) -> list[bytes]:
        client, answers, clock = self._connection.client, [], asyncio.get_running_loop().time
        no_responders = asyncio.Event()

        async def take(message: Msg) -> None:
            if message.headers and message.headers.get("Status") == str(NO_RESPONDERS):
                no_responders.set()
            else:
                answers.append(message.data)

        try:
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox, cb=take)
            try:
                await client.publish(subject, body, inbox)
                asked_s = clock()
                await self.flush()
                # An answer may be as old as this client's backlog.
                await set_within(no_responders, wait_s + 2 * (clock() - asked_s))
            finally:
                await subscription.unsubscribe()
        except (NatsError, OSError) as error:
            raise self._connection.unreachable(error) from error
        return answers

    async def listen(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Subscribes ``handler``. Its errors are logged, and the next message is handled.

        Raises:
            NotPermitted: this user may not subscribe there.
            Unreachable: the server did not confirm in time.
        """

        connection, listener = self._connection, _Listener(handler)
        with connection.refusals.until_refused("subscribe", subject) as refused:
            try:
                listener.subscription = await connection.wire.subscribe(subject, listener.receive, group)
            except (NatsError, OSError) as error:
                raise connection.unreachable(error) from error
            await connection.flush()
            if refused.done():
                raise connection.refusals.error("subscribe", subject)
        return listener


class _Listener:
    """Calls a handler for each message, one after the other. Its asyncio task ends when no message is left."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._arrived: deque[tuple[bytes, bytes, bytes]] = deque()
        self._handling: asyncio.Task[None] | None = None
        self.subscription: WireSubscription | None = None

    def receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        self._arrived.append((subject, body, reply))
        if self._handling is None:
            self._handling = asyncio.get_running_loop().create_task(self._handle_all())

    async def close(self) -> None:
        """Unsubscribes, drops messages not handled yet, and cancels the handler, unless the handler calls this."""
        if self.subscription is not None:
            await self.subscription.close()
        self._arrived.clear()
        if self._handling is not None and self._handling is not asyncio.current_task():
            await end_tasks([self._handling])

    async def _handle_all(self) -> None:
        try:
            while self._arrived:
                subject, body, reply = self._arrived.popleft()
                try:
                    await self._handler(subject.decode(), body, reply.decode())
                except Exception:
                    log.exception("handling a message on %s failed", subject.decode())
        finally:
            self._handling = None
