"""Rows and ticks for the conformance suites of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.ports.store import (
    EventRow,
    ExecutionRow,
    PartitionAdvance,
    PartitionLease,
    Store,
    Tick,
)

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


def lease_of(id: int, **others: int) -> PartitionLease:
    """A partition; what is not said is 0."""
    return PartitionLease(**dict.fromkeys(PartitionLease._fields, 0) | {"id": id} | others)


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


async def refusal_of(store: Store, tick: Tick) -> NoetlError:
    """The error a commit raises; fails if it raises none."""
    try:
        await store.commit(tick)
    except NoetlError as error:
        return error
    raise AssertionError("the tick was committed")


def following(tick: Tick) -> Tick:
    """The tick after ``tick`` in the same partitions, otherwise identical."""
    return replace(tick, partitions=[replace(advance, tick=advance.tick + 1) for advance in tick.partitions])
