"""What runs the executions, directly from NATS and Postgres."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from noetl_stream.client.cluster.dead_letters import DirectDeadLetters
from noetl_stream.client.cluster.workers import ask_workers, worker_document
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.command_queue import CommandQueue
from noetl_stream.ports.dead_letters import DeadLetters
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.operations.cluster import (
    DeadLetterDocument,
    DeadLetterPage,
    DeadLetterWithBodyDocument,
    PartitionDocument,
    PoolDocument,
    WorkerDocument,
)
from noetl_stream.ports.store import Store


class ClusterPorts(NamedTuple):
    log: EventLog
    queue: CommandQueue
    bus: Bus
    store: Store
    dead_letters: DeadLetters
    clock: Clock


class DirectCluster:
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`, where each method is described."""

    def __init__(self, ports: ClusterPorts) -> None:
        self._ports = ports
        self._letters = DirectDeadLetters(ports.dead_letters, ports.log, ports.bus, ports.clock)

    async def workers(self) -> list[WorkerDocument]:
        return [worker_document(worker) for worker in await ask_workers(self._ports.bus)]

    async def pools(self) -> list[PoolDocument]:
        queued, workers = await asyncio.gather(self._ports.queue.pools(), ask_workers(self._ports.bus))
        counts = {pool.pool: pool for pool in queued}
        documents: list[PoolDocument] = []
        for name in sorted({*counts, *(worker.pool for worker in workers)}):
            here = [worker for worker in workers if worker.pool == name]
            pool = counts.get(name)
            documents.append(
                PoolDocument(
                    pool=name,
                    workers=len(here),
                    slots=sum(worker.slots for worker in here),
                    busy=sum(worker.busy for worker in here),
                    queued=pool.queued if pool is not None else 0,
                    running=pool.given if pool is not None else 0,
                    again=pool.again if pool is not None else 0,
                )
            )
        return documents

    async def partitions(self) -> list[PartitionDocument]:
        views = await self._ports.store.read_partitions()
        behind = await self._ports.log.beyond({view.id: view.last_seq for view in views})
        return [
            PartitionDocument(
                partition=view.id,
                owner=view.owner,
                epoch=view.epoch,
                live=view.live,
                folded=view.last_seq,
                behind=behind[view.id],
            )
            for view in views
        ]

    async def dead_letters(self, limit: int, cursor: str | None) -> DeadLetterPage:
        return await self._letters.page(limit, cursor)

    async def dead_letter(self, letter_id: str) -> DeadLetterWithBodyDocument:
        return await self._letters.get(letter_id)

    async def requeue(self, letter_id: str, by: str) -> DeadLetterDocument:
        return await self._letters.requeue(letter_id, by)

    async def discard(self, letter_id: str, by: str) -> None:
        await self._letters.discard(letter_id, by)
