"""EVENTS that no longer holds what was folded: noticing it, and reading on from where it still does (PROTOCOL §5).

A cursor may be set too low, because what was folded before is known again: requests by their rows, reports by their
numbers. It must not be too high, or messages would be passed over. So it is set by the stored times, with a margin.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.errors import Conflict
from noetl_stream.ports.cursors import Cursor, Cursors
from noetl_stream.ports.event_log import EventLog

MARGIN_MS: Final = 60_000
"""By how much the clocks of two leaders of the stream may differ."""


class StreamExtent(NamedTuple):
    """The sequences that EVENTS holds."""

    first: int
    last: int

    @classmethod
    async def of(cls, log: EventLog) -> StreamExtent:
        first = await log.first_sequence()  # in this order: what is stored in between must not look like a loss
        return cls(first, await log.last_sequence())

    async def still_holds(self, log: EventLog, last_seq: int, last_ms: int) -> bool:
        """Whether the message at a cursor is the one that was folded, and none after it is gone."""
        if last_seq > self.last or self.first > last_seq + 1:
            return False
        found = await log.stored_at(last_seq) if last_seq >= self.first else None
        return found is None or not last_ms or found == last_ms


class MovedCursor(NamedTuple):
    before: Cursor
    after: Cursor


async def lost_cursors(log: EventLog, cursors: Cursors, extent: StreamExtent) -> list[Cursor]:
    """The cursors that EVENTS no longer holds. Raises as :func:`reconcile_cursors`, but for Conflict."""
    return [
        cursor
        for cursor in await cursors.all()
        if cursor.last_seq and not await extent.still_holds(log, cursor.last_seq, cursor.last_ms)
    ]


async def reconcile_cursors(log: EventLog, cursors: Cursors) -> list[MovedCursor]:
    """Sets each cursor that EVENTS no longer holds back to the last message that the partition is sure to have folded.

    Returns:
        The cursors that were moved.

    Raises:
        Conflict: a server owns one of their partitions.
        NotReady: the stream does not exist.
        Unreachable: a store is away.
    """
    extent = await StreamExtent.of(log)
    await _accept(extent, cursors)
    lost = await lost_cursors(log, cursors, extent)
    kept: dict[tuple[int, int], tuple[int, int]] = {}
    for cursor in lost:
        if cursor[1:] not in kept:
            high, before_ms = min(extent.last, cursor.last_seq), cursor.last_ms - MARGIN_MS
            kept[cursor[1:]] = await newest_before(log, extent.first, high, before_ms)
    moves = [MovedCursor(cursor, Cursor(cursor.partition, *kept[cursor[1:]])) for cursor in lost]
    moved = await cursors.move([move.before for move in moves], [move.after for move in moves])
    if len(moved) < len(moves):
        owned = ", ".join(str(cursor.partition) for cursor in lost if cursor.partition not in moved)
        raise Conflict(f"servers own partitions that have lost messages: {owned}", hint="stop the servers and repeat")
    return moves


async def _accept(extent: StreamExtent, cursors: Cursors) -> None:
    """Takes what is missing at the stream's head for trimmed: there is nothing to be done about it."""
    floor = await cursors.floor()
    if extent.first > floor + 1 or extent.last < floor:
        await cursors.move_floor(floor, max(0, extent.first - 1))


async def newest_before(log: EventLog, first: int, last: int, before_ms: int) -> tuple[int, int]:
    """Sequence and stored time of the newest of these messages that was stored before then; of none, the place before
    the first, and 0. Stored times grow with sequences, up to :data:`MARGIN_MS`.
    """
    low, low_ms = max(0, first - 1), 0
    high = last
    while low < high:
        middle = (low + high + 1) // 2
        at_ms = await log.stored_at(middle)
        if at_ms is not None and at_ms < before_ms:
            low, low_ms = middle, at_ms
        else:
            high = middle - 1
    return low, low_ms
