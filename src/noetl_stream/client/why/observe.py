"""What runs around an execution that has not ended, as :func:`~noetl_stream.client.why.explain` wants to know it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noetl_stream.client.why import Environment
from noetl_stream.model import codec
from noetl_stream.model.events import ChildRequested
from noetl_stream.ports.operations.cluster import Cluster
from noetl_stream.ports.store import ExecutionRow, Store, StoredEvent


async def observe(
    cluster: Cluster, store: Store, row: ExecutionRow, journal: Sequence[StoredEvent], now_ms: int
) -> Environment:
    """The workers and queues as they are now, and the executions it has called."""
    called = [codec.decode_fact(event.data) for event in journal if event.name == "child.requested"]
    ids = {fact.execution_id for fact in called if isinstance(fact, ChildRequested)}
    workers, pools, partitions, children = await asyncio.gather(
        cluster.workers(), cluster.pools(), cluster.partitions(), store.executions(ids)
    )
    return Environment(
        now_ms,
        workers,
        {pool.pool: pool for pool in pools},
        next((one for one in partitions if one.partition == row.partition), None),
        {execution_id: child.status for execution_id, child in children.items()},
    )
