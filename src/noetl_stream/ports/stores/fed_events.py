"""The whole feed: what each tick added to the journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from noetl_stream.ports.stores.store import StoredEvent


class FedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a tick. ``number`` counts the events of that tick in its partition, from 0, deleted ones too.

    ``digest`` and ``path`` are the playbook's. ``event`` is ``None`` in the single row of a tick whose
    executions were all deleted.
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
    """Where the whole feed begins.

    Attributes:
        generation: Counts repairs and restores of the stores: nothing from another one can be relied on.
        ticks: The last trimmed tick of each partition; partitions without trimmed ticks are missing.
    """

    generation: int
    ticks: dict[int, int]


class FeedStore(Protocol):
    """What each tick added to the journals: the source of the whole feed (PROTOCOL §4).

    Ticks of one partition are serial: a reader that has seen one has seen all before it.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def now(self) -> dict[int, int]:
        """The last committed tick of each partition."""

    async def floor(self) -> FeedFloor:
        """Where the feed begins."""

    async def read(self, after: Mapping[int, int], limit: int) -> Sequence[FedEvent]:
        """The events of whole ticks above those named, at most ``limit`` ticks of each partition, in order."""

    async def told(self, reader: str) -> dict[int, int]:
        """The last tick of each partition that a reader has stored, by its name; empty at first."""

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        """Stores these ticks for a reader. One that is below what is stored changes nothing."""

    async def trim(self, keep_ms: int, limit: int) -> int:
        """Trims at most ``limit`` ticks older than ``keep_ms`` milliseconds; returns how many. The journals stay."""
