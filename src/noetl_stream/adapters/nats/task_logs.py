"""Task logs on the JetStream stream LOGS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl_stream.adapters.nats.connections.connection import API_TIMEOUT_S, NatsConnection
from noetl_stream.adapters.nats.outbox import LEADER_WAIT_S, MESSAGE_ID, Outbox, OutboxPort, PendingPublish, hint_for
from noetl_stream.adapters.nats.protocol import (
    END_OF_BATCH,
    NO_MESSAGES,
    NO_RESPONDERS,
    ApiError,
    PublishAck,
    Status,
    parse_fields,
    parse_status,
)
from noetl_stream.adapters.nats.streams import stream_api
from noetl_stream.errors import NoetlError, NotReady
from noetl_stream.ports.streams.task_logs import StoredBatch
from noetl_stream.protocol.subjects import LOGS, task_logs_of

READ_BATCHES: Final = 64
READ_BYTES: Final = 1024 * 1024
"""The bytes that one read of logs requests."""


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
        subject, inbox = f"{connection.jetstream}.DIRECT.GET.{LOGS}", connection.client.new_inbox()
        answer = _Answer()
        await connection.wait_connected(API_TIMEOUT_S)
        subscription = await connection.wire.subscribe(inbox, answer.receive)
        try:
            with connection.refusals.until_refused("publish", subject) as refused:
                connection.wire.send(subject, msgspec.json.encode(wanted), inbox)
                either: set[asyncio.Future[Any]] = {answer.end, refused}
                await asyncio.wait(either, timeout=API_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
                if refused.done():
                    raise connection.refusals.error("publish", subject)
        finally:
            await subscription.close()
        if not answer.end.done():
            raise connection.unreachable(f"no answer to DIRECT.GET.{LOGS} within {API_TIMEOUT_S:g} s")
        status = answer.end.result()
        if status.code == NO_RESPONDERS:
            raise NotReady(f"stream {LOGS} does not allow direct reads", hint="run `noetl-stream stream ensure`")
        if status.code not in (END_OF_BATCH, NO_MESSAGES):
            raise connection.unreachable(f"DIRECT.GET.{LOGS} was refused: {status.code} {status.text}".rstrip())
        return answer.batches

    async def delete(self, execution_id: str) -> None:
        await stream_api(self._connection, LOGS, f"STREAM.PURGE.{LOGS}", {"filter": task_logs_of(execution_id)})


class _Answer:
    """The answer to a direct read of the stream: batches, then a status."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.end: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    def receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        status = parse_status(headers)
        if status is None:
            fields = parse_fields(headers)
            pool = fields["Nats-Subject"].split(".")[2]
            self.batches.append(StoredBatch(int(fields["Nats-Sequence"]), pool, body))
        elif not self.end.done():
            self.end.set_result(status)


class _Publish:
    """A batch of log lines, sent again under the same id until it is stored, refused, or given up."""

    __slots__ = ("_done", "_loop", "_until_s")

    waits_its_turn: Final = False

    def __init__(self, outbox: Outbox, done: Callable[[str], None]) -> None:
        self._loop = outbox.loop
        self._until_s = outbox.loop.time() + LEADER_WAIT_S
        self._done = done

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._done("")

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        hint = hint_for(error)
        why = error.description + (f"; {hint}" if hint else "")
        if error.code == NO_RESPONDERS:  # a leader may be elected
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
