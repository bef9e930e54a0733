"""Checkpoints: whole journals written to EVENTS again from Postgres (PROTOCOL §5)."""

from __future__ import annotations

from typing import Final

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.store import PartitionView, Store
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal_records import Stamp, in_full, messages_of
from noetl_stream.storage.journal import last_position

ENTRIES_AT_ONCE: Final = 100


async def write_checkpoint(
    log: EventLog, store: Store, clock: Clock, execution_id: str, partition: PartitionView
) -> None:
    """Writes the journal of an execution to EVENTS as a checkpoint, and waits until it is stored.

    Args:
        partition: The partition, read before the journal.
    """
    stamp = Stamp(partition.id, partition.tick, partition.epoch, clock.random_bytes(8).hex(), again=True)
    after = 0
    while rows := (await store.journals({execution_id: after}, ENTRIES_AT_ONCE))[execution_id]:
        parts = [part for row in rows for part in in_full(row)]
        await log.publish_checkpoints(messages_of(execution_id, parts, partition.last_seq, stamp))
        after = last_position(execution_id, rows[-1])
