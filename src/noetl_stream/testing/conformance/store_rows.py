"""Rows and ticks for the conformance suites of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from noetl_stream.errors import NoetlError
from noetl_stream.ports.store import (
    EventRow,
    ExecutionRow,
    PartitionAdvance,
    PartitionLease,
    PlaybookRow,
    RequestRow,
    Store,
    Tick,
)

EndLeases = Callable[[], Awaitable[None]]
LEASE_S = 10.0


def event_row(execution_id: str, position: int, name: str = "token.enqueued", **changes: object) -> EventRow:
    """A journal entry for a server's decision."""
    row = EventRow(execution_id, position, name, "server", 1_000 + position, None, None, None, None, b'{"n":1}')
    return row._replace(**changes)  # type: ignore[arg-type]


def execution_row(execution_id: str, **changes: object) -> ExecutionRow:
    """A running execution in partition 0."""
    row = ExecutionRow(
        execution_id, 0, "running", "demo/pages", "1", "digest", 3, 1_000, 1_003, None, None, None, b"{}", 0
    )
    return row._replace(**changes)  # type: ignore[arg-type]


def tick_of(
    owner: str,
    leases: Sequence[PartitionLease],
    *,
    events: Sequence[EventRow] = (),
    executions: Sequence[ExecutionRow] = (),
    requests: Sequence[RequestRow] = (),
    playbooks: Sequence[PlaybookRow] = (),
) -> Tick:
    """The first tick after ``leases`` were taken, one message further."""
    advances = [
        PartitionAdvance(lease.id, lease.epoch, lease.tick, lease.last_seq + 1, lease.last_ms + 1, lease.tick)
        for lease in leases
    ]
    return Tick(owner, advances, events, executions, requests, playbooks)


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
    return tick._replace(partitions=[advance._replace(tick=advance.tick + 1) for advance in tick.partitions])
