"""The streams that triggers read: a durable pull consumer for each trigger, in the publisher's account (ADR 28)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from noetl_stream.adapters.nats.api_errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.connections.wire import WireSubscription
from noetl_stream.adapters.nats.protocol import (
    HEARTBEAT,
    NANOSECONDS,
    Status,
    parse_fields,
    parse_metadata,
    parse_pending,
    parse_status,
)
from noetl_stream.adapters.nats.pull import Pull, counted_bytes
from noetl_stream.adapters.nats.streams import ConsumerInfo, consumer_info, list_consumers, stream_api
from noetl_stream.concurrency import set_within
from noetl_stream.errors import ReaderBroken, StoreMissing
from noetl_stream.model.envelope import iso
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.trigger_streams import MAX_UNACKNOWLEDGED, ReadMessage, StreamWanted
from noetl_stream.protocol.subjects import EVENTS
from noetl_stream.trigger.stream_messages import CONSUMER_PREFIX, MAX_MESSAGE_BYTES, TriggerMessage

ACK_WAIT_S: Final = 5.0
"""The time after which an unacknowledged message is delivered again."""

EXPIRES_S: Final = 15.0
HEARTBEAT_S: Final = 5.0
MAX_HELD_BYTES: Final = 2 * 1024 * 1024
_TRIGGER: Final = "noetl_trigger"
_EVENTS: Final = "noetl_events"
"""The keys, in the metadata of a consumer, of its trigger's path and of the creation time of its servers' EVENTS, since
other servers may read the same stream.
"""


class _StreamConfig(msgspec.Struct):
    retention: str = "limits"


class _StreamFound(msgspec.Struct):
    created: str
    config: _StreamConfig


class NatsTriggerStreams:
    """:class:`~noetl_stream.ports.streams.trigger_streams.TriggerStreams` on NATS; the port documents each method."""

    def __init__(self, connection: NatsConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def open(self, wanted: StreamWanted) -> NatsStreamConsumer:
        stream = wanted.filter.stream
        made = msgspec.json.decode(await self._api(stream, f"STREAM.INFO.{stream}"), type=_StreamFound)
        place = wanted.folded
        folded = place.sequence if place is not None and place.made == made.created else 0
        subjects = [] if wanted.filter.subject == ">" else [wanted.filter.subject]
        found = await self._find(stream, wanted.consumer)
        if found is not None and made.config.retention == "limits":
            is_ahead = found.ack_floor.consumer_seq and found.ack_floor.stream_seq > folded
            if is_ahead or found.subjects != subjects:  # is ahead: the database was restored
                await self.remove(stream, wanted.consumer)
                found = None
        if found is None:
            starts = _starts(wanted, folded, made.config.retention)
            metadata = {_TRIGGER: wanted.trigger, _EVENTS: await self._events()}
            settings = {**_settings(wanted.consumer), **starts, "metadata": metadata}
            found = await self._make(stream, wanted.consumer, settings, subjects)
        elif found.subjects != subjects:
            found = await self._make(stream, wanted.consumer, found.config, subjects)
        consumer = NatsStreamConsumer(self, self._connection, self._clock, found, stream, made.created)
        await consumer.start()
        return consumer

    async def remove(self, stream: str, consumer: str) -> None:
        try:
            await self._connection.api(f"CONSUMER.DELETE.{stream}.{consumer}", prefix=self._connection.streams)
        except ApiRefused as error:
            if error.err_code not in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                raise

    async def consumers(self, stream: str) -> list[str]:
        events = await self._events()
        listed = list_consumers(self._connection, stream, prefix=self._connection.streams)
        try:
            own = [one.name async for one in listed if one.metadata.get(_EVENTS) == events]
        except StoreMissing:
            return []
        return sorted(name for name in own if name.startswith(CONSUMER_PREFIX))

    async def info(self, stream: str, consumer: str) -> ConsumerInfo:
        """Returns the present state of a consumer.

        Raises:
            ReaderBroken: the consumer is gone.
        """
        found = await self._find(stream, consumer)
        if found is None:
            raise ReaderBroken(f"consumer {consumer} of stream {stream} is gone")
        return found

    async def _events(self) -> str:
        found = await self._connection.api(f"STREAM.INFO.{EVENTS}")
        return msgspec.json.decode(found, type=_StreamFound).created

    async def _find(self, stream: str, consumer: str) -> ConsumerInfo | None:
        return await consumer_info(self._connection, stream, consumer, prefix=self._connection.streams)

    async def _make(
        self, stream: str, consumer: str, settings: Mapping[str, Any], subjects: Sequence[str]
    ) -> ConsumerInfo:
        config = {name: value for name, value in settings.items() if name not in ("filter_subject", "filter_subjects")}
        if subjects:
            config["filter_subjects"] = subjects
        request = {"stream_name": stream, "config": config}
        answer = await self._api(stream, f"CONSUMER.CREATE.{stream}.{consumer}", request)
        return msgspec.json.decode(answer, type=ConsumerInfo)

    async def _api(self, stream: str, subject: str, request: Mapping[str, Any] | None = None) -> bytes:
        return await stream_api(self._connection, stream, subject, request, prefix=self._connection.streams)


def _settings(name: str) -> dict[str, Any]:
    return {
        "durable_name": name,
        "name": name,
        "description": "made and deleted by noetl-stream with its trigger",
        "ack_policy": "explicit",
        "ack_wait": round(ACK_WAIT_S * NANOSECONDS),
        "max_deliver": -1,
        "max_ack_pending": MAX_UNACKNOWLEDGED,
    }


def _starts(wanted: StreamWanted, folded: int, retention: str) -> dict[str, Any]:
    """Returns the start of a new consumer. One on a work queue must take all messages."""
    if retention == "workqueue" or not (folded or wanted.from_ms):
        return {"deliver_policy": "all"}
    if folded:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": folded + 1}
    return {"deliver_policy": "by_start_time", "opt_start_time": iso(wanted.from_ms)}


class NatsStreamConsumer:
    """:class:`~noetl_stream.ports.streams.trigger_streams.StreamConsumer` on NATS.

    The consumer numbers its deliveries without gaps: a gap means that another reader got some. Unacknowledged messages
    are redelivered after :data:`ACK_WAIT_S`, among new ones, which are held back until all have arrived.
    """

    def __init__(
        self,
        streams: NatsTriggerStreams,
        connection: NatsConnection,
        clock: Clock,
        found: ConsumerInfo,
        stream: str,
        made: str,
    ) -> None:
        self._streams = streams
        self._connection = connection
        self._clock = clock
        self._name = found.name
        self._stream = stream
        self._made = made
        self._named = f".{stream}.{found.name}.".encode()
        inbox = connection.client.new_inbox()
        self._inbox = f"{inbox}.*"
        self._pull = Pull(connection, stream, found.name, inbox, HEARTBEAT_S, api=connection.streams)
        self._pull.expires_s = EXPIRES_S
        self._last = found.delivered.consumer_seq
        self._outstanding = found.num_ack_pending
        self._quiet_until_s = clock.monotonic_s() + ACK_WAIT_S + 1
        self._held: dict[int, ReadMessage] = {}
        self._holds_new = False
        self._ready: deque[tuple[ReadMessage, bool]] = deque()
        self._receipts: dict[int, bytes] = {}
        self._arrived = asyncio.Event()
        self._heard_s = clock.monotonic_s()
        self._broken = ""
        self._subscription: WireSubscription | None = None

    async def start(self) -> None:
        """Starts reading the consumer from the state it was found in."""
        self._connection.on_lost(self._on_lost)
        try:
            self._subscription = await self._connection.wire.subscribe(self._inbox, self._receive)
        except BaseException:
            await self.close()
            raise

    @property
    def made(self) -> str:
        return self._made

    async def next_batch(self, limit: int, wait_s: float) -> list[ReadMessage]:
        if self._outstanding:
            await self._settle(wait_s)
        elif not self._held:
            await self._receive_some(limit, wait_s)
        if self._outstanding:
            return []
        for _ in range(len(self._ready)):
            message, _ = self._ready.popleft()
            self._held[message.message.sequence] = message
        batch = [self._held[sequence] for sequence in sorted(self._held)[:limit]]
        for one in batch:
            del self._held[one.message.sequence]
        return batch

    async def acknowledge(self, messages: Sequence[ReadMessage]) -> None:
        for one in messages:
            self._receipts.pop(one.message.sequence, None)
            self._connection.wire.send(one.receipt.decode(), b"+ACK")

    async def pending(self) -> int:
        found = await self._streams.info(self._stream, self._name)
        return found.num_pending + found.num_ack_pending

    async def close(self) -> None:
        self._break("the reader was closed")
        self._connection.forget(self._on_lost)
        if self._subscription is not None:
            await self._subscription.close()
        for receipt in self._receipts.values():
            self._connection.wire.send(receipt.decode(), b"-NAK")
        self._receipts.clear()

    async def _settle(self, wait_s: float) -> None:
        """Takes unacknowledged messages of earlier deliveries, one by one, until all have arrived."""
        now_s = self._clock.monotonic_s()
        if self._holds_new and now_s < self._quiet_until_s:
            await self._clock.sleep(min(wait_s, self._quiet_until_s - now_s))
            return
        await self._receive_some(1, min(wait_s, HEARTBEAT_S))
        found_any = bool(self._ready)
        while self._ready:
            message, is_repeated = self._ready.popleft()
            if message.message.sequence not in self._held:
                self._outstanding -= is_repeated
                self._holds_new |= not is_repeated
            self._held[message.message.sequence] = message
        if not found_any or self._holds_new:  # messages deleted from the stream do not arrive
            found = await self._streams.info(self._stream, self._name)
            self._outstanding = found.num_ack_pending - len(self._held)
        self._outstanding = max(0, self._outstanding)

    async def _receive_some(self, limit: int, wait_s: float) -> None:
        if not self._broken and not self._ready:
            self._arrived.clear()
            if not self._pull.credit:
                self._heard_s = self._clock.monotonic_s()
                self._pull.request(limit, max(MAX_HELD_BYTES, self._pull.largest_bytes))
            await set_within(self._arrived, wait_s)
        silent_s = self._clock.monotonic_s() - self._heard_s
        if self._pull.credit and silent_s > 2.5 * HEARTBEAT_S:
            self._break(f"two heartbeats missed: no message for {silent_s:.1f} s")
        if self._broken:
            raise ReaderBroken(self._broken)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        self._heard_s = self._clock.monotonic_s()
        if not reply:
            status = parse_status(headers)
            if status is not None:
                self._receive_status(status)
            return
        if not reply.startswith(b"$JS.ACK.") or self._named not in reply:
            return  # its acknowledgement would go to a subject of its sender's choice
        metadata = parse_metadata(reply)
        if metadata.consumer_sequence != self._last + 1:
            self._break(f"another has read from it: delivery {metadata.consumer_sequence} came after {self._last}")
            return
        self._last = metadata.consumer_sequence
        self._pull.count_message(counted_bytes(subject, reply, headers, body))
        size = len(body) + len(headers)
        fits = size <= MAX_MESSAGE_BYTES
        message = TriggerMessage(
            stream=self._stream,
            sequence=metadata.stream_sequence,
            subject=_text(subject),
            at_ms=metadata.stored_ms,
            size=size,
            body=body if fits else b"",
            headers=parse_fields(headers.replace(b"\0", b"")) if fits else {},
        )
        self._receipts[message.sequence] = reply
        self._ready.append((ReadMessage(message, parse_pending(reply)[1], reply), metadata.num_delivered > 1))
        self._arrived.set()

    def _receive_status(self, status: Status) -> None:
        if status.code != HEARTBEAT and not self._pull.ends_request(status):
            self._break(f"the consumer is gone: {status.code} {status.text}".rstrip())

    def _on_lost(self) -> None:
        self._break("the connection was lost")

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._arrived.set()


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace").replace("\0", "")
