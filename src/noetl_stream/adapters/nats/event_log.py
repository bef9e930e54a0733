"""The event log on the JetStream stream EVENTS."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_reader import HEARTBEAT_S, NatsEventReader
from noetl_stream.adapters.nats.outbox import (
    LEADER_WAIT_S,
    MESSAGE_ID,
    RESEND_AFTER_S,
    HeldBatch,
    Outbox,
    PendingPublish,
    publish_once,
)
from noetl_stream.adapters.nats.protocol import PublishAck, milliseconds
from noetl_stream.adapters.nats.streams import stored_message, stream_api, stream_info, verify_stream
from noetl_stream.errors import UsageError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.protocol import subjects
from noetl_stream.protocol.subjects import EVENTS


class NatsEventLog:
    """:class:`~noetl_stream.ports.streams.event_log.EventLog` over the stream EVENTS; the port documents each
    method.
    """

    def __init__(self, connection: NatsConnection, clock: Clock, outbox: Outbox, heartbeat_s: float) -> None:
        self._connection = connection
        self._clock = clock
        self._outbox = outbox
        self._heartbeat_s = heartbeat_s
        self._readers: weakref.WeakSet[NatsEventReader] = weakref.WeakSet()

    @classmethod
    async def open(
        cls,
        connection: NatsConnection,
        clock: Clock,
        *,
        acknowledge_within_s: float = RESEND_AFTER_S,
        leader_wait_s: float = LEADER_WAIT_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> NatsEventLog:
        """Opens the event log.

        Args:
            acknowledge_within_s: After this long without an answer a report's outcome is unknown, and a journal record
                is sent again.
            leader_wait_s: How long a request or report is sent again while no stream takes it.
            heartbeat_s: How often the server sends a heartbeat to an idle reader.
        """
        outbox = await Outbox.open(connection, resend_after_s=acknowledge_within_s, leader_wait_s=leader_wait_s)
        return cls(connection, clock, outbox, heartbeat_s)

    @property
    def retries(self) -> int:
        """How many messages were sent again."""
        return self._outbox.retries

    async def publish_request(self, execution_id: str, message_id: str, body: bytes) -> int:
        """Publishes a request. Also raises Unreachable if the stream is full or missing, with that reason."""
        return (await self._publish(subjects.requested(execution_id), message_id, body)).seq

    async def publish_report(self, execution_id: str, pool: str, message_id: str, body: bytes) -> int:
        return (await self._publish(subjects.reported(execution_id, pool), message_id, body)).seq

    async def publish_again(self, execution_id: str, message_id: str, body: bytes) -> int:
        return (await self._publish(subjects.requeued(execution_id), message_id, body)).seq

    async def _publish(self, subject: str, message_id: str, body: bytes) -> PublishAck:
        if not message_id.isprintable():
            raise UsageError(f"{message_id!r} is not a valid message id", hint="it must be printable text")
        if not self._connection.is_connected:
            await self._connection.wait_connected(RESEND_AFTER_S)
        return await publish_once(self._outbox, subject, body, {MESSAGE_ID: message_id})

    def publish_decided(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.decided, messages)

    def publish_checkpoints(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.checkpoint, messages)

    def _publish_held(self, named: Callable[[int, str], str], messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        batch = _Records(self._outbox, 0)
        for one in messages:
            batch.put(named(one.partition, one.execution_id), one.body, one.message_id)
        return batch.seal()

    async def open_reader(self, partitions: Collection[int], after: int, records: bool = False) -> NatsEventReader:
        """Opens a reader of partitions.

        Raises:
            StoreMissing: the stream does not exist.
            Unreachable: no answer in time.
        """
        reader = await NatsEventReader.open(
            self._connection, self._clock, partitions, after, heartbeat_s=self._heartbeat_s, records=records
        )
        self._readers.add(reader)
        return reader

    async def last_sequence(self) -> int:
        """Returns the last sequence, and makes idle readers check at once, so that ``high_water`` reaches it soon."""
        last = (await stream_info(self._connection, EVENTS)).state.last_seq
        for reader in list(self._readers):
            if reader.high_water < last:
                reader.look()
        return last

    async def first_sequence(self) -> int:
        return (await stream_info(self._connection, EVENTS)).state.first_seq

    async def stored_bytes(self) -> int:
        return (await stream_info(self._connection, EVENTS)).state.bytes

    async def trim(self, through: int) -> None:
        await stream_api(self._connection, EVENTS, f"STREAM.PURGE.{EVENTS}", {"seq": through + 1})

    async def beyond(self, cursors: Mapping[int, int]) -> dict[int, int]:
        """Counts the messages beyond cursors, with three short requests per partition that is not at the stream's end:
        the first message beyond the cursor comes with the number that follow. NATS counts by its subject index, without
        reading messages.
        """
        last = (await stream_info(self._connection, EVENTS)).state.last_seq
        waiting = [partition for partition, cursor in cursors.items() if cursor < last]
        counts = await asyncio.gather(*(self._count_beyond(partition, cursors[partition]) for partition in waiting))
        return dict.fromkeys(cursors, 0) | dict(zip(waiting, counts, strict=True))

    async def _count_beyond(self, partition: int, cursor: int) -> int:
        everything, *records = await asyncio.gather(
            *(self._count(subject, cursor) for subject in subjects.partition_patterns(partition))
        )
        return max(0, everything - sum(records))

    async def _count(self, subject: str, cursor: int) -> int:
        wanted = {"seq": cursor + 1, "next_by_subj": subject, "batch": 1}
        fields = await self._connection.direct_get(EVENTS, wanted)
        return 0 if fields is None else 1 + int(fields["Nats-Num-Pending"])

    async def last_decided(self, partition: int) -> bytes | None:
        _, records, _ = subjects.partition_patterns(partition)
        stored = await stored_message(self._connection, EVENTS, {"last_by_subj": records})
        return stored.data if stored is not None else None

    async def next_decided(self, partition: int, after: int) -> tuple[int, bytes] | None:
        _, records, _ = subjects.partition_patterns(partition)
        stored = await stored_message(self._connection, EVENTS, {"seq": after + 1, "next_by_subj": records})
        return (stored.seq, stored.data) if stored is not None else None

    async def last_of(self, partition: int) -> int:
        everything, *_ = subjects.partition_patterns(partition)
        stored = await stored_message(self._connection, EVENTS, {"last_by_subj": everything})
        return stored.seq if stored is not None else 0

    async def stored_at(self, sequence: int) -> int | None:
        if sequence < 1:
            return None
        stored = await stored_message(self._connection, EVENTS, {"seq": sequence})
        return milliseconds(stored.time) if stored is not None else None

    async def verify(self) -> None:
        await verify_stream(self._connection, EVENTS)

    async def close(self) -> None:
        """Closes the publishing side; the NATS connection stays open."""
        await self._outbox.close()


class _Records(HeldBatch[int]):
    """Journal records being published; the result is the highest of their sequences."""

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._result = max(self._result, ack.seq)
        super().on_acknowledged(sent, ack)
