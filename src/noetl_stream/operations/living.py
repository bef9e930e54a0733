"""How many executions live, as Postgres has them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.idempotency import Living
from noetl_stream.ports.stores.store import Store

log = logging.getLogger(__name__)

COUNT_S: Final = 2.0
"""How long Postgres may take to count."""

KEPT_S: Final = 5.0
"""How long a count, which reads each living execution, is not repeated."""

MOST_STUCK: Final = 100


class DirectLiving:
    """:class:`~noetl_stream.ports.stores.idempotency.LivingExecutions`, counted once, however many ask here.

    Args:
        kept_s: How long a count is not repeated.
    """

    def __init__(self, store: Store, clock: Clock, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._store = store
        self._clock = clock
        self._counts: SharedLoads[str, Living | None] = SharedLoads()
        self._last: Living | None = None
        self._counted_s = float("-inf")

    async def count(self) -> Living | None:
        """See :meth:`noetl_stream.ports.stores.idempotency.LivingExecutions.count`."""
        if self._clock.monotonic_s() - self._counted_s < self._kept_s:
            return self._last
        return await self._counts.get("", self._count)

    async def _count(self) -> Living | None:
        both = asyncio.gather(self._store.living_by_status(), self._store.stuck(MOST_STUCK))
        try:
            by_status, stuck = await asyncio.wait_for(both, COUNT_S)
        except (NoetlError, TimeoutError) as error:
            log.debug("cannot count the living executions: %s", error)
            return None
        self._last, self._counted_s = Living(by_status, len(stuck)), self._clock.monotonic_s()
        return self._last
