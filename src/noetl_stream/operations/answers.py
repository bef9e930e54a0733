"""The answers of all processes that hear a question, except those that take too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WorkerPresence
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol import subjects

log = logging.getLogger(__name__)

WAIT_S: Final = 0.3
"""How long answers are collected."""

_Answer = TypeVar("_Answer")


async def server_uses(bus: Bus) -> list[MemoryUse]:
    """What each server says it holds in memory."""
    return await _answers(bus, subjects.ASK_MEMORY, codec.decode_memory_use)


async def workers_of(bus: Bus, pools: Collection[str]) -> list[WorkerPresence]:
    """The workers of these pools, by pool and name. One that names a pool other than the one asked is left out."""
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
