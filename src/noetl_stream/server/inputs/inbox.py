"""Messages between executions, stored in Postgres: fetched on a nudge, or by polling (PROTOCOL §1).

Limits grant nothing until they know all holders of their slots (ADR 30): after a restore of Postgres, every partition
first catches up with EVENTS, and the limit folds the messages about its slots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.aggregates import SlotHeld, is_limit
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.store import InboxItem, InboxRow, Store
from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol import subjects
from noetl_stream.server.journal_records import behind_events

MOST_AT_ONCE = 500
"""The most inbox messages that one tick folds."""

FEW_AT_ONCE: Final = 128
"""The most while namespaces compete, so that ticks stay short."""

CROWD: Final = 4 * MOST_AT_ONCE
CROWD_BYTES: Final = 8 * 1024 * 1024
"""The messages read ahead while namespaces compete, and their bound in bytes."""


class Inbox:
    """The inbox of a server. ``nudge`` is called when a message has arrived for partitions that ``owns`` accepts."""

    def __init__(self, store: Store, bus: Bus, owns: Callable[[int], bool], nudge: Callable[[], None]) -> None:
        self._store = store
        self._bus = bus
        self._owns = owns
        self._nudge = nudge
        self._subscription: Subscription | None = None
        self._expected = True
        self._limit = MOST_AT_ONCE

    async def open(self) -> None:
        """Subscribes to notices of new inbox messages."""
        self._subscription = await self._bus.listen(subjects.INBOX, self._on_nudge)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def expect_messages(self) -> None:
        """Makes the next :meth:`take` query Postgres for messages, nudged or not."""
        self._expected = True

    async def take(self, partitions: Collection[int]) -> list[InboxItem]:
        """Returns the messages waiting for these partitions, oldest first; queries Postgres only if it expects any."""
        if not (self._expected and partitions):
            return []
        self._expected = False  # before the query: a nudge during it counts for the next one
        items = await self._store.inbox(partitions, self._limit)
        self._expected = self._expected or len(items) >= MOST_AT_ONCE
        self._limit = MOST_AT_ONCE
        if len(items) >= MOST_AT_ONCE:
            size = sum(len(item.body) for item in items)
            self._limit = min(CROWD, max(MOST_AT_ONCE, CROWD_BYTES * len(items) // max(1, size)))
        return items

    def notify(self, rows: Iterable[InboxRow]) -> None:
        """Notifies all servers, this one included, of committed inbox messages."""
        partitions = sorted({row.partition for row in rows})
        if any(map(self._owns, partitions)):
            self._expected = True
        self._bus.send(subjects.INBOX, codec.encode(partitions))

    async def _on_nudge(self, _subject: str, body: bytes, _reply: str) -> None:
        try:
            partitions = codec.decode_partitions(body)
        except PayloadRefused:
            return
        if any(map(self._owns, partitions)):
            self._expected = True
            self._nudge()


log = logging.getLogger(__name__)

LOOKS_EVERY_S: Final = 0.5

AT_MOST_S: Final = 600.0
"""The time in seconds for which a partition that no server can read holds back limits."""

HELD: Final = str(SlotHeld.__struct_config__.tag)


class CatchingUp:
    """The partitions whose limits are held back.

    A partition is checked when the first of its limits is folded after a takeover or reload. Without limits, this costs
    nothing.
    """

    def __init__(self, store: Store, log: EventLog, clock: Clock) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._caught_up: set[int] = set()
        self._told_by: dict[int, int] = {}
        """The last inbox message that the limits of each partition must fold before they grant slots."""
        self._behind_since_s: float | None = None
        self._looks_again_s = float("-inf")

    def holds_back(self, aggregate_id: str) -> bool:
        """Returns whether the aggregate is a limit that may not grant slots yet."""
        return is_limit(aggregate_id) and partition_of(aggregate_id) not in self._caught_up

    async def look(self, ids: Iterable[str]) -> bool:
        """Compares Postgres with EVENTS if one of these aggregates is a limit of an unchecked partition.

        Returns:
            Whether every partition has caught up. The inbox then has all messages about slots and must be read again.

        Raises:
            Unreachable: a store is away.
        """
        unknown = {partition_of(id) for id in ids if self.holds_back(id)} - self._told_by.keys()
        now_s = self._clock.monotonic_s()
        if not unknown or now_s < self._looks_again_s:
            return False
        behind = [view.id for view, _ in await behind_events(self._log, self._store)]
        if not behind:
            self._behind_since_s = None
        elif self._is_awaited(behind, now_s):
            self._looks_again_s = now_s + LOOKS_EVERY_S
            return False
        self._told_by |= dict.fromkeys(unknown, await self._store.inbox_end())
        return True

    def note_read(self, items: Sequence[InboxItem]) -> None:
        """Notes the inbox messages that are folded next."""
        if not self._told_by:
            return
        is_all = len(items) < MOST_AT_ONCE
        to_limits = [one for one in items if is_limit(one.execution_id)]
        telling = {one.partition for one in to_limits if codec.name_of_fact(one.body) == HELD}
        told = {id for id, seq in self._told_by.items() if is_all or items[0].seq > seq} - telling
        self._caught_up |= told
        self._told_by = {id: seq for id, seq in self._told_by.items() if id not in told}

    def forget(self, partitions: Collection[int]) -> None:
        """Forgets partitions that are lost or reloaded."""
        self._caught_up -= set(partitions)
        self._told_by = {id: seq for id, seq in self._told_by.items() if id not in partitions}

    def _is_awaited(self, behind: Collection[int], now_s: float) -> bool:
        if self._behind_since_s is None:
            self._behind_since_s = now_s
            log.warning("limits give out nothing until these partitions have caught up: %s", sorted(behind))
        is_awaited = now_s - self._behind_since_s < AT_MOST_S
        if not is_awaited:
            log.error("limits no longer wait for these partitions to catch up: %s", sorted(behind))
        return is_awaited
