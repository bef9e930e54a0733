"""Shares of LOGS: pools, and namespaces within a pool, with the most lines lose their oldest ones first.

NATS bounds a stream by its bytes and drops the oldest messages of any publisher: a namespace that writes very much
would erase the lines of all. Before the stream is full, its messages are counted by pool and namespace, and those above
an equal share for each are trimmed. Pools are divided first, since their workers name the namespaces themselves.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from noetl_stream.ports.streams.task_logs import LogsExtent, TaskLogs
from noetl_stream.protocol.subjects import LogOwner

log = logging.getLogger(__name__)

TRIM_ABOVE: Final = 0.75
TRIM_TO: Final = 0.5
"""Parts of the bound of LOGS: above the first it is trimmed to the second, if it holds lines of several owners."""

BLOCKS: Final = 1_024
"""The number of parts of the bound that are distinguished by age."""

MAX_OWNERS: Final = 1_000
"""The most owners that are distinguished; the lines of further ones count as their pools'."""

DRIFT: Final = 1.1
"""The factor by which the count may exceed the stream before all is counted again: messages are also deleted elsewhere.
"""


class _Block(msgspec.Struct):
    """Consecutive messages of one owner: the sequence of the last one, and the bytes of all."""

    last: int
    bytes: int


class LogTrimmer:
    """Trims the largest owners of LOGS while it is nearly full, and counts messages only then."""

    def __init__(self, logs: TaskLogs) -> None:
        self._logs = logs
        self._held: dict[LogOwner, deque[_Block]] = {}
        self._next = 0

    async def trim(self) -> None:
        """Trims LOGS if nearly full. Errors: see :meth:`~noetl_stream.ports.streams.task_logs.TaskLogs.extent`."""
        extent = await self._logs.extent()
        if extent.max_bytes is None or extent.bytes <= TRIM_ABOVE * extent.max_bytes:
            return
        await self._count(extent, extent.max_bytes // BLOCKS)
        held = self._sizes()
        if len(held) < 2:
            return  # NATS drops its oldest lines, and nobody else's
        found = excesses(held, TRIM_TO * extent.max_bytes)
        for owner, excess in found.items():
            through = self._last_of(owner, excess)
            await self._logs.trim(owner, through)
            self._forget(through, [one for one in self._held if owner in (one, LogOwner(one.pool, ""))])
        log.info("LOGS is nearly full: deleted the oldest lines of %d of %d namespaces", len(found), len(held))

    async def _count(self, extent: LogsExtent, block_bytes: int) -> None:
        """Counts the messages stored since the last time."""
        self._forget(extent.first - 1, list(self._held))
        if self._next > extent.last + 1 or sum(self._sizes().values()) > DRIFT * extent.bytes:
            self._held, self._next = {}, 0
        while sizes := await self._logs.sizes(self._next):
            for one in sizes:
                is_known = one.owner in self._held or len(self._held) < MAX_OWNERS
                blocks = self._held.setdefault(one.owner if is_known else LogOwner(one.owner.pool, ""), deque())
                if not blocks or blocks[-1].bytes >= block_bytes:
                    blocks.append(_Block(one.sequence, 0))
                blocks[-1].last = one.sequence
                blocks[-1].bytes += one.bytes
            self._next = sizes[-1].sequence + 1

    def _sizes(self) -> dict[LogOwner, int]:
        return {owner: sum(block.bytes for block in blocks) for owner, blocks in self._held.items()}

    def _last_of(self, owner: LogOwner, excess: float) -> int:
        """Returns the sequence through which an owner has these bytes, in whole blocks without its newest; else 0."""
        through = 0
        for block in list(self._held.get(owner, ()))[:-1]:
            if excess > 0:
                through, excess = block.last, excess - block.bytes
        return through

    def _forget(self, through: int, owners: Collection[LogOwner]) -> None:
        """Forgets the blocks of these owners up to a sequence."""
        for owner in owners:
            blocks = self._held[owner]
            while blocks and blocks[0].last <= through:
                blocks.popleft()
            if not blocks:
                del self._held[owner]


def excesses(held: Mapping[LogOwner, int], room: float) -> dict[LogOwner, float]:
    """Returns the bytes that each owner must lose so that all fit into ``room`` bytes."""
    pools = Counter[str]()
    for owner, size in held.items():
        pools[owner.pool] += size
    of_pool, found = _level(pools.values(), room), dict[LogOwner, float]()
    for pool, total in pools.items():
        if total > of_pool:
            ours = {owner: size for owner, size in held.items() if owner.pool == pool}
            most = _level(ours.values(), of_pool)
            found |= {owner: size - most for owner, size in ours.items() if size > most}
    return found


def _level(sizes: Iterable[int], room: float) -> float:
    """Returns the size to which the largest must shrink so that all fit into ``room``; infinity if they already do."""
    ascending = deque(sorted(sizes))
    while ascending and ascending[0] <= room / len(ascending):
        room -= ascending.popleft()
    return room / len(ascending) if ascending else math.inf
