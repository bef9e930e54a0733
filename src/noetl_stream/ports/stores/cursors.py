"""How far each partition of EVENTS is folded, and repairs of that (PROTOCOL §5 *A lost tail*)."""

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

    ``tick`` and ``epoch`` are the highest known to EVENTS: the partition's become no lower. Ticks above
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
        """Servers have trimmed EVENTS up to this sequence, or are about to; 0 if they never did."""

    async def move_floor(self, before: int, after: int) -> bool:
        """Moves the floor, if it is at ``before``."""

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        """Repairs partitions, counts their ``generation`` and ``epoch``, and ends their leases.

        Args:
            owner: Who repairs, if it is an owner.

        Returns:
            The partitions that were repaired. One that another server owns, or whose cursor is elsewhere, stays as it
            is.
        """
