"""Task logs on the JetStream stream LOGS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from noetl_stream.adapters.nats.api_errors import rule_of
from noetl_stream.adapters.nats.connections.connection import API_TIMEOUT_S, NatsConnection
from noetl_stream.adapters.nats.outbox import LEADER_WAIT_S, MESSAGE_ID, Outbox, OutboxPort, PendingPublish
from noetl_stream.adapters.nats.protocol import (
    END_OF_BATCH,
    NANOSECONDS,
    NO_MESSAGES,
    NO_RESPONDERS,
    REQUEST_EXPIRED,
    ApiError,
    PublishAck,
    Status,
    parse_fields,
    parse_metadata,
    parse_status,
)
from noetl_stream.adapters.nats.streams import stream_api, stream_info
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.concurrency import closing
from noetl_stream.errors import NoetlError, NotReady
from noetl_stream.ports.streams.task_logs import BatchSize, LogsExtent, StoredBatch
from noetl_stream.protocol.subjects import LOGS, LogOwner, log_owner, task_logs_of, task_logs_owned_by

READ_BATCHES: Final = 64
READ_BYTES: Final = 1024 * 1024
"""The bytes that one read of logs requests."""

SIZED_BATCHES: Final = 1_000
"""The number of sizes that one request asks for."""

RECORD_BYTES: Final = 34
"""The bytes that NATS writes with a message in addition to its subject, headers and body."""

Found = TypeVar("Found")

_COMPLETE: Final = Status(END_OF_BATCH, "", {})


class NatsTaskLogs(OutboxPort):
    """:class:`~noetl_stream.ports.streams.task_logs.TaskLogs` over the stream LOGS; the port documents each method."""

    @classmethod
    async def open(cls, connection: NatsConnection) -> NatsTaskLogs:
        return cls(connection, await Outbox.open(connection))

    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        self._outbox.put(subject, body, {MESSAGE_ID: message_id}, _Publish(self._outbox, done))

    async def read(self, execution_id: str, first: int) -> list[StoredBatch]:
        """Reads the stream directly, so that no reader needs a consumer."""
        connection = self._connection
        wanted = {"seq": max(first, 1), "next_by_subj": task_logs_of(execution_id)}
        wanted |= {"batch": READ_BATCHES, "max_bytes": READ_BYTES}
        answer = _Answer(_batch, READ_BATCHES)
        status = await self._ask(f"DIRECT.GET.{LOGS}", wanted, answer)
        if status.code == NO_RESPONDERS:
            raise NotReady(f"stream {LOGS} does not allow direct reads", hint="run `noetl-stream stream ensure`")
        if status.code not in (END_OF_BATCH, NO_MESSAGES):
            raise connection.unreachable(f"DIRECT.GET.{LOGS} was refused: {status.code} {status.text}".rstrip())
        return answer.found

    async def delete(self, execution_id: str) -> None:
        await self._purge({"filter": task_logs_of(execution_id)})

    async def extent(self) -> LogsExtent:
        info = await stream_info(self._connection, LOGS)
        state, most = info.state, info.config.get("max_bytes", -1)
        return LogsExtent(state.first_seq, state.last_seq, state.bytes, most if most > 0 else None)

    async def sizes(self, first: int) -> list[BatchSize]:
        """Reads only the headers, through a consumer of its own."""
        connection = self._connection
        consumer = connection.client.new_inbox().rpartition(".")[2]
        config = {
            "name": consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(first, 1),
            "ack_policy": "none",
            "headers_only": True,
            "inactive_threshold": round(2 * API_TIMEOUT_S * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": LOGS, "config": config, "action": "create"}
        await stream_api(connection, LOGS, f"CONSUMER.CREATE.{LOGS}.{consumer}", request)
        answer = _Answer(_size, SIZED_BATCHES)
        wanted = {"batch": SIZED_BATCHES, "no_wait": True}
        status = await self._ask(f"CONSUMER.MSG.NEXT.{LOGS}.{consumer}", wanted, answer)
        connection.wire.send(f"{connection.jetstream}.CONSUMER.DELETE.{LOGS}.{consumer}", b"")  # or NATS, when inactive
        if status.code not in (END_OF_BATCH, NO_MESSAGES, REQUEST_EXPIRED):
            raise connection.unreachable(f"reading sizes of {LOGS} was refused: {status.code} {status.text}".rstrip())
        return answer.found

    async def trim(self, owner: LogOwner, through: int) -> None:
        await self._purge({"filter": task_logs_owned_by(owner), "seq": through + 1})

    async def _purge(self, what: Mapping[str, Any]) -> None:
        await stream_api(self._connection, LOGS, f"STREAM.PURGE.{LOGS}", what)

    async def _ask(self, request: str, wanted: Mapping[str, Any], answer: _Answer[Any]) -> Status:
        """Sends a request with an answer of many messages; returns the status that ends it."""
        connection = self._connection
        subject, inbox = f"{connection.jetstream}.{request}", connection.client.new_inbox()
        await connection.wait_connected(API_TIMEOUT_S)
        async with closing(await connection.wire.subscribe(inbox, answer.receive)):
            with connection.refusals.until_refused("publish", subject) as refused:
                connection.wire.send(subject, msgspec.json.encode(wanted), inbox)
                either: set[asyncio.Future[Any]] = {answer.end, refused}
                await asyncio.wait(either, timeout=API_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
                if refused.done():
                    raise connection.refusals.error("publish", subject)
        if not answer.end.done():
            raise connection.unreachable(f"no answer to {request} within {API_TIMEOUT_S:g} s")
        return answer.end.result()


class _Answer(Generic[Found]):
    """An answer of many messages; it ends with a status or the last requested message."""

    def __init__(self, read: Callable[[bytes, bytes, bytes, bytes], Found], requested: int) -> None:
        self.found: list[Found] = []
        self.end: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._read = read
        self._requested = requested

    def receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        status = parse_status(headers)
        if status is None:
            self.found.append(self._read(subject, reply, headers, body))
            if len(self.found) == self._requested:
                status = _COMPLETE
        if status is not None and not self.end.done():
            self.end.set_result(status)


def _batch(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> StoredBatch:
    fields = parse_fields(headers)
    return StoredBatch(int(fields["Nats-Sequence"]), log_owner(fields["Nats-Subject"]).pool, body)


def _size(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> BatchSize:
    size = int(parse_fields(headers).get("Nats-Msg-Size", 0)) + len(subject) + len(headers) + RECORD_BYTES
    return BatchSize(parse_metadata(reply).stream_sequence, log_owner(subject.decode()), size)


class _Publish:
    """A batch of log lines, repeated under the same id until it is stored, refused or given up."""

    __slots__ = ("_done", "_loop", "_until_s")

    waits_its_turn: Final = False

    def __init__(self, outbox: Outbox, done: Callable[[str], None]) -> None:
        self._loop = outbox.loop
        self._until_s = outbox.loop.time() + LEADER_WAIT_S
        self._done = done

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._done("")

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        rule = rule_of(error)
        why = error.description + (f"; {rule.hint}" if rule.hint else "")
        if rule.treatment is Treatment.AGAIN:
            return self._may_retry(why)
        self._done(why)
        return False

    def on_overdue(self, sent: PendingPublish, reason: str) -> bool:
        return self._may_retry(reason)

    def on_abandoned(self, error: NoetlError) -> None:
        self._done(error.message)

    def _may_retry(self, why: str) -> bool:
        if self._loop.time() < self._until_s:
            return True
        self._done(why)
        return False
