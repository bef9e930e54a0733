"""Continuous pulling from a consumer: requests with heartbeats, and the messages and bytes still owed on them.

``fetch`` of the library ends each request before the next and costs half the throughput (HOT_PATH §5
*Pull without fetch*).
"""

from __future__ import annotations

import msgspec

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.protocol import CONFLICT, NANOSECONDS, NO_MESSAGES, REQUEST_EXPIRED, USED_UP, Status

EXPIRES_S = 30.0
SHORT_EXPIRES_S = 10.0
"""The lifetime of a request whose end may have to be awaited."""

ENVELOPE_BYTES = 64 * 1024
"""The bytes that NATS may count for a message in addition to ``max_payload``: its subject and reply subject."""


class Pull:
    """Credit with one consumer: the messages that it may still send. Answers arrive at ``<inbox>.<word>``.

    Args:
        heartbeat_s: 0 for none, as short requests need none.
        api: The prefix of requests to JetStream, by default that of the engine's streams.

    Attributes:
        credit: The messages still to come.
        credit_bytes: The most bytes of these messages.
        expires_s: The lifetime of a request.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        consumer: str,
        inbox: str,
        heartbeat_s: float,
        *,
        word: str = "pull",
        api: str = "",
    ) -> None:
        self.expires_s = EXPIRES_S
        self._connection = connection
        self._subject = f"{api or connection.jetstream}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._reply = f"{inbox}.{word}"
        self._heartbeat_s = heartbeat_s
        self.credit = 0
        self.credit_bytes = 0

    @property
    def largest_bytes(self) -> int:
        """The most bytes that one message may count. A request for less could wait for ever."""
        return self._connection.max_payload + ENVELOPE_BYTES

    def room(self, limit: int, held: int) -> int:
        """Returns how many of ``limit`` bytes are free, without the ``held`` ones and those still to arrive; at least
        :attr:`largest_bytes` if there are none of either.
        """
        limit = max(limit, self.largest_bytes)
        if not self.credit and limit - held - self.credit_bytes < self.largest_bytes:
            self.credit_bytes = 0  # left over from requests whose end was missed
        return limit - held - self.credit_bytes

    def request(self, count: int, size: int) -> None:
        """Requests up to ``count`` more messages of up to ``size`` bytes together, at least :attr:`largest_bytes`."""
        self._ask(count, size, self.expires_s, self._heartbeat_s)

    def take(self, count: int) -> None:
        """Requests up to ``count`` of the messages that wait now, of up to :attr:`largest_bytes` together."""
        self._ask(count, self.largest_bytes, 0.0, 0.0)

    def probe(self, heartbeat_s: float) -> None:
        """Requests one message briefly: the consumer checks at once, and its heartbeat has its position."""
        self._ask(1, self.largest_bytes, heartbeat_s * 3, heartbeat_s)

    def count_message(self, size: int) -> None:
        """Counts a message of ``size`` bytes, as :func:`counted_bytes` counts it."""
        self.credit -= self.credit > 0
        self.credit_bytes = max(0, self.credit_bytes - size)

    def ends_request(self, status: Status) -> bool:
        """Returns whether this status only ends a request: it expired or is used up, and its rest no longer counts.

        Without the number of messages that were not delivered, all credit is void.
        """
        used_up = status.code == CONFLICT and status.text in USED_UP
        if status.code not in (REQUEST_EXPIRED, NO_MESSAGES) and not used_up:
            return False
        undelivered = status.number("Nats-Pending-Messages")
        if undelivered is None:
            self.credit = self.credit_bytes = 0
        else:
            self._spend(undelivered, status.number("Nats-Pending-Bytes") or 0)
        return True

    def _spend(self, count: int, size: int) -> None:
        self.credit = max(0, self.credit - count)
        self.credit_bytes = max(0, self.credit_bytes - size)

    def _ask(self, count: int, size: int, expires_s: float, heartbeat_s: float) -> None:
        self.credit += count
        self.credit_bytes += size
        request: dict[str, object] = {"batch": count, "max_bytes": size}
        if expires_s:
            request["expires"] = round(expires_s * NANOSECONDS)
        else:
            request["no_wait"] = True
        if heartbeat_s:
            request["idle_heartbeat"] = round(heartbeat_s * NANOSECONDS)
        self._connection.wire.send(self._subject, msgspec.json.encode(request), self._reply)


def counted_bytes(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> int:
    """Returns the size of a message as NATS counts it against a request."""
    return len(subject) + len(reply) + len(headers) + len(body)
