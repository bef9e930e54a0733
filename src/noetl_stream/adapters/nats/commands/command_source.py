"""Deliveries of a pool's commands, across lost connections, consumers and servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping

from noetl_stream.adapters.nats.commands.pool_consumer import (
    PoolConsumers,
    consumer_of,
    ensure_consumers,
    find_consumers,
)
from noetl_stream.adapters.nats.commands.priority_requests import LOOK_AGAIN_S, SPARE_PART, PriorityRequests
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.connections.wire import WireSubscription
from noetl_stream.adapters.nats.protocol import HEARTBEAT, NANOSECONDS, parse_metadata, parse_status
from noetl_stream.adapters.nats.pull import SHORT_EXPIRES_S, Pull, counted_bytes
from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.protocol.subjects import COMMANDS, NEW_PRIORITY
from noetl_stream.retries import pauses

log = logging.getLogger(__name__)

ACK_WAIT_S = 30.0
HEARTBEAT_S = 5.0
RESTART_WAIT_S = 0.5
LONGEST_RESTART_WAIT_S = 4.0
"""The longest wait before a source, or the connection of its leases, is reopened: a lease is short."""

OPEN_AGAIN_AFTER_S = 1.0

LAST_ANSWER_S = 1.0
"""The time in which the answer to an ended request may still arrive."""

FIND_PRIORITIES_S = 30.0
"""The interval at which a worker looks for unannounced priorities."""

WAITING_LIMIT = 10_000

MAX_HELD_BYTES = 48 * 1024 * 1024
"""The bytes of commands that a worker holds or has requested. Above it slots stay free until other commands are
answered: NATS cuts off a client that has more than ``max_pending``, by default 64 MiB, to read.
"""

_ACK = b"+ACK"
_IN_PROGRESS = b"+WPI"


class NatsDelivery:
    """A :class:`~noetl_stream.ports.streams.command_queue.Delivery`."""

    __slots__ = (
        "_held",
        "_is_answered",
        "_priority",
        "_reply",
        "_source",
        "_subject",
        "body",
        "num_delivered",
        "stored_ms",
    )

    def __init__(self, source: NatsCommandSource, subject: bytes, reply: bytes, body: bytes, priority: int) -> None:
        self.body = body
        self._priority = priority
        self._subject = subject
        metadata = parse_metadata(reply)
        self.num_delivered = metadata.num_delivered
        self.stored_ms = metadata.stored_ms
        self._source = source
        self._reply = reply.decode()
        self._held = len(body)
        self._is_answered = False

    @property
    def subject(self) -> str:
        return self._subject.decode()

    def ack(self) -> None:
        self._answer(_ACK)

    def nak(self, delay_s: float = 0.0) -> None:
        delay = f' {{"delay": {round(delay_s * NANOSECONDS)}}}' if delay_s > 0 else ""
        self._answer(f"-NAK{delay}".encode())

    def in_progress(self) -> None:
        if not self._is_answered:  # otherwise NATS would postpone its next delivery, or bring it forward
            self._source.renew(self._reply)

    def _answer(self, word: bytes) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._source.held[self._priority] -= 1
        held, self._held = self._held, 0
        self._source.answer(self._reply, word, held)


class NatsCommandSource:
    """A :class:`~noetl_stream.ports.streams.command_queue.CommandSource` on the pool's durable consumer, or on those of
    its priorities once there are others.

    After anything but an expired request it restarts: consumer (asked for if missing), server time, a new inbox, and a
    pull for the credit still owed. The new inbox matters: a pull the server still holds for the old one must not bring
    deliveries beyond the credit.

    Attributes:
        held: The number of delivered commands of each priority that were not answered.
    """

    def __init__(self, connection: NatsConnection, pool: str, look_again_s: float) -> None:
        self.connected_ms = 0
        self.held = Counter[int]()
        self._slots = 0
        self.max_held_bytes = MAX_HELD_BYTES
        self._connection = connection
        self._pool = pool
        self._consumer = consumer_of(pool)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lease_connection = LeaseConnection(connection, f"{self._consumer} leases")
        self._ready: deque[NatsDelivery] = deque()
        self._arrived = asyncio.Event()
        self._owed = 0
        self._held_bytes = 0
        self._lacks_bytes = False
        self._asking = False
        self._pull: Pull | None = None
        self._requests: PriorityRequests | None = None
        self._look_again_s = look_again_s
        self._inbox = ""
        self._subscription: WireSubscription | None = None
        self._told: WireSubscription | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._finding: asyncio.Task[None] | None = None
        self._contact_s = self._found_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._ending = self._closing = self._is_to_find = False

    @classmethod
    async def open(
        cls, connection: NatsConnection, pool: str, *, look_again_s: float = LOOK_AGAIN_S
    ) -> NatsCommandSource:
        """Opens the source of a pool's commands.

        Args:
            look_again_s: See :data:`~noetl_stream.adapters.nats.commands.priority_requests.LOOK_AGAIN_S`.
        """
        source = cls(connection, pool, look_again_s)
        source._told = await connection.wire.subscribe(f"{NEW_PRIORITY}.{pool}", source._be_told)
        await source._start()
        connection.on_restored(source._restart)
        source._watch = source._loop.call_later(HEARTBEAT_S, source._check_contact)
        return source

    def request(self, count: int) -> None:
        self._owed += count
        self._slots = max(self._slots, self._owed)
        if self._pull is None:
            self._restart()
        if self._requests is not None:
            self._requests.look_again()
        self._ask_soon()

    def _ask_soon(self) -> None:
        if not self._asking:
            # Slots that become free in the same turn of the loop share one request.
            self._asking = True
            self._loop.call_soon(self._ask)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    async def next(self) -> NatsDelivery:
        while not self._ready:
            self._arrived.clear()
            await self._arrived.wait()
        return self._ready.popleft()

    async def pause(self) -> None:
        self._owed = 0
        await self._requests_end()
        if self._pull is not None:  # otherwise it restarts, and requests nothing
            self._pull = self._requests = None
            await self._unsubscribe()

    async def finish(self) -> None:
        await self._end_asking()
        await self._requests_end()
        await self._unsubscribe()

    async def _requests_end(self) -> None:
        pull = self._pull
        if pull is not None and self._connection.may_miss_its_end:
            # JetStream cannot be told that a request ends, and would lose messages to a closed inbox.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pull.expires_s + LAST_ANSWER_S):
                    while self._pull is not None and self._credit > 0:
                        self._arrived.clear()
                        await self._arrived.wait()

    async def close(self) -> None:
        self._closing = True
        await self._end_asking()
        self._return_ready()
        await self._unsubscribe()
        await self._lease_connection.close()

    async def _end_asking(self) -> None:
        self._ending = True
        self._connection.forget(self._restart)
        if self._watch is not None:
            self._watch.cancel()
        if self._told is not None:
            await self._told.close()
        await end_tasks([task for task in (self._restarting, self._finding) if task is not None])

    def _return_ready(self) -> None:
        while self._ready:
            self._ready.popleft().nak()

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            # What NATS has sent before it hears of the end would be lost until its lease expires.
            await (subscription.drain() if self._connection.is_connected else subscription.close())

    def answer(self, reply: str, word: bytes, size: int) -> None:
        """Answers a delivery at once, which then no longer counts its ``size`` bytes."""
        self._connection.wire.send(reply, word)
        self._held_bytes -= size
        if self._lacks_bytes or (self._requests is not None and not self._owed):
            self._ask_soon()

    def renew(self, reply: str) -> None:
        """Renews the lease of a delivery. From another thread it uses a separate connection, so that a busy loop does
        not lose its leases (PROTOCOL §3 *Order*).
        """
        if threading.get_ident() == self._thread:
            self._connection.wire.send(reply, _IN_PROGRESS)
        else:
            self._lease_connection.send(reply, _IN_PROGRESS)

    async def _start(self) -> None:
        if self._subscription is not None:
            await self._subscription.drain()
        found = await ensure_consumers(self._connection, self._pool)
        self._inbox = self._connection.client.new_inbox()
        self._subscription = await self._connection.wire.subscribe(f"{self._inbox}.*", self._receive)
        # Rounded up: a command stored in this very millisecond may be older than the connection.
        self.connected_ms = found.server_ms + 1
        self._contact_s = self._found_s = self._loop.time()
        self._pull = Pull(self._connection, COMMANDS, self._consumer, self._inbox, HEARTBEAT_S)
        if self._connection.may_miss_its_end:
            self._pull.expires_s = SHORT_EXPIRES_S
        self._requests = self._requests_of(found.consumers) if len(found.consumers) > 1 else None
        self._ask()
        if self._is_to_find:
            self._find_priorities()

    def _requests_of(self, consumers: Mapping[int, str]) -> PriorityRequests:
        return PriorityRequests(
            self._connection, consumers, self._inbox, self._loop.time, look_again_s=self._look_again_s
        )

    def _be_told(self, _subject: bytes, _reply: bytes, _headers: bytes, _body: bytes) -> None:
        self._find_priorities()

    def _find_priorities(self) -> None:
        self._is_to_find = True
        if not self._ending and (self._finding is None or self._finding.done()):
            self._finding = self._loop.create_task(self._find())

    async def _find(self) -> None:
        """Finds consumers made since the last notice; a restart begins it again."""
        self._found_s = self._loop.time()
        while self._is_to_find and self._pull is not None:
            self._is_to_find, inbox = False, self._inbox
            try:
                found = await find_consumers(self._connection, self._pool)
            except NoetlError as error:
                log.info("pool %s: its priorities are looked for again later: %s", self._pool, error)
                return
            if self._inbox != inbox or self._pull is None:
                self._is_to_find = True
            elif found is not None:
                self._take_from(found)

    def _take_from(self, found: PoolConsumers) -> None:
        if self._requests is None and len(found.consumers) > 1:
            # Commands requested before may exceed the worker's free slots; they are then returned.
            self._requests = self._requests_of(found.consumers)
        elif self._requests is not None and found.consumers.keys() - self._requests.priorities:
            self._requests.add(found.consumers)
        else:
            return
        # Commands that another worker had before are claimed (PROTOCOL §3 *Claim*).
        self.connected_ms = max(self.connected_ms, found.server_ms + 1)
        self._ask()

    @property
    def _credit(self) -> int:
        if self._requests is not None:
            return self._requests.credit
        return 0 if self._pull is None else self._pull.credit

    def _ask(self) -> None:
        self._asking = False
        pull, requests = self._pull, self._requests
        if pull is None or self._ending:
            return
        if requests is not None and self._owed <= requests.credit:
            if places := self._spare_places():
                requests.ask_spare(places - requests.credit, self._fullest(), self._held_bytes, MAX_HELD_BYTES)
            return
        if self._owed <= self._credit:
            return
        if requests is not None:
            if requests.credit == 0:
                self._contact_s = self._loop.time()
            self._lacks_bytes = not requests.ask(self._owed, self._held_bytes, MAX_HELD_BYTES)
            return
        self._lacks_bytes = pull.room(MAX_HELD_BYTES, self._held_bytes) < pull.largest_bytes
        if not self._lacks_bytes:
            if pull.credit == 0:
                self._contact_s = self._loop.time()
            pull.request(self._owed - pull.credit, pull.largest_bytes)

    def _fullest(self) -> int:
        """Returns the priority of most of the commands that the worker has."""
        return max(self.held, key=self.held.__getitem__, default=DEFAULT_PRIORITY)

    def _spare_places(self) -> int:
        """Returns the number of places left beyond the slots, for other priorities than the one that fills them."""
        held, spare = self.held.total(), self._slots // SPARE_PART
        is_filled = held >= self._slots and self.held[self._fullest()] >= self._slots - spare
        return max(0, self._slots + spare - held) if is_filled else 0

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        self._contact_s = self._loop.time()
        if reply:
            self._held_bytes += len(body)
            size, priority = counted_bytes(subject, reply, headers, body), DEFAULT_PRIORITY
            if self._requests is not None:
                priority = self._requests.count_delivery(reply, size)
            is_spare = not self._owed and self._spare_places() > 0 and priority != self._fullest()
            self.held[priority] += 1
            delivery = NatsDelivery(self, subject, reply, body, priority)
            if self._requests is not None:
                if not self._owed and not is_spare and delivery.num_delivered == 1:
                    delivery.nak()
                    return
                self._ask_soon()
            elif self._pull is not None:
                self._pull.count_message(size)
            self._owed = max(0, self._owed - 1)
            self._ready.append(delivery)
            if self._closing:
                self._return_ready()
            self._arrived.set()
            return
        status = parse_status(headers)
        if status is None or status.code == HEARTBEAT:
            return
        if self._requests is not None and self._pull is not None:
            has_only_ended = self._requests.ends_request(subject, status)
        else:
            has_only_ended = self._pull is not None and self._pull.ends_request(status)
        if has_only_ended:
            self._ask()
        else:
            log.info("pool %s: %s %s; restarting", self._pool, status.code, status.text)
            self._restart()
        self._arrived.set()

    def _check_contact(self) -> None:
        now_s = self._loop.time()
        silent_s = now_s - self._contact_s
        waits = self._pull is not None and self._credit > 0
        if waits and self._connection.is_connected and silent_s > 2.5 * HEARTBEAT_S:
            log.warning("pool %s: two heartbeats missed; restarting", self._pool)
            self._restart()
        elif self._connection.is_connected and now_s - self._found_s > FIND_PRIORITIES_S:
            self._find_priorities()
        self._watch = self._loop.call_later(HEARTBEAT_S / 2, self._check_contact)

    def _restart(self) -> None:
        self._pull = self._requests = None
        if self._ending or (self._restarting is not None and not self._restarting.done()):
            return
        self._restarting = self._loop.create_task(self._start_until_done())

    async def _start_until_done(self) -> None:
        last_error, waits = "", pauses(RESTART_WAIT_S, LONGEST_RESTART_WAIT_S)
        while True:
            line = self._connection.line
            try:
                await self._start()
                if line == self._connection.line:
                    return
                # The connection was lost and restored meanwhile: read the server's time again.
            except NoetlError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    log.warning("pool %s cannot take commands, will retry: %s", self._pool, error)
                await asyncio.sleep(next(waits))


class LeaseConnection:
    """A connection in a separate thread, over which leases are renewed even while the worker's loop is busy.

    Opened on first use; most workers never need it. Renewals that cannot be sent are dropped, since they repeat.
    """

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
        """Sends a message soon. Safe to call from any thread."""
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
        waits = pauses(OPEN_AGAIN_AFTER_S, LONGEST_RESTART_WAIT_S)
        while not self._closed:
            try:
                connection = await self._connection.sibling(self._name)
            except NoetlError as error:
                log.warning("cannot renew leases from a separate thread yet: %s", error)
                await asyncio.sleep(next(waits))
                continue
            waits = pauses(OPEN_AGAIN_AFTER_S, LONGEST_RESTART_WAIT_S)
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
