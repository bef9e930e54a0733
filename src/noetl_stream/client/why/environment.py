"""What ``why`` must know beside the journal: the time, the workers, the queues, other executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noetl_stream.ports.operations.cluster import PartitionDocument, PoolDocument, WorkerDocument


class Environment(NamedTuple):
    """Attributes:
    now_ms: By the store's clock.
    workers: Those alive (:meth:`~noetl_stream.ports.operations.cluster.Cluster.workers`).
    pools: By name, as ``Cluster.pools`` shows them.
    partition: That of the execution, as ``Cluster.partitions`` shows it.
    children: Status of the executions it waits for; those not begun are missing.
    """

    now_ms: int
    workers: Sequence[WorkerDocument] = ()
    pools: Mapping[str, PoolDocument] = {}
    partition: PartitionDocument | None = None
    children: Mapping[str, str] = {}

    def workers_of(self, pool: str) -> list[WorkerDocument]:
        """Those alive in a pool."""
        return [worker for worker in self.workers if worker.pool == pool]
