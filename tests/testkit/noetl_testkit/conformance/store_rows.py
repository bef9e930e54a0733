"""Rows and ticks for the conformance suites of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.model import events
from noetl_stream.model.events import Fact
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.ports.stores.store import (
    EntryRow,
    ExecutionRow,
    PartitionAdvance,
    PartitionLease,
    Store,
    StoredEvent,
    Tick,
)

EndLeases = Callable[[], Awaitable[None]]
LEASE_S = 10.0


FACTS: Final[dict[str, Fact]] = {
    fact.event_name(): fact
    for fact in (
        events.TokenEnqueued(events.Token("token", "fetch", "start")),
        events.TokenClaimed("token", "run"),
        events.TokenDiscarded("token", "too late"),
        events.StepStarted("worker"),
        events.TaskProcessed(
            "fetch", 1, Outcome("ok", Payload(msgspec.Raw(b'{"gr\xc3\xb6\xc3\x9fe":[1,null]}'))), "continue"
        ),
        events.LoopIterationDone((0,)),
        events.LoopIterationFailed((0,), ErrorInfo("exception", "no")),
        events.LoopDone("run", 1, 1, 0, 0),
        events.ExecutionFinished("completed", Outcome("ok")),
        events.PlaybookProcessed("completed"),
    )
}
"""A fact of each of these kinds."""


def entry_row(execution_id: str, position: int, name: str = "token.enqueued", **changes: object) -> EntryRow:
    """An entry with one fact of this name, by the server."""
    data = codec.encode([FACTS[name]])
    row = EntryRow(execution_id=execution_id, position=position, source="server", at_ms=1_000 + position, data=data)
    return replace(row, **changes)


def mixed_entry(execution_id: str, position: int) -> EntryRow:
    """A fact by a worker at odd positions, and at even ones a fact by the server."""
    if position % 2 == 0:
        return entry_row(execution_id, position)
    return EntryRow(
        execution_id=execution_id,
        position=position,
        source="worker",
        at_ms=1_700_000_000_000 + position,
        step_run_id="run",
        report_id=f"command.1.1.nonce.{position}",
        number=position,
        source_seq=2**40 + position,
        data=codec.encode([FACTS["task.processed"]]),
    )


def as_stored(row: EntryRow) -> StoredEvent:
    """The event of an entry with one fact."""
    ((fact, data),) = codec.decode_facts(row.data)
    step_run_id = row.step_run_id or getattr(fact, "step_run_id", None)
    return StoredEvent(
        position=row.position,
        name=fact.event_name(),
        source=row.source,
        at_ms=row.at_ms,
        step_run_id=step_run_id,
        report_id=row.report_id,
        number=row.number,
        data=bytes(data),
    )


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
    """A partition; numbers not given are 0."""
    return PartitionLease(**{**dict.fromkeys(PartitionLease.__struct_fields__, 0), "suspect": None, "id": id, **others})


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
