"""The cursors of the partitions of EVENTS, and their repair (PROTOCOL §5 *A lost tail*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """The sequence of the last folded message of a partition, 0 for none, and its stored time in ms."""

    partition: int
    last_seq: int
    last_ms: int
    published_tick: int = 0


class Repair(msgspec.Struct, frozen=True, gc=False):
    """A new place in EVENTS for a partition that was folded up to the sequence ``folded``.

    ``tick`` and ``epoch`` are the highest known to EVENTS: the partition's do not fall below them. Ticks above
    ``published_tick`` are published again by the next owner.
    """

    partition: int
    folded: int
    last_seq: int
    last_ms: int
    published_tick: int
    tick: int = 0
    epoch: int = 0


class Cursors(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def all(self) -> list[Cursor]:
        """All cursors, by partition."""

    async def floor(self) -> int:
        """The sequence up to which servers have trimmed EVENTS, or are about to; 0 before the first time."""

    async def move_floor(self, before: int, after: int) -> bool:
        """Moves the floor, if it is at ``before``."""

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        """Repairs partitions, counts their ``generation`` and ``epoch``, and ends their leases.

        Args:
            owner: The owner that makes the repair, if any.

        Returns:
            The repaired partitions. One that another server owns, or whose cursor has moved, stays unchanged.
        """
