"""The status of a gateway for probes and Prometheus: its own, and that of the system as seen in NATS and Postgres."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

from noetl_stream.errors import NoetlError
from noetl_stream.gateway.http.pressure import Pressure
from noetl_stream.gateway.metrics import Metrics
from noetl_stream.model.messages import MemoryUse
from noetl_stream.model.status import LIVE
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.cluster import Cluster, PoolDocument
from noetl_stream.ports.self_reports import StoreUses
from noetl_stream.ports.stores.dead_letters import LetterSource
from noetl_stream.ports.stores.idempotency import KeptIndexes, LivingExecutions, Memory, Readiness
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.ports.traces import Tracing
from noetl_stream.telemetry.measures import Metric, Reading, memory_readings

log = logging.getLogger(__name__)

SOURCES: Final = get_args(LetterSource)

POOLS_S: Final = 2.0
"""The time in which NATS must report what waits in the pools; the rest is omitted."""

LAG: Final = Metric(
    "gauge",
    "noetl_partition_lag",
    "Messages of EVENTS that are not folded yet, by partition.",
    ("partition",),
)
UNOWNED: Final = Metric("gauge", "noetl_partitions_unowned", "Partitions that no living server owns.")
WAITING: Final = Metric("gauge", "noetl_pool_commands_waiting", "Commands that wait for a worker.", ("pool",))
UNDER_WAY: Final = Metric("gauge", "noetl_pool_commands_in_flight", "Commands that were given to a worker.", ("pool",))
WORKERS: Final = Metric("gauge", "noetl_pool_workers", "Workers that take commands of a pool.", ("pool",))
SLOTS: Final = Metric("gauge", "noetl_pool_slots", "Slots of these workers.", ("pool",))
BUSY: Final = Metric("gauge", "noetl_pool_slots_busy", "Slots that hold a command.", ("pool",))
BY_PRIORITY: Final = Metric(
    "gauge",
    "noetl_pool_commands_waiting_by_priority",
    "Commands that wait for a worker, by the priority of their execution.",
    ("pool", "priority"),
)
UNREADABLE: Final = Metric(
    "gauge", "noetl_pool_unreadable", "1 if NATS cannot read a pool's queue, and gives out no commands.", ("pool",)
)
OLDEST: Final = Metric(
    "gauge", "noetl_pool_oldest_command_age_seconds", "How long the oldest command waits; 0 if none does.", ("pool",)
)
LETTERS: Final = Metric("gauge", "noetl_dead_letters", "Dead letters that nobody has settled, by source.", ("source",))
EXECUTIONS: Final = Metric("gauge", "noetl_executions", "Executions that have not ended, by status.", ("status",))
STORED: Final = Metric("gauge", "noetl_store_bytes", "What is stored in a store.", ("store",))
STORE_LIMIT: Final = Metric("gauge", "noetl_store_limit_bytes", "What a store may hold, if that is known.", ("store",))
FULL_IN: Final = Metric(
    "gauge",
    "noetl_store_full_in_seconds",
    "When a store is full if it grows on as it did in the last hour; none for one that does not grow.",
    ("store",),
)
STUCK: Final = Metric(
    "gauge", "noetl_executions_stuck", "Executions that wait for nothing that could end the wait: a defect."
)


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The :class:`~noetl_stream.telemetry.measures.Role` of a gateway."""

    metrics: Metrics
    pressure: Pressure
    indexes: KeptIndexes
    cluster: Cluster
    living: LivingExecutions
    memory: Memory
    readiness: Readiness
    clock: Clock
    tracing: Tracing | None
    is_ending: Callable[[], bool]
    stores: StoreUses | None = None

    def reasons_to_replace(self) -> Sequence[str]:
        return ()  # the gateway ends when one of its tasks does

    async def reasons_not_ready(self) -> Sequence[str]:
        return ("it is stopping",) if self.is_ending() else await self.readiness.missing()

    async def readings(self) -> Sequence[Reading]:
        return [*self._own(()), *await self._system()]

    async def shown_to(self, caller: Caller) -> Sequence[Reading]:
        """The readings for a caller, including those of other processes, whose status addresses it need not reach.
        Readings of the whole system are for callers that may see all of it.
        """
        if caller.paths:
            return self._own(await self.memory.uses())
        others, system = await asyncio.gather(self.memory.uses(), self._system())
        return [*self._own(others), *system]

    def _own(self, others: Sequence[MemoryUse]) -> Sequence[Reading]:
        held, indexes = self.pressure.held, self.indexes
        use = MemoryUse(
            "gateway",
            "",
            {"requests": held.now, "indexes": indexes.held_bytes},
            {"requests": held.limit, "indexes": indexes.max_bytes},
        )
        traced = self.tracing.readings() if self.tracing is not None else ()
        return [*self.metrics.readings(), *memory_readings([use, *others]), *traced]

    async def _system(self) -> Sequence[Reading]:
        """The readings that are the same at every gateway, as far as they are known now. Does not raise."""
        pools, living = await asyncio.gather(self._pools(), self.living.count())
        partitions = self.pressure.partitions
        found = [LAG.read_each({str(one.partition): one.behind for one in partitions})]
        if partitions:
            found.append(UNOWNED.read(sum(not one.live for one in partitions)))
        of_pools = {"queued": WAITING, "running": UNDER_WAY, "workers": WORKERS, "slots": SLOTS, "busy": BUSY}
        found += [one.read_each({pool.pool: getattr(pool, name) for pool in pools}) for name, one in of_pools.items()]
        found.append(UNREADABLE.read_each({pool.pool: int(pool.unreadable is not None) for pool in pools}))
        found.append(OLDEST.read_each(dict(self._ages_s(pools))))
        by_priority: dict[tuple[str, ...], int] = {
            (pool.pool, at): count for pool in pools for at, count in pool.by_priority.items()
        }
        found.append(BY_PRIORITY.read_each(by_priority))
        if living is not None:
            found.append(EXECUTIONS.read_each({str(status): living.by_status.get(status, 0) for status in LIVE}))
            found.append(STUCK.read(living.stuck))
            found.append(LETTERS.read_each({source: living.dead_letters.get(source, 0) for source in SOURCES}))
        return [*found, *self._stores()]

    def _stores(self) -> Sequence[Reading]:
        uses = self.stores.uses() if self.stores is not None else ()
        return [
            STORED.read_each({one.name: one.bytes for one in uses}),
            STORE_LIMIT.read_each({one.name: one.max_bytes for one in uses if one.max_bytes is not None}),
            FULL_IN.read_each({one.name: one.full_in_s for one in uses if one.full_in_s is not None}),
        ]

    def _ages_s(self, pools: Sequence[PoolDocument]) -> Iterator[tuple[str, float]]:
        """Yields the age of the oldest command of each pool; nothing for a pool whose commands no server sees."""
        for pool in pools:
            if pool.oldest is not None:
                since_s = datetime.fromisoformat(pool.oldest).timestamp()
                yield pool.pool, max(0.0, self.clock.now_ms() / 1000 - since_s)
            elif not pool.queued:
                yield pool.pool, 0.0

    async def _pools(self) -> Sequence[PoolDocument]:
        try:
            return await asyncio.wait_for(self.cluster.pools(), POOLS_S)
        except (NoetlError, TimeoutError) as error:
            log.debug("cannot see what waits in the pools: %s", error)
            return ()
