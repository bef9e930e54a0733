"""The event log on the JetStream stream EVENTS. A reader breaks as soon as it may have missed a message."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.connections.wire import WireSubscription
from noetl_stream.adapters.nats.last_messages import replace_last
from noetl_stream.adapters.nats.outbox import (
    LEADER_WAIT_S,
    MESSAGE_ID,
    RESEND_AFTER_S,
    HeldBatch,
    Outbox,
    OutboxPort,
    PendingPublish,
    publish_once,
)
from noetl_stream.adapters.nats.protocol import (
    HEARTBEAT,
    NANOSECONDS,
    PublishAck,
    Status,
    milliseconds,
    parse_fields,
    parse_metadata,
    parse_pending,
    parse_status,
)
from noetl_stream.adapters.nats.pull import Pull, counted_bytes
from noetl_stream.adapters.nats.streams import stored_message, stream_api, stream_info, verify_stream
from noetl_stream.errors import ReaderBroken, UsageError
from noetl_stream.model.ids import partition_count
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.event_log import DecidedMessage, HeldMessages, ReportedMessage
from noetl_stream.protocol import subjects
from noetl_stream.protocol.log_fences import FencePlace, places_of, raised, stored_again
from noetl_stream.protocol.subjects import EVENTS

WINDOW = 2048
"""The messages that are requested ahead of the fold."""

MAX_READ_AHEAD_BYTES = 16 * 1024 * 1024
"""The bytes that are requested ahead of the fold, at least the two largest messages. NATS holds as much for a client
that does not read in time, and disconnects it above ``max_pending``, by default 64 MiB.
"""

BATCH_BYTES = 2 * 1024 * 1024
"""The bytes at which a batch of messages ends."""

HEARTBEAT_S = 2.0
"""Two missed heartbeats break the reader before its server may no longer renew its leases (PROTOCOL §2 *Reading*)."""

PROBE_HEARTBEAT_S = 0.02

INACTIVE_S = 30.0

FILTERS_LIMIT = 4
"""The most partitions that the server filters; above, it sends all and the reader drops the rest.

On a tail both cost the same. On a backlog a consumer with several filters delivers some 7,000 messages a second, one
with a single filter 50,000 (nats-server 2.15, see ``benchmarks/adapter_nats.py``).
"""


class NatsEventReader:
    """An :class:`~noetl_stream.ports.streams.event_log.EventReader` on an ephemeral pull consumer without
    acknowledgements.

    Stream sequences have holes (other partitions, journal records), the consumer's own sequence has none: a hole in it
    is a gap. Heartbeats move ``high_water`` too: ``Nats-Last-Stream`` is how far the consumer has read the stream, and
    ``Nats-Last-Consumer`` proves that everything it found has arrived. A count of pending messages would not suffice:
    the server updates it shortly after the message is stored.
    """

    def __init__(
        self, connection: NatsConnection, clock: Clock, partitions: Collection[int], after: int, heartbeat_s: float
    ) -> None:
        self.high_water = after
        self._heard_s = self._asked_s = clock.monotonic_s()
        self._connection = connection
        self._clock = clock
        self._consumer = f"reader-{clock.random_bytes(8).hex()}"
        self._partitions = {str(partition): partition for partition in sorted(partitions)}
        self._is_filtered = len(self._partitions) <= FILTERS_LIMIT
        self._heartbeat_s = heartbeat_s
        self._after = after
        self._bodies = True
        self._loop = asyncio.get_running_loop()
        self._inbox = connection.client.new_inbox()
        self._pull = Pull(connection, EVENTS, self._consumer, self._inbox, heartbeat_s)
        self._last_consumer_sequence = 0
        self._last_reply = b""
        self._ready: deque[ReportedMessage | int] = deque()
        self._ready_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._subscription: WireSubscription | None = None
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        connection: NatsConnection,
        clock: Clock,
        partitions: Collection[int],
        after: int,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        records: bool = False,
        bodies: bool = True,
    ) -> NatsEventReader:
        reader = cls(connection, clock, partitions, after, heartbeat_s)
        connection.on_lost(reader._on_lost)
        try:
            reader._subscription = await connection.wire.subscribe(f"{reader._inbox}.*", reader._receive)
            await reader._create_consumer(records, bodies)
        except BaseException:
            await reader.close()
            raise
        reader._request()
        reader._watch = reader._loop.call_later(heartbeat_s, reader._check_contact)
        return reader

    @property
    def contact_s(self) -> float:
        """The time at which NATS was last heard. A reader that holds enough messages requests and hears nothing."""
        return max(self._heard_s, self._asked_s) if self._pull.credit else self._clock.monotonic_s()

    @property
    def received(self) -> int:
        return self._last_consumer_sequence

    @property
    def pending(self) -> int:
        if not self._last_reply:
            return 0
        pending = parse_pending(self._last_reply)[1]
        return pending if self._is_filtered else pending * len(self._partitions) // partition_count()

    @property
    def held_bytes(self) -> int:
        return self._ready_bytes

    async def next_batch(self, limit: int) -> list[ReportedMessage]:
        while True:
            if self._broken is not None:
                raise ReaderBroken(self._broken)
            batch = self._take(limit)
            if batch:
                self._request()
                return batch
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def look(self) -> None:
        """Updates ``high_water`` within milliseconds instead of at the next heartbeat, if no request is pending."""
        if not self._ready and self._broken is None:
            self._pull.probe(PROBE_HEARTBEAT_S)

    async def close(self) -> None:
        self._break("the reader was closed")
        self._connection.forget(self._on_lost)
        if self._watch is not None:
            self._watch.cancel()
        if self._subscription is not None:
            await self._subscription.close()
        # Not awaited: NATS deletes an inactive consumer anyway.
        self._connection.wire.send(f"{self._connection.jetstream}.CONSUMER.DELETE.{EVENTS}.{self._consumer}", b"")

    async def _create_consumer(self, records: bool, bodies: bool) -> None:
        self._bodies = bodies
        filtered = self._partitions if self._is_filtered else ("*",)
        patterns = [
            subjects.partition_patterns(partition)[:1] if records else subjects.inputs(partition)
            for partition in filtered
        ]
        config = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "ack_policy": "none",
            "headers_only": not bodies,
            "filter_subjects": [pattern for of_one in patterns for pattern in of_one],
            "inactive_threshold": round(INACTIVE_S * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": EVENTS, "config": config, "action": "create"}
        await stream_api(self._connection, EVENTS, f"CONSUMER.CREATE.{EVENTS}.{self._consumer}", request)

    def _take(self, limit: int) -> list[ReportedMessage]:
        ready = self._ready
        batch: list[ReportedMessage] = []
        size = 0
        while ready:
            item = ready[0]
            if isinstance(item, int):
                self.high_water = max(self.high_water, item)
            elif len(batch) < limit and size < BATCH_BYTES:
                batch.append(item)
                size += len(item.body)
                self.high_water = max(self.high_water, item.sequence)
            else:
                break
            ready.popleft()
        self._ready_bytes -= size
        return batch

    def _request(self) -> None:
        ahead = self._pull.credit + len(self._ready)
        if ahead > WINDOW // 2:
            return
        largest = self._pull.largest_bytes
        if self._pull.room(max(MAX_READ_AHEAD_BYTES, 2 * largest), self._ready_bytes) >= largest:
            if self._pull.credit == 0:
                self._asked_s = self._clock.monotonic_s()
            self._pull.request(WINDOW - ahead, largest)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        self._heard_s = self._clock.monotonic_s()
        if self._broken is not None:
            return
        if not reply:
            status = parse_status(headers)
            if status is not None:
                self._receive_status(status)
            return
        metadata = parse_metadata(reply)
        if metadata.consumer_sequence != self._last_consumer_sequence + 1:
            self._break(
                f"a gap: message {metadata.consumer_sequence} came after {self._last_consumer_sequence} of this reader"
            )
            return
        self._last_consumer_sequence = metadata.consumer_sequence
        self._last_reply = reply
        self._pull.count_message(counted_bytes(subject, reply, headers, body))
        name = subject.decode()
        tokens = name.split(".")
        partition = self._partitions.get(tokens[2])
        if partition is None:
            self._pass_over(metadata.stream_sequence)
            self._request()
            return
        message_id = "" if self._bodies else parse_fields(headers).get(MESSAGE_ID, "")
        sequence, stored_ms = metadata.stream_sequence, metadata.stored_ms
        message = ReportedMessage(sequence, stored_ms, partition, tokens[3], body, name, message_id=message_id)
        self._ready.append(message)
        self._ready_bytes += len(body)
        self._wake()

    def _pass_over(self, sequence: int) -> None:
        """Notes that all messages up to ``sequence`` have arrived."""
        if not self._ready:
            self.high_water = max(self.high_water, sequence)
        elif isinstance(self._ready[-1], int):
            self._ready[-1] = sequence
        else:
            self._ready.append(sequence)

    def _receive_status(self, status: Status) -> None:
        if status.code == HEARTBEAT:
            found = status.number("Nats-Last-Consumer")
            looked_through = status.number("Nats-Last-Stream")
            if found is None or looked_through is None:
                return
            if found != self._last_consumer_sequence:
                self._break(f"a gap: {found} messages were sent to this reader, {self._last_consumer_sequence} arrived")
            else:
                self._pass_over(looked_through)
        elif self._pull.ends_request(status):
            self._request()
        else:
            self._break(f"the consumer is gone: {status.code} {status.text}".rstrip())

    def _check_contact(self) -> None:
        silent_s = self._clock.monotonic_s() - self.contact_s
        if silent_s > 2.5 * self._heartbeat_s:
            self._break(f"two heartbeats missed: no message for {silent_s:.1f} s")
        if self._broken is None:
            self._watch = self._loop.call_later(self._heartbeat_s / 2, self._check_contact)

    def _on_lost(self) -> None:
        self._break("the connection was lost")

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class NatsEventLog(OutboxPort):
    """:class:`~noetl_stream.ports.streams.event_log.EventLog` over EVENTS; the port documents each method."""

    def __init__(self, connection: NatsConnection, clock: Clock, outbox: Outbox, heartbeat_s: float) -> None:
        super().__init__(connection, outbox)
        self._clock = clock
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
            acknowledge_within_s: The time without an answer after which a report's outcome is unknown, and a journal
                record is sent again.
            leader_wait_s: The time for which a request or report is repeated while no stream takes it.
            heartbeat_s: The interval at which the server sends a heartbeat to an idle reader.
        """
        outbox = await Outbox.open(connection, resend_after_s=acknowledge_within_s, leader_wait_s=leader_wait_s)
        return cls(connection, clock, outbox, heartbeat_s)

    async def publish_request(self, execution_id: str, message_id: str, body: bytes) -> int:
        """Publishes a request. Also raises Unreachable if the stream is full or missing, with that reason."""
        subject = subjects.requested(execution_id)
        stored = await self._publish(subject, message_id, body)
        # NATS remembers an id for two minutes, even that of a message it has lost.
        if stored.duplicate and await self._connection.direct_get(EVENTS, {"seq": stored.seq}) is None:
            stored = await self._publish(subject, f"{message_id}.{stored.seq}", body)
        return stored.seq

    async def publish_report(self, execution_id: str, pool: str, message_id: str, body: bytes) -> int:
        return (await self._publish(subjects.reported(execution_id, pool), message_id, body)).seq

    async def publish_again(self, execution_id: str, message_id: str, body: bytes) -> int:
        return (await self._publish(subjects.requeued(execution_id), message_id, body)).seq

    def _publish(self, subject: str, message_id: str, body: bytes) -> Awaitable[PublishAck]:
        if not message_id.isprintable():
            raise UsageError(f"{message_id!r} is not a valid message id", hint="it must be printable text")
        headers = {MESSAGE_ID: message_id}
        if self._connection.is_connected:
            return publish_once(self._outbox, subject, body, headers)
        return self._publish_connected(subject, body, headers)

    async def _publish_connected(self, subject: str, body: bytes, headers: Mapping[str, str]) -> PublishAck:
        await self._connection.wait_connected(RESEND_AFTER_S)
        return await publish_once(self._outbox, subject, body, headers)

    def publish_decided(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.decided, messages)

    def publish_checkpoints(self, messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return self._publish_held(subjects.checkpoint, messages)

    def _publish_held(self, named: Callable[[int, str], str], messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        batch = _Records(self._outbox, 0)
        for one in messages:
            batch.put(named(one.partition, one.execution_id), one.body, one.message_id)
        return batch.seal()

    async def open_reader(
        self, partitions: Collection[int], after: int, records: bool = False, bodies: bool = True
    ) -> NatsEventReader:
        """Opens a reader of partitions.

        Raises:
            StoreMissing: the stream does not exist.
            Unreachable: no answer in time.
        """
        reader = await NatsEventReader.open(
            self._connection,
            self._clock,
            partitions,
            after,
            heartbeat_s=self._heartbeat_s,
            records=records,
            bodies=bodies,
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

    async def held(self) -> HeldMessages:
        state = (await stream_info(self._connection, EVENTS)).state
        return HeldMessages(state.first_seq, state.last_seq, state.messages)

    async def stored_bytes(self) -> int:
        return (await stream_info(self._connection, EVENTS)).state.bytes

    async def trim(self, through: int) -> None:
        def kept(body: bytes | None, sequence: int) -> bytes | int:
            return 0 if body is None or sequence > through else stored_again(body, sequence, through)

        await asyncio.gather(*(self._replace_fence(partition, kept) for partition in range(partition_count())))
        await stream_api(self._connection, EVENTS, f"STREAM.PURGE.{EVENTS}", {"seq": through + 1})

    async def beyond(self, cursors: Mapping[int, int]) -> dict[int, int]:
        """Counts the messages beyond cursors, with three short requests per partition that is not at the stream's end:
        the first message beyond the cursor comes with the number of messages that follow. NATS counts by its subject
        index, without reading messages.
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

    async def last_decided(self, partition: int) -> tuple[int, bytes] | None:
        _, records, _ = subjects.partition_patterns(partition)
        return await self._stored({"last_by_subj": records})

    async def next_decided(self, partition: int, after: int) -> tuple[int, bytes] | None:
        _, records, _ = subjects.partition_patterns(partition)
        return await self._stored({"seq": after + 1, "next_by_subj": records})

    async def _stored(self, wanted: Mapping[str, Any]) -> tuple[int, bytes] | None:
        stored = await stored_message(self._connection, EVENTS, wanted)
        return (stored.seq, stored.data) if stored is not None else None

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> Collection[int]:
        """Stores fences.

        Raises:
            StoreMissing: the stream does not exist.
            Unreachable: no answer in time; some fences may be stored.
        """
        found = await asyncio.gather(
            *(
                self._replace_fence(partition, partial(raised, partition=partition, epoch=epoch, owner=owner))
                for partition, epoch in epochs.items()
            )
        )
        return {partition for partition, is_fenced in zip(epochs, found, strict=True) if is_fenced}

    async def _replace_fence(self, partition: int, wanted: Callable[[bytes | None, int], bytes | int]) -> int:
        return await replace_last(self._connection, self._outbox, EVENTS, subjects.log_fence(partition), wanted)

    async def fences(self, partition: int) -> Sequence[FencePlace]:
        sequence, body = await self._stored({"last_by_subj": subjects.log_fence(partition)}) or (0, None)
        return places_of(body, sequence)

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


class _Records(HeldBatch[int]):
    """Journal records being published; the result is the highest of their sequences."""

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._result = max(self._result, ack.seq)
        super().on_acknowledged(sent, ack)
