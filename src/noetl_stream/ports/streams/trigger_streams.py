"""The user's own streams on NATS that triggers read (LANGUAGE §15 *Trigger*, ADR 28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.model.aggregates import StreamFilter, StreamPlace
from noetl_stream.trigger.stream_messages import TriggerMessage

MAX_UNACKNOWLEDGED: Final = 256
"""The most unacknowledged messages of a consumer that are delivered."""


class StreamWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of a stream by a trigger.

    Attributes:
        consumer: The name of its durable consumer.
        trigger: Its path, for people who inspect the consumer.
        from_ms: The time from which stored messages are read, if none is folded.
        folded: The place of the last folded message; ``None`` before the first.
    """

    filter: StreamFilter
    consumer: str
    trigger: str
    from_ms: int
    folded: StreamPlace | None = None


class ReadMessage(msgspec.Struct, frozen=True):
    """A delivered message. ``pending`` is the number of messages after it, ``receipt`` the adapter's own data."""

    message: TriggerMessage
    pending: int
    receipt: bytes


class StreamConsumer(Protocol):
    """The deliveries to a durable consumer, in the order of the stream: an unacknowledged message of an earlier
    delivery, to any reader, comes before all that follow it.
    """

    @property
    def made(self) -> str:
        """The creation time of its stream: the ``made`` of places in it."""

    async def next_batch(self, limit: int, wait_s: float) -> list[ReadMessage]:
        """The next messages, none after ``wait_s``.

        Raises:
            ReaderBroken: it must be reopened: its consumer is gone, another reads from it, or the connection is lost.
            Unreachable: NATS does not answer.
        """

    async def acknowledge(self, messages: Sequence[ReadMessage]) -> None:
        """Acknowledges messages, so that they are not delivered again, unless the acknowledgement is lost."""

    async def pending(self) -> int:
        """The number of unacknowledged messages and of those still to be delivered.

        Raises:
            ReaderBroken, Unreachable: as for :meth:`next_batch`.
        """

    async def close(self) -> None:
        """Closes the consumer. Its unacknowledged messages are soon delivered again."""


class TriggerStreams(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when NATS is away, or refuses."""

    async def open(self, wanted: StreamWanted) -> StreamConsumer:
        """Creates or updates the consumer, and continues after ``folded``.

        On a stream that keeps only unacknowledged messages, it continues at the consumer's position.

        Raises:
            StoreMissing: the stream does not exist.
        """

    async def remove(self, stream: str, consumer: str) -> None:
        """Deletes a consumer, if it exists."""

    async def consumers(self, stream: str) -> list[str]:
        """The consumers of triggers; none if the stream does not exist."""
