"""How much servers and workers hold of what is bounded in memory, as they say (PROTOCOL §7 *Memory is bounded*)."""

from __future__ import annotations

import asyncio
import logging

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError
from noetl_stream.model.messages import MemoryUse
from noetl_stream.operations.answers import server_uses, workers_of
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue

log = logging.getLogger(__name__)


class DirectMemory:
    """:class:`~noetl_stream.ports.stores.idempotency.Memory`, asked of all processes over NATS; once, however many ask
    here.
    """

    def __init__(self, queue: CommandQueue, bus: Bus) -> None:
        self._queue = queue
        self._bus = bus
        self._asked: SharedLoads[str, list[MemoryUse]] = SharedLoads()

    async def uses(self) -> list[MemoryUse]:
        """See :meth:`noetl_stream.ports.stores.idempotency.Memory.uses`."""
        return await self._asked.get("uses", self._ask_all)

    async def _ask_all(self) -> list[MemoryUse]:
        try:
            pools = [pool.pool for pool in await self._queue.pools()]
            uses, workers = await asyncio.gather(server_uses(self._bus), workers_of(self._bus, pools))
        except NoetlError as error:
            log.debug("cannot see what others hold in memory: %s", error)
            return []
        return [*uses, *(MemoryUse("worker", one.name, {"commands": one.held_bytes}) for one in workers)]
