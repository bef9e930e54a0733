"""Rows and ticks for the conformance suites of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from noetl_stream.ports.store import EventRow, ExecutionRow, PartitionAdvance, PartitionLease, Store, StoredEvent, Tick

EndLeases = Callable[[], Awaitable[None]]
LEASE_S = 10.0


def event_row(execution_id: str, position: int, name: str = "token.enqueued", **changes: object) -> EventRow:
    """A journal entry for a server's decision."""
    row = EventRow(
        execution_id=execution_id,
        position=position,
        name=name,
        source="server",
        at_ms=1_000 + position,
        data=b'{"n":1}',
    )
    return replace(row, **changes)


def mixed_event(execution_id: str, position: int) -> EventRow:
    """A fact by a worker at odd positions, a decision that follows from it at even ones."""
    if position % 2 == 0:
        return event_row(execution_id, position, cause=position - 1)
    return EventRow(
        execution_id=execution_id,
        position=position,
        name="task.processed",
        source="worker",
        at_ms=1_700_000_000_000 + position,
        step_run_id="run",
        report_id=f"command.1.1.nonce.{position}",
        number=position,
        source_seq=2**40 + position,
        data=f'{{ "name":"task.processed", "größe": [{position}, null, "\\u00e9"] }}'.encode(),
    )


def as_stored(row: EventRow) -> StoredEvent:
    return StoredEvent(**{name: getattr(row, name) for name in StoredEvent._fields})


def execution_row(execution_id: str, **changes: object) -> ExecutionRow:
    """A running execution in partition 0."""
    row = ExecutionRow(
        execution_id=execution_id,
        partition=0,
        status="running",
        path="demo/pages",
        version="1",
        digest="digest",
        position=3,
        started_ms=1_000,
        updated_ms=1_003,
        finished_ms=None,
        result=None,
        error=None,
        ctx=b"{}",
        discarded=0,
    )
    return replace(row, **changes)


def lease_of(id: int, **others: Any) -> PartitionLease:
    """A partition; numbers that are not said are 0."""
    return PartitionLease(**{**dict.fromkeys(PartitionLease._fields, 0), "suspect": None, "id": id, **others})


def tick_of(owner: str, leases: Sequence[PartitionLease], **rows: Any) -> Tick:
    """The first tick after ``leases`` were taken, one message on. ``rows``: fields of :class:`Tick`."""
    advances = [
        PartitionAdvance(
            id=lease.id,
            epoch=lease.epoch,
            tick=lease.tick,
            last_seq=lease.last_seq + 1,
            last_ms=lease.last_ms + 1,
            published_tick=lease.tick,
        )
        for lease in leases
    ]
    return Tick(owner=owner, partitions=advances, **rows)


async def taken(store: Store, owner: str = "one", limit: int = 1) -> list[PartitionLease]:
    """``limit`` partitions, leased by ``owner``."""
    return await store.take_over(owner, LEASE_S, limit)


async def committed(store: Store, **rows: Any) -> Tick:
    """Commits the first tick of partition 0 with these rows, fields of :class:`Tick`; returns it."""
    tick = tick_of("one", await taken(store), **rows)
    await store.commit(tick)
    return tick


def following(tick: Tick, **rows: Any) -> Tick:
    """The tick after ``tick`` in the same partitions, with these rows."""
    advances = [replace(advance, tick=advance.tick + 1) for advance in tick.partitions]
    return Tick(owner=tick.owner, partitions=advances, **rows)
