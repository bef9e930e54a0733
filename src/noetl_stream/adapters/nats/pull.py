"""Continuous pulling from a consumer: requests with heartbeats, and the credit still owed on them.

``fetch`` of the library ends each request before the next and costs half the throughput (HOT_PATH §5
*Pull without fetch*).
"""

from __future__ import annotations

import msgspec

from noetl_stream.adapters.nats.connection import NatsConnection
from noetl_stream.adapters.nats.protocol import NANOSECONDS, Status

EXPIRES_S = 30.0


class Pull:
    """Credit with one consumer: how many messages the server still owes. Answers arrive at ``<inbox>.<word>``."""

    def __init__(self, connection: NatsConnection, stream: str, consumer: str, inbox: str, heartbeat_s: float) -> None:
        self._connection = connection
        self._subject = f"{connection.jetstream}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._reply = f"{inbox}.pull"
        self._heartbeat_s = heartbeat_s
        self.credit = 0

    def request(self, count: int) -> None:
        """Requests ``count`` more messages."""
        self._ask(count, EXPIRES_S, self._heartbeat_s)

    def probe(self, heartbeat_s: float) -> None:
        """Requests one message briefly: the consumer checks at once, and its heartbeat says how far it has read."""
        self._ask(1, heartbeat_s * 3, heartbeat_s)

    def arrived(self) -> None:
        self.credit -= 1

    def expired(self, status: Status) -> None:
        """Handles a request that expired with this many messages undelivered; without the number all count as void."""
        undelivered = status.number("Nats-Pending-Messages")
        self.credit = 0 if undelivered is None else max(0, self.credit - undelivered)

    def _ask(self, count: int, expires_s: float, heartbeat_s: float) -> None:
        self.credit += count
        request = {
            "batch": count,
            "expires": round(expires_s * NANOSECONDS),
            "idle_heartbeat": round(heartbeat_s * NANOSECONDS),
        }
        self._connection.wire.send(self._subject, msgspec.json.encode(request), self._reply)
