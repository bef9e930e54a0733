"""How much of what is bounded servers and workers hold in memory, as they say (PROTOCOL §7 *Memory is bounded*)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.messages import MemoryUse
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.command_queue import CommandQueue

log = logging.getLogger(__name__)

WAIT_S: Final = 0.3

_Answer = TypeVar("_Answer")


class DirectMemory:
    """:class:`~noetl_stream.ports.gateway.Memory`, asked of all processes over NATS; once, however many ask here."""

    def __init__(self, queue: CommandQueue, bus: Bus) -> None:
        self._queue = queue
        self._bus = bus
        self._asked: SharedLoads[str, list[MemoryUse]] = SharedLoads()

    async def uses(self) -> list[MemoryUse]:
        """See :meth:`noetl_stream.ports.gateway.Memory.uses`."""
        return await self._asked.get("uses", self._ask_all)

    async def _ask_all(self) -> list[MemoryUse]:
        try:
            pools = await self._queue.pools()
            asked = [self._answers(f"{subjects.ASK_WORKERS}.{pool.pool}", codec.decode_presence) for pool in pools]
            servers = self._answers(subjects.ASK_MEMORY, codec.decode_memory_use)
            uses, workers = await asyncio.gather(servers, asyncio.gather(*asked))
        except NoetlError as error:
            log.debug("cannot see what others hold in memory: %s", error)
            return []
        held = [MemoryUse("worker", one.name, {"commands": one.held_bytes}) for found in workers for one in found]
        return [*uses, *held]

    async def _answers(self, subject: str, decode: Callable[[bytes], _Answer]) -> list[_Answer]:
        found = []
        for answer in await self._bus.ask_all(subject, b"", WAIT_S):
            try:
                found.append(decode(answer))
            except PayloadRefused as error:
                log.warning("cannot read an answer on %s: %s", subject, error)
        return found
