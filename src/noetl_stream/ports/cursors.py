"""How far each partition of EVENTS is folded, for repairs while no server owns it (PROTOCOL §5 *A lost tail*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Cursor(NamedTuple):
    """The sequence of the last folded message of a partition, 0 for none, and its stored time in ms."""

    partition: int
    last_seq: int
    last_ms: int


class Cursors(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def all(self) -> list[Cursor]:
        """Those of all partitions, by partition."""
        ...

    async def floor(self) -> int:
        """Servers have trimmed EVENTS up to this sequence, or are about to; 0 if they never did."""
        ...

    async def move_floor(self, before: int, after: int) -> bool:
        """Moves the floor, unless it is elsewhere."""
        ...

    async def move(self, before: Sequence[Cursor], after: Sequence[Cursor]) -> set[int]:
        """Moves cursors, each from one place to another, and counts ``generation`` and ``epoch`` of their partitions.

        Returns:
            The partitions that were moved. One that a server owns, or whose cursor is elsewhere, stays as it is.
        """
        ...
