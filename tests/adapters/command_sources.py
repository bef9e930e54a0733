"""Taking commands from a pool, and making its queues as servers do."""

from __future__ import annotations

import asyncio

from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.ports.streams.command_queue import CommandSource, Delivery
from noetl_stream.protocol.subjects import ASK_QUEUE
from noetl_testkit.waiting import TIMEOUT_S


async def next_of(source: CommandSource, count: int = 1) -> list[Delivery]:
    async with asyncio.timeout(TIMEOUT_S):
        return [await source.next() for _ in range(count)]


async def serve_queues(queue: NatsCommandQueue, connection: NatsConnection) -> None:
    """Makes queues for workers that ask, as servers do."""
    bus = NatsBus(connection)

    async def make(subject: str, _body: bytes, reply: str) -> None:
        await queue.add_pool(subject.rpartition(".")[2])
        bus.send(reply, b"")

    await bus.listen(f"{ASK_QUEUE}.*", make)
