"""Publishing into streams, pipelined: each message is held until JetStream acknowledges it (PROTOCOL §2 *Publishing*).

Every publish requests its answer at ``<inbox>.<n>``, and a dict maps ``n`` to the message: no message needs a task or
waits for another. Messages are published once, with an answer in time or an unknown outcome; or in batches that are
resent until each message is acknowledged.

A JetStream that is slow or away must not be given more than it can take: only a bounded part of the batches is on its
way at a time, the wait for an acknowledgement doubles each time, retries have a budget, and a message that is still
held is not sent again as another one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from noetl_stream.adapters.nats.api_errors import COPY_UNDER_WAY, NO_STREAM, NOT_PERMITTED, rule_of
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.connections.wire import WireSubscription
from noetl_stream.adapters.nats.protocol import NO_RESPONDERS, ApiError, PublishAck, decode_publish_ack, parse_status
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.errors import NoetlError, OutcomeUnknown, PayloadRefused
from noetl_stream.retries import RetryBudget, backoff_s

log = logging.getLogger(__name__)

Result = TypeVar("Result")

RESEND_AFTER_S = 2.0
"""The time in which an acknowledgement must arrive before the message's owner decides whether to send it again."""

RETRY_AFTER_S = 0.5
"""The first delay of a retry after a rejection: the stream is full, or has no leader."""

MAX_RETRY_S: Final = 4.0
"""The longest delay of a retry, so that a new leader or new room is soon used."""

MAX_UNDER_WAY: Final = 2048
MAX_UNDER_WAY_BYTES: Final = 8 * 1024 * 1024
"""The messages of batches that are on their way at a time, and their bytes: JetStream drops what exceeds its own queue
of 10,000, and heartbeats and pulls of this connection wait behind them.
"""

LOOK_EVERY_S = 0.25

REFUSED_S: Final = 10.0
"""The time for which a message is refused before its process is not ready: an election ends sooner."""

LEADER_WAIT_S = 15.0
"""The time for which a single message is repeated that no stream takes: a cluster elects a leader in up to 9 s."""

MESSAGE_ID = "Nats-Msg-Id"


class PendingPublish:
    """A message awaiting its acknowledgement.

    Attributes:
        owners: The owners to notify; several if it was published again while it was held.
        waits_its_turn: Whether it counts among the messages under way: see :class:`PublishOwner`.
        joined_by: The id by which others may join it; empty if none may.
        is_under_way: Whether it was sent, and JetStream may still have to store it.
        is_overdue: Whether no acknowledgement has arrived in time.
        due_s: The loop time at which it is overdue, or may be sent again; infinite until the first try of one that
            waits its turn.
        tries: The number of times it was sent.
    """

    __slots__ = (
        "body",
        "due_s",
        "headers",
        "is_overdue",
        "is_under_way",
        "joined_by",
        "owners",
        "subject",
        "tries",
        "waits_its_turn",
    )

    def __init__(
        self, subject: str, body: bytes, headers: Mapping[str, str], owner: PublishOwner, joined_by: str = ""
    ) -> None:
        self.subject = subject
        self.body = body
        self.headers = headers
        self.owners = [owner]
        self.waits_its_turn = owner.waits_its_turn
        self.joined_by = joined_by
        self.is_under_way = self.is_overdue = False
        self.due_s = math.inf
        self.tries = 0


class _Refused(NamedTuple):
    """A message that JetStream refused, first at ``since_s`` (loop time), with the last reason."""

    since_s: float
    error: ApiRefused


class PublishOwner(Protocol):
    """The owner of a message, which handles its acknowledgement."""

    @property
    def waits_its_turn(self) -> bool:
        """Whether its messages are sent only while few of the kind are under way."""
        ...

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        """Called when the message is stored, now or before (``ack.duplicate``)."""
        ...

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        """Called when the message was not stored; returns ``True`` to retry soon."""
        ...

    def on_overdue(self, sent: PendingPublish, reason: str) -> bool:
        """Called when the message may or may not be stored; returns ``True`` to send it again."""
        ...

    def on_abandoned(self, error: NoetlError) -> None:
        """Called when the connection has ended, and no acknowledgement will come."""
        ...


class Outbox:
    """The messages of one connection that await acknowledgement, in the order of sending.

    Attributes:
        retries: The number of repeated sends.
        refusals: The number of refusals by JetStream, by code, without those that callers expect.
    """

    def __init__(self, connection: NatsConnection, resend_after_s: float, leader_wait_s: float) -> None:
        self.leader_wait_s = leader_wait_s
        self.retries = 0
        self.refusals: Counter[str] = Counter()
        self._refused: dict[int, _Refused] = {}
        self._connection = connection
        self._resend_after_s = resend_after_s
        self.loop = asyncio.get_running_loop()
        self._inbox = connection.client.new_inbox()
        self._prefix_length = len(self._inbox) + 1
        self._waiting: dict[int, PendingPublish] = {}
        self._unsent: deque[int] = deque()
        self._numbers: dict[str, int] = {}
        """The number of each message that others may join, by its id."""
        self._under_way = 0
        self._under_way_bytes = 0
        self._budget = RetryBudget(self.loop.time, MAX_UNDER_WAY, MAX_UNDER_WAY_BYTES)
        self._first_tries = 0
        self._first_bytes = 0
        """The first tries that the budget does not know yet, and their bytes."""
        self._last_number = 0
        self._look_handle: asyncio.TimerHandle | None = None
        self._subscription: WireSubscription | None = None

    @classmethod
    async def open(
        cls, connection: NatsConnection, *, resend_after_s: float = RESEND_AFTER_S, leader_wait_s: float = LEADER_WAIT_S
    ) -> Outbox:
        outbox = cls(connection, resend_after_s, leader_wait_s)
        outbox._subscription = await connection.wire.subscribe(f"{outbox._inbox}.*", outbox._receive)
        connection.on_lost(outbox._on_lost)
        connection.on_restored(outbox._on_restored)
        connection.on_ended(outbox._abandon)
        connection.refusals.on_publish.append(outbox._on_refused)
        return outbox

    def put(
        self, subject: str, body: bytes, headers: Mapping[str, str], owner: PublishOwner, *, joins: bool = False
    ) -> None:
        """Sends a message in this turn of the loop, or once the connection is restored or its turn has come.

        Args:
            joins: Whether a held message with the same id replaces this one, and gets the new body.

        Raises:
            PayloadRefused: the message is larger than the server accepts.
        """
        limit = self._connection.max_payload
        if len(body) + 256 > limit:
            message = f"a message of {len(body)} bytes to {subject} is larger than the NATS server accepts ({limit})"
            raise PayloadRefused(message, hint="raise max_payload in the configuration of NATS")
        joined_by = headers[MESSAGE_ID] if joins else ""
        if joined_by and self._has_joined(body, joined_by, owner):
            return
        self._last_number = number = self._last_number + 1
        self._waiting[number] = sent = PendingPublish(subject, body, headers, owner, joined_by)
        if joined_by:
            self._numbers[joined_by] = number
        if not sent.waits_its_turn:
            sent.due_s = self.loop.time() + self._resend_after_s
            if self._connection.is_connected:
                self._send(number, sent)
        elif not self._unsent and self._has_room(sent) and self._connection.is_connected:
            self._send(number, sent)
        else:
            self._unsent.append(number)
        if self._look_handle is None:
            self._look_handle = self.loop.call_later(LOOK_EVERY_S, self._look)

    def _has_joined(self, body: bytes, message_id: str, owner: PublishOwner) -> bool:
        held = self._waiting.get(self._numbers.get(message_id, 0))
        if held is None:
            return False
        held.owners.append(owner)
        if not held.is_under_way:  # the count of messages under way must match later subtractions
            held.body = body
        return True

    async def close(self) -> None:
        if self._look_handle is not None:
            self._look_handle.cancel()
        self._connection.forget(self._on_lost, self._on_restored, self._abandon)
        self._connection.refusals.forget(self._on_refused)
        if self._subscription is not None:
            await self._subscription.close()
        self._abandon()

    def _send_unsent(self) -> None:
        """Sends messages of batches for the first time, in order, as far as there is room."""
        while self._unsent and self._connection.is_connected and self._has_room(self._waiting[self._unsent[0]]):
            number = self._unsent.popleft()
            self._send(number, self._waiting[number])

    def _has_room(self, sent: PendingPublish) -> bool:
        if not sent.waits_its_turn or not self._under_way:
            return True
        return self._under_way < MAX_UNDER_WAY and self._under_way_bytes + len(sent.body) <= MAX_UNDER_WAY_BYTES

    def _send(self, number: int, sent: PendingPublish) -> None:
        size = len(sent.body)
        if sent.waits_its_turn and not sent.is_under_way:
            self._under_way += 1
            self._under_way_bytes += size
        if sent.tries:
            self.retries += 1
            sent.due_s = self.loop.time() + backoff_s(self._resend_after_s, sent.tries)
        else:
            self._first_tries += 1
            self._first_bytes += size
            if sent.waits_its_turn:
                sent.due_s = self.loop.time() + self._resend_after_s
        sent.tries += 1
        sent.is_under_way, sent.is_overdue = True, False
        self._connection.wire.send(sent.subject, sent.body, f"{self._inbox}.{number}", sent.headers)

    def _end_its_way(self, sent: PendingPublish) -> None:
        """Takes a message off its way; it is dropped, or waits until it may be sent again."""
        if sent.is_under_way and sent.waits_its_turn:
            self._under_way -= 1
            self._under_way_bytes -= len(sent.body)
        sent.is_under_way = sent.is_overdue = False

    def _drop(self, number: int, sent: PendingPublish) -> None:
        self._end_its_way(sent)
        del self._waiting[number]
        if self._refused:
            self._refused.pop(number, None)
        if sent.joined_by and self._numbers.get(sent.joined_by) == number:
            del self._numbers[sent.joined_by]

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        number = int(subject[self._prefix_length :])
        sent = self._waiting.get(number)
        if sent is None:
            return
        status = parse_status(headers) if headers else None
        has_no_stream = status is not None and status.code == NO_RESPONDERS
        ack = PublishAck(error=NO_STREAM) if has_no_stream else decode_publish_ack(body)
        if ack.error is None:
            self._drop(number, sent)
            for owner in sent.owners:
                owner.on_acknowledged(sent, ack)
        else:
            self._handle_refusal(number, sent, ack.error)
        if self._unsent:
            self._send_unsent()

    def _look(self) -> None:
        now_s = self.loop.time()
        self._budget.note_first(self._first_bytes, self._first_tries)
        self._first_tries = self._first_bytes = 0
        for number, sent in list(self._waiting.items()):
            if sent.due_s > now_s:
                continue
            if not sent.tries or (sent.is_under_way and not sent.is_overdue):
                if self._is_wanted(number, sent, f"no acknowledgement within {self._resend_after_s:g} s"):
                    sent.is_overdue, sent.due_s = bool(sent.tries), now_s
            elif (
                self._connection.is_connected
                and (sent.is_overdue or self._has_room(sent))
                and self._budget.take(len(sent.body))
            ):
                self._send(number, sent)
        self._send_unsent()
        self._look_handle = self.loop.call_later(LOOK_EVERY_S, self._look) if self._waiting else None

    def _is_wanted(self, number: int, sent: PendingPublish, reason: str) -> bool:
        """Returns whether an owner wants the message to be sent again, whose outcome is unknown; else drops it."""
        wanting = [owner for owner in sent.owners if owner.on_overdue(sent, reason)]
        if not wanting:
            self._drop(number, sent)
        return bool(wanting)

    def _on_refused(self, subject: str) -> None:
        for number, sent in list(self._waiting.items()):
            if sent.is_under_way and sent.subject.lower() == subject:
                self._handle_refusal(number, sent, NOT_PERMITTED)

    @property
    def refused(self) -> int:
        """The number of held messages that JetStream has refused, and that are repeated until it takes them."""
        return len(self._refused)

    def refusal(self) -> str:
        """Returns the reason for which a message has been refused for :data:`REFUSED_S`; else empty."""
        oldest = next(iter(self._refused.values()), None)
        if oldest is None or self.loop.time() - oldest.since_s < REFUSED_S:
            return ""
        return str(oldest.error)

    def _handle_refusal(self, number: int, sent: PendingPublish, error: ApiError) -> None:
        if rule_of(error).treatment is not Treatment.HANDLED:
            self.refusals[str(error.err_code or error.code)] += 1
            since_s = self._refused[number].since_s if number in self._refused else self.loop.time()
            self._refused[number] = _Refused(since_s, ApiRefused(sent.subject, error))
        wanting = [owner for owner in sent.owners if owner.on_refused(sent, error)]
        if wanting:
            self._end_its_way(sent)
            sent.due_s = self.loop.time() + backoff_s(RETRY_AFTER_S, sent.tries - 1, MAX_RETRY_S)
        else:
            self._drop(number, sent)

    def _on_lost(self) -> None:
        for number, sent in list(self._waiting.items()):
            if sent.is_under_way and self._is_wanted(
                number, sent, "the connection was lost before the acknowledgement"
            ):
                self._end_its_way(sent)
                sent.due_s = self.loop.time()

    def _on_restored(self) -> None:
        for number, sent in self._waiting.items():
            if not sent.tries and not sent.owners[0].waits_its_turn:
                self._send(number, sent)
        if self._look_handle is not None:
            self._look_handle.cancel()
            self._look()

    def _abandon(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._refused.clear()
        error = self._connection.unreachable("the connection has ended")
        self._numbers.clear()
        self._unsent.clear()
        for sent in waiting.values():
            for owner in sent.owners:
                owner.on_abandoned(error)


class OutboxPort:
    """Base of the adapters that publish through an outbox of their own."""

    def __init__(self, connection: NatsConnection, outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox

    @property
    def outbox(self) -> Outbox:
        """The messages on their way, and their fates."""
        return self._outbox

    async def close(self) -> None:
        """Closes the publishing side; the NATS connection stays open."""
        await self._outbox.close()


class SinglePublish:
    """A message published once. ``answer`` is the acknowledgement, or fails with OutcomeUnknown or ApiRefused."""

    __slots__ = ("_loop", "_until_s", "answer")

    waits_its_turn: Final = False

    def __init__(self, outbox: Outbox) -> None:
        self._loop = outbox.loop
        self._until_s = self._loop.time() + outbox.leader_wait_s
        self.answer: asyncio.Future[PublishAck] = self._loop.create_future()

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        if not self.answer.done():
            self.answer.set_result(ack)

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        is_due_again = rule_of(error).treatment is Treatment.AGAIN and self._loop.time() < self._until_s
        if not is_due_again:
            is_under_way = error.err_code == COPY_UNDER_WAY
            self._fail(_unknown(sent, error.description) if is_under_way else ApiRefused(sent.subject, error))
        return is_due_again

    def on_overdue(self, sent: PendingPublish, reason: str) -> bool:
        self._fail(_unknown(sent, reason))
        return False

    def on_abandoned(self, error: NoetlError) -> None:
        self._fail(error)

    def _fail(self, error: NoetlError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _unknown(sent: PendingPublish, reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"{sent.subject}: {reason}", hint="publish again under the same message id")


def publish_once(outbox: Outbox, subject: str, body: bytes, headers: Mapping[str, str]) -> asyncio.Future[PublishAck]:
    """Publishes one message. The future resolves to its acknowledgement, or raises:

        ApiRefused: the stream rejected it, or there was no stream for too long; the error contains the reason.
        OutcomeUnknown: no answer in time, or the connection was lost meanwhile.

    Raises:
        PayloadRefused: too large.
    """
    once = SinglePublish(outbox)
    outbox.put(subject, body, headers, once)
    return once.answer


class HeldBatch(Generic[Result]):
    """Messages that are resent until each is acknowledged; ``all_acknowledged`` completes then, with ``result``."""

    waits_its_turn: Final = True

    def __init__(self, outbox: Outbox, result: Result) -> None:
        self._outbox = outbox
        self._result = result
        self._missing = 0
        self._last_refusal = ""
        self.all_acknowledged: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def put(self, subject: str, body: bytes, message_id: str) -> None:
        self._missing += 1
        self._outbox.put(subject, body, {MESSAGE_ID: message_id}, self, joins=True)

    def seal(self) -> asyncio.Future[Result]:
        """Closes the batch; returns the future that completes with the last acknowledgement."""
        if not self._missing and not self.all_acknowledged.done():
            self.all_acknowledged.set_result(self._result)
        return self.all_acknowledged

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._missing -= 1
        if not self._missing:
            self.seal()

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        if error.description != self._last_refusal:
            self._last_refusal = error.description
            log.warning("will retry: %s", ApiRefused(sent.subject, error))
        return True

    def on_overdue(self, sent: PendingPublish, reason: str) -> bool:
        return True

    def on_abandoned(self, error: NoetlError) -> None:
        if not self.all_acknowledged.done():
            self.all_acknowledged.set_exception(error)
            # Marked as retrieved: if no caller waits, the role is ending and asyncio need not warn.
            self.all_acknowledged.exception()
