"""Presence and memory: servers and workers by their own reports, unfinished executions from Postgres."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WorkerPresence
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.dead_letters import DeadLetters
from noetl_stream.ports.stores.idempotency import Living
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.protocol import subjects

log = logging.getLogger(__name__)

WAIT_S: Final = 0.3
"""The time in which answers are collected."""

_Answer = TypeVar("_Answer")


async def server_uses(bus: Bus) -> list[MemoryUse]:
    """The memory that each server reports."""
    return await _answers(bus, subjects.ASK_MEMORY, codec.decode_memory_use)


async def pool_labels(bus: Bus) -> Mapping[str, Mapping[str, str]]:
    """The labels of pools reported by servers; where they differ, those of the last server by name."""
    said = sorted(await server_uses(bus), key=lambda server: server.process)
    return {pool: labels for server in said for pool, labels in server.pool_labels.items()}


async def workers_of(bus: Bus, pools: Collection[str]) -> list[WorkerPresence]:
    """The workers of these pools, by pool and name. One that names another pool than the requested one is omitted."""
    asked = [_answers(bus, f"{subjects.ASK_WORKERS}.{pool}", codec.decode_presence) for pool in pools]
    answered = zip(pools, await asyncio.gather(*asked), strict=True)
    found = [worker for pool, workers in answered for worker in workers if worker.pool == pool]
    return sorted(found, key=lambda worker: (worker.pool, worker.name))


async def _answers(bus: Bus, subject: str, decode: Callable[[bytes], _Answer]) -> list[_Answer]:
    found = []
    for answer in await bus.ask_all(subject, b"", WAIT_S):
        try:
            found.append(decode(answer))
        except PayloadRefused as error:
            log.warning("cannot read an answer on %s: %s", subject, error)
    return found


class DirectMemory:
    """:class:`~noetl_stream.ports.stores.idempotency.Memory` of all processes, over NATS, shared by callers."""

    def __init__(self, queue: CommandQueue, bus: Bus) -> None:
        self._queue = queue
        self._bus = bus
        self._asked: SharedLoads[str, list[MemoryUse]] = SharedLoads()

    async def uses(self) -> list[MemoryUse]:
        return await self._asked.get("uses", self._ask_all)

    async def _ask_all(self) -> list[MemoryUse]:
        try:
            pools = [pool.pool for pool in await self._queue.pools()]
            uses, workers = await asyncio.gather(server_uses(self._bus), workers_of(self._bus, pools))
        except NoetlError as error:
            log.debug("cannot see what others hold in memory: %s", error)
            return []
        return [*uses, *(MemoryUse("worker", one.name, {"commands": one.held_bytes}) for one in workers)]


COUNT_S: Final = 2.0
"""The time in which Postgres must count."""

KEPT_S: Final = 5.0
"""The time for which a count, which reads each unfinished execution, is kept."""

MOST_STUCK: Final = 100
MOST_LETTERS: Final = 100


class DirectLiving:
    """:class:`~noetl_stream.ports.stores.idempotency.LivingExecutions`, counted once for all concurrent callers.

    Args:
        kept_s: The time for which a count is kept.
    """

    def __init__(self, store: Store, letters: DeadLetters, clock: Clock, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._store = store
        self._letters = letters
        self._clock = clock
        self._counts: SharedLoads[str, Living | None] = SharedLoads()
        self._last: Living | None = None
        self._counted_s = float("-inf")

    async def count(self) -> Living | None:
        if self._clock.monotonic_s() - self._counted_s < self._kept_s:
            return self._last
        return await self._counts.get("", self._count)

    async def _count(self) -> Living | None:
        store, letters = self._store, self._letters.page(MOST_LETTERS, None)
        found = asyncio.gather(store.living_by_status(), store.stuck(MOST_STUCK), letters)
        try:
            by_status, stuck, waiting = await asyncio.wait_for(found, COUNT_S)
        except (NoetlError, TimeoutError) as error:
            log.debug("cannot count the living executions: %s", error)
            return None
        sources = Counter(letter.row.source for letter in waiting)
        self._last, self._counted_s = Living(by_status, len(stuck), sources), self._clock.monotonic_s()
        return self._last
