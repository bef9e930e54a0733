"""EVENTS: inputs (requests, reports) and the server's journal records, in one ordered log (DESIGN §1)."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from noetl_stream.protocol.log_fences import FencePlace


class ReportedMessage(msgspec.Struct, frozen=True, gc=False):
    """A stored input. ``at_ms`` is the log's own stored time; ``subject`` identifies the sender
    (:func:`~noetl_stream.protocol.subjects.sender_of`). ``message_id``: of a message that was read without its body.
    """

    sequence: int
    at_ms: int
    partition: int
    execution_id: str
    body: bytes
    subject: str
    message_id: str = ""


class DecidedMessage(msgspec.Struct, frozen=True, gc=False):
    """A journal record to store. ``message_id`` is unique for its content (``partition.tick.epoch.owner.n``)."""

    partition: int
    execution_id: str
    message_id: str
    body: bytes


class HeldMessages(msgspec.Struct, frozen=True, gc=False):
    """The first and last sequence of the log, and the number of its messages."""

    first: int
    last: int
    count: int


class EventReader(Protocol):
    """Reads the inputs of some partitions in stream order, without gaps.

    ``high_water`` is the sequence up to which all messages of these partitions were returned; heartbeats move it too.
    ``contact_s`` is the monotonic time of the last message or due heartbeat.
    """

    high_water: int

    @property
    def contact_s(self) -> float: ...

    @property
    def held_bytes(self) -> int:
        """The size of the messages that were read and not returned."""

    @property
    def received(self) -> int:
        """The number of received messages, returned or not."""
        ...

    @property
    def pending(self) -> int:
        """The number of messages of its partitions that followed the last received one at that time. If the messages of
        others are received too, their share of all.
        """
        ...

    async def next_batch(self, limit: int) -> list[ReportedMessage]:
        """The available messages, at least one and at most ``limit``, fewer if they are large; waits for the first.

        Raises:
            ReaderBroken: a gap, a lost consumer, two missed heartbeats, a reconnect. Recreate it.
        """

    async def close(self) -> None: ...


class EventLog(Protocol):
    async def publish_request(self, execution_id: str, message_id: str, body: bytes) -> int:
        """Stores a request; returns its sequence once it is acknowledged. A repeated request whose message is gone is
        stored again.

        Raises:
            OutcomeUnknown: no acknowledgement in time; publish again under the same ``message_id``.
            Unreachable: not connected.
        """

    async def publish_report(self, execution_id: str, pool: str, message_id: str, body: bytes) -> int:
        """Stores a report of a worker of this pool; otherwise like :meth:`publish_request`."""

    async def publish_again(self, execution_id: str, message_id: str, body: bytes) -> int:
        """Stores a dead letter's request or report once more; else like :meth:`publish_request`."""

    def publish_decided(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        """Sends now, in order; the awaitable ends when all are acknowledged, resending until then, with their highest
        sequence, 0 without messages.
        """

    def publish_checkpoints(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        """Like :meth:`publish_decided`, for checkpoint records: nobody is notified."""

    async def open_reader(
        self, partitions: Collection[int], after: int, records: bool = False, bodies: bool = True
    ) -> EventReader:
        """A reader of the inputs of these partitions, from the first sequence above ``after``.

        Args:
            records: Whether it also reads their journal records, whose subjects end in ``decided`` or ``checkpoint``.
            bodies: Whether messages come with their bodies, or with their ids in place of them.
        """

    async def last_sequence(self) -> int:
        """The stream's last sequence, from its leader."""

    async def beyond(self, cursors: Mapping[int, int]) -> dict[int, int]:
        """The number of inputs of each partition above its cursor, a sequence: those still to be folded."""

    async def last_decided(self, partition: int) -> tuple[int, bytes] | None:
        """The last journal record of the partition, with its sequence; ``None`` if there is none."""

    async def next_decided(self, partition: int, after: int) -> tuple[int, bytes] | None:
        """The first journal record of the partition above this sequence, with its own; ``None`` if there is none."""

    async def last_of(self, partition: int) -> int:
        """The sequence of the last message of the partition, input or record; 0 if there is none."""

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> Collection[int]:
        """Stores fences: records of earlier epochs that are stored after them are late. The first epoch needs none.

        Returns:
            The partitions that are fenced; the others have a fence of a later epoch, or of this one by another owner.
        """

    async def fences(self, partition: int) -> Sequence[FencePlace]:
        """The fences of the partition, oldest first."""

    async def stored_at(self, sequence: int) -> int | None:
        """Stored time (ms) of the message at this sequence; ``None`` if it does not exist (PROTOCOL §5)."""

    async def first_sequence(self) -> int: ...

    async def held(self) -> HeldMessages:
        """The messages that the log's leader holds."""

    async def stored_bytes(self) -> int:
        """The bytes of the stream, before compression."""

    async def trim(self, through: int) -> None:
        """Removes all messages up to this sequence. The last fence of a partition among them is stored again first."""

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless the stream exists with the expected partitions; the hint
        names the command that repairs it.
        """
