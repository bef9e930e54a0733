"""Fills an empty Postgres from EVENTS (PROTOCOL §1 *Journal*)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import Conflict
from noetl_stream.model.ids import partition_count
from noetl_stream.ports.stores.cursors import Repair
from noetl_stream.ports.stores.store import PartitionLease
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal_records import StreamExtent, accept_head, last_record
from noetl_stream.server.ownership.recorded import RecordedStarter, left_of
from noetl_stream.server.server import Server

ATTEMPTS: Final = 100
"""The number of attempts to take all partitions: each raises the epochs, and COMMANDS may have later fences."""


class Rebuilt(NamedTuple):
    """The number of restored executions and entries, and the schedules and triggers to register again."""

    executions: int
    entries: int
    starters: tuple[RecordedStarter, ...]


async def rebuild(server: Server) -> Rebuilt:
    """Takes all partitions over, restores them from EVENTS, and releases them. The server does not run.

    Servers fold the rest when they run: inputs that were not folded, and all beyond a gap in a journal.

    Raises:
        Conflict: Postgres holds executions, or a server owns partitions.
        NotReady: a store is not set up, or a newer server has written records.
        Unreachable: a store is away.
    """
    store, ownership = server.ports.store, server.ownership
    await store.verify()
    await server.ports.log.verify()
    if newest := await store.newest_execution():
        hint = "rebuild a database that was just migrated; one that is behind EVENTS catches up when servers start"
        raise Conflict(f"Postgres is not empty: it holds execution {newest}", hint=hint)
    await server.leases.open()
    keeping = asyncio.create_task(server.leases.run())
    try:
        taken = await _take_all(server)
        restored = await server.recovery.restore(taken)
        await accept_head(await StreamExtent.of(server.ports.log), store.cursors)
    finally:
        await end_tasks([keeping])
        await ownership.release(list(ownership.ids), {})
        await server.waits.close()
        await server.ports.evaluator.close()
    starters = {path: found for one in restored for path, found in one.starters.items()}
    origins = {path: kind for one in restored for path, kind in one.origins.items()}
    return Rebuilt(
        sum(one.executions for one in restored), sum(one.entries for one in restored), left_of(starters, origins)
    )


async def _take_all(server: Server) -> Sequence[PartitionLease]:
    store, ownership, log = server.ports.store, server.ownership, server.ports.log
    if await store.owner_count():
        raise Conflict("servers own partitions", hint="stop the servers and repeat")
    epochs = await asyncio.gather(*(_last_epoch(log, partition) for partition in range(partition_count())))
    known = [
        Repair(partition, 0, 0, 0, published_tick=0, epoch=epoch) for partition, epoch in enumerate(epochs) if epoch
    ]
    await store.cursors.repair(known)
    for _ in range(ATTEMPTS):
        missing = partition_count() - len(ownership)
        await ownership.take(missing, server.leases.lease_s, server.ports.clock.monotonic_s())
        if len(ownership) == partition_count():
            return list(ownership)
    raise Conflict(f"cannot take {missing} partitions", hint="stop the servers and repeat")


async def _last_epoch(log: EventLog, partition: int) -> int:
    record = await last_record(log, partition)
    epochs = [fence.epoch for fence in await log.fences(partition)]
    return max(epochs if record is None else [*epochs, record.epoch], default=0)
