"""Streams of the user's own on NATS that triggers read (LANGUAGE §15 *Trigger*, ADR 28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.model.aggregates import StreamFilter, StreamPlace
from noetl_stream.trigger.stream_messages import TriggerMessage

MAX_UNACKNOWLEDGED: Final = 256
"""The most messages of a consumer that are delivered and not acknowledged."""


class StreamWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger reads.

    Attributes:
        consumer: The name of its durable consumer.
        trigger: Its path, for people who look at the consumer.
        from_ms: The first message, by the time it was stored, if none is folded.
        folded: The place of the last message that is folded; ``None``: of none.
    """

    filter: StreamFilter
    consumer: str
    trigger: str
    from_ms: int
    folded: StreamPlace | None = None


class ReadMessage(msgspec.Struct, frozen=True):
    """A message that was delivered. ``pending`` is how many were left behind it, ``receipt`` the adapter's own."""

    message: TriggerMessage
    pending: int
    receipt: bytes


class StreamConsumer(Protocol):
    """What is delivered to a durable consumer, in the order of the stream: a message that was delivered before, and not
    acknowledged, comes before all that follow it, whoever it was delivered to.
    """

    @property
    def made(self) -> str:
        """When its stream was made: the ``made`` of places in it."""

    async def next_batch(self, limit: int, wait_s: float) -> list[ReadMessage]:
        """The next messages, none after ``wait_s``.

        Raises:
            ReaderBroken: it has to be opened again: its consumer is gone, another reads from it, or the line is lost.
            Unreachable: NATS does not answer.
        """

    async def acknowledge(self, messages: Sequence[ReadMessage]) -> None:
        """These are not delivered again, unless this is lost."""

    async def pending(self) -> int:
        """How many messages are not acknowledged, and those that are still to be delivered.

        Raises:
            ReaderBroken, Unreachable: as of :meth:`next_batch`.
        """

    async def close(self) -> None:
        """What it has not acknowledged is delivered again, soon."""


class TriggerStreams(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when NATS is away, or refuses."""

    async def open(self, wanted: StreamWanted) -> StreamConsumer:
        """Makes the consumer, or changes it to what is wanted, and reads on after ``folded``.

        Where a stream keeps only what consumers have not acknowledged, it reads on where the consumer was.

        Raises:
            StoreMissing: there is no such stream.
        """

    async def remove(self, stream: str, consumer: str) -> None:
        """Deletes a consumer, if it is there."""

    async def consumers(self, stream: str) -> list[str]:
        """Those of triggers; none if there is no such stream."""
