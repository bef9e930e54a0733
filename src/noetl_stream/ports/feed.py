"""What every tick has added to the journals, in the order of ticks: the source of the whole feed (PROTOCOL §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from noetl_stream.ports.store import StoredEvent


class FedEvent(NamedTuple):
    """An event of a tick. ``number`` counts the events of that tick in its partition, from 0, deleted ones too.

    ``digest`` and ``path`` are those of the execution's playbook. ``event`` is ``None`` in the one row that stands for
    a tick of which nothing is left: its executions were deleted.
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
    """Ticks of one partition are serial: whoever has seen one has seen all before it.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def now(self) -> dict[int, int]:
        """The last committed tick of each partition."""
        ...

    async def floor(self) -> dict[int, int]:
        """The last tick of each partition of which nothing is kept any more; those of which all is kept are missing."""
        ...

    async def read(self, after: Mapping[int, int], limit: int) -> Sequence[FedEvent]:
        """The events of whole ticks above those named, of each partition at most ``limit`` ticks, in its order."""
        ...

    async def trim(self, keep_ms: int, limit: int) -> int:
        """Forgets at most ``limit`` ticks that are older than ``keep_ms`` milliseconds; how many. The journals stay."""
        ...
