"""What ``why`` must know beside the journal: the time, the workers, the queues, other executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noetl_stream.ports.operations.documents import Document


class Environment(NamedTuple):
    """Attributes:
    now_ms: By the store's clock.
    workers: Those alive (:meth:`~noetl_stream.ports.operations.cluster.Cluster.workers`).
    pools: By name, as ``Cluster.pools`` shows them.
    partition: That of the execution, as ``Cluster.partitions`` shows it.
    children: Status of the executions it waits for; those not begun are missing.
    """

    now_ms: int
    workers: Sequence[Document] = ()
    pools: Mapping[str, Document] = {}
    partition: Document | None = None
    children: Mapping[str, str] = {}

    def workers_of(self, pool: str) -> list[Document]:
        """Those alive in a pool."""
        return [worker for worker in self.workers if worker["pool"] == pool]
