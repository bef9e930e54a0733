"""What each tick added to the journals, in the order of ticks: the source of the whole feed (PROTOCOL §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from noetl_stream.ports.store import StoredEvent


class FedEvent(NamedTuple):
    """An event of a tick. ``number`` counts the events of that tick in its partition, from 0, deleted ones too.

    ``digest`` and ``path`` are the playbook's. ``event`` is ``None`` in the single row of a tick whose
    executions were all deleted.
    """

    partition: int
    tick: int
    number: int
    execution_id: str
    trace_id: str
    digest: str
    path: str
    event: StoredEvent | None


class FeedStore(Protocol):
    """Ticks of one partition are serial: a reader that has seen one has seen all before it.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def now(self) -> dict[int, int]:
        """The last committed tick of each partition."""
        ...

    async def floor(self) -> dict[int, int]:
        """The last trimmed tick of each partition; partitions without trimmed ticks are missing."""
        ...

    async def read(self, after: Mapping[int, int], limit: int) -> Sequence[FedEvent]:
        """The events of whole ticks above those named, at most ``limit`` ticks of each partition, in order."""
        ...

    async def trim(self, keep_ms: int, limit: int) -> int:
        """Trims at most ``limit`` ticks older than ``keep_ms`` milliseconds; returns how many. The journals stay."""
        ...
