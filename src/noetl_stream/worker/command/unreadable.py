"""Unreadable commands: returned, and in the end reported to servers (PROTOCOL §3 *Limit of deliveries*)."""

from __future__ import annotations

import asyncio
import logging

from noetl_stream.concurrency import end_tasks, start_among
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, UnreadableCommand
from noetl_stream.ports.stores.dead_letters import MAX_LETTER_BYTES
from noetl_stream.ports.streams.command_queue import Delivery
from noetl_stream.protocol.subjects import command_in
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.worker_limits import RETURN_DELAY_S

log = logging.getLogger(__name__)


class UnreadableCommands:
    """Returns unreadable commands to the queue; after too many deliveries reports them to servers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reports: set[asyncio.Task[None]] = set()

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """Settles the delivery of an unreadable command. One of a newer format waits for a newer worker."""
        if (
            codec.newer_format(delivery.body, AGGREGATES_FORMAT)
            or delivery.num_delivered <= DEFAULT_LIMITS.max_deliveries
        ):
            log.error("cannot read command %s, returned to the queue: %s", delivery.subject, reason)
            delivery.nak(RETURN_DELAY_S)
            return
        log.error("cannot read command %s, given up: %s", delivery.subject, reason)
        start_among(self._reports, self._give_up(delivery, reason))

    async def close(self) -> None:
        await end_tasks(self._reports)

    async def _give_up(self, delivery: Delivery, reason: str) -> None:
        execution_id, command_id = command_in(delivery.subject)
        if is_valid_id(execution_id) and is_valid_id(command_id):
            body = UnreadableCommand(
                execution_id=execution_id,
                command_id=command_id,
                reason=f"delivered {delivery.num_delivered} times, and no worker could read it: {reason}",
                body=delivery.body[:MAX_LETTER_BYTES],
                format=FORMAT,
            )
            identity = f"{command_id}.unreadable.{delivery.stored_ms}"
            await self._channel.publish(execution_id, identity, codec.without_nul(codec.encode(body)))
        delivery.ack()
