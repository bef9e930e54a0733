"""The whole feed: the events that each tick added to the journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from noetl_stream.ports.stores.store import StoredEvent


class FedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a tick. ``number`` is its index among the events of the tick in a partition, from 0.

    Deleted events are numbered, too. ``digest`` and ``path`` identify the playbook. If all executions of a tick were
    deleted, the tick has a single row, with ``event`` set to ``None``.
    """

    partition: int
    tick: int
    number: int = 0
    execution_id: str = ""
    trace_id: str = ""
    digest: str = ""
    path: str = ""
    event: StoredEvent | None = None


class FeedFloor(msgspec.Struct, frozen=True, gc=False):
    """The beginning of the whole feed.

    Attributes:
        generation: The number of repairs and restores of the stores. Positions of another generation are invalid.
        ticks: The last trimmed tick of each partition. Partitions without trimmed ticks have no entry.
    """

    generation: int
    ticks: dict[int, int]


class FeedStore(Protocol):
    """The events that each tick added to the journals: the source of the whole feed (PROTOCOL §4).

    The ticks of a partition are in order: a reader that has read one has read all earlier ones.

    All methods raise :class:`~noetl_stream.errors.Unreachable` if the database cannot be reached.
    """

    async def now(self) -> dict[int, int]:
        """The last committed tick of each partition."""

    async def floor(self) -> FeedFloor:
        """The beginning of the feed."""

    async def read(self, after: Mapping[int, int], limit: int) -> Sequence[FedEvent]:
        """The events of the ticks after ``after``, in order: whole ticks, at most ``limit`` for each partition."""

    async def told(self, reader: str) -> dict[int, int]:
        """The position that a reader has stored: the last tick of each partition. Empty for a new reader."""

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        """Stores the position of a reader. A tick below the stored one is ignored."""

    async def trim(self, keep_ms: int, limit: int) -> int:
        """Trims at most ``limit`` ticks older than ``keep_ms`` milliseconds; returns the number. Journals are kept."""
