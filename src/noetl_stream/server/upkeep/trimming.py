"""Trims EVENTS: only servers do this, below every cursor, and never facts of living executions (PROTOCOL §5).

The whole journal of a living execution whose messages would be trimmed is first written to EVENTS again, as checkpoint
records. Their cost is bounded: a trim must free twice as much.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.cursors import Cursors
from noetl_stream.ports.stores.retention import LivingExecution, RetentionStore
from noetl_stream.ports.stores.store import PartitionView, Store
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal.lost_stream import MARGIN_MS, StreamExtent, behind_events, lost_cursors, newest_before
from noetl_stream.server.journal.records import Stamp, in_full, messages_of
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_stream.storage.journal import last_position

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE: Final = 100
KEPT_MS: Final = 2 * MARGIN_MS
"""How long messages stay after they were stored or folded: a lost tail is repaired from them, and so is a Postgres that
is restored to an older state.
"""


class Trimmer:
    """Trims EVENTS: above a bound to half of it. Several servers may do so at once: one of them moves the floor.

    Args:
        kept_ms: How long messages stay after they were stored or folded.
    """

    def __init__(
        self,
        event_log: EventLog,
        store: Store,
        cursors: Cursors,
        retained: RetentionStore,
        clock: Clock,
        settings: RetentionSettings,
        *,
        kept_ms: int = KEPT_MS,
    ) -> None:
        self._kept_ms = kept_ms
        self._log = event_log
        self._cursors = cursors
        self._store = store
        self._retained = retained
        self._clock = clock
        self._settings = settings
        self._has_told = False
        self._folded: deque[tuple[float, int]] = deque()

    async def trim(self) -> int:
        """Trims EVENTS if it exceeds a bound; returns the last sequence that was removed, 0 if none was.

        The floor in Postgres is moved before anything is removed.
        """
        extent = await StreamExtent.of(self._log)
        floor = await self._cursors.floor()
        cursors = await self._cursors.all()
        folded = self._folded_long_ago(min(cursor.last_seq for cursor in cursors))
        if extent.last < floor or await lost_cursors(self._log, cursors, extent):
            return 0  # a different stream, or one that has lost messages: the owners of the partitions say so
        stored = await self._log.stored_bytes()
        through, at_ms = await self._removable(extent, stored, folded - 1)
        if through < max(1, extent.first):
            return 0
        if await behind_events(self._log, self._store):
            return 0  # a checkpoint of a journal that has yet to catch up would hide the records that it lacks
        living = await self._retained.living_since(at_ms + MARGIN_MS)
        freed = stored * (through - extent.first + 1) // (extent.last - extent.first + 1)
        if not self._is_worthwhile(sum(execution.journal_bytes for execution in living), freed, stored):
            return 0
        partitions = {view.id: view for view in await self._store.read_partitions()}  # before their journals
        for execution in living:
            await self._keep(execution, partitions[execution.partition])
        if not await self._cursors.move_floor(floor, max(floor, through)):
            return 0
        await self._log.trim(through)
        log.info("trimmed EVENTS up to %d, with checkpoints of %d living executions", through, len(living))
        return through

    def _folded_long_ago(self, folded: int) -> int:
        """Returns the sequence up to which all partitions were folded ``kept_ms`` ago; 0 if unknown.

        Args:
            folded: The sequence up to which all partitions are folded now.
        """
        now_s = self._clock.monotonic_s()
        before_s = now_s - self._kept_ms / 1000
        self._folded.append((now_s, folded))
        while len(self._folded) > 1 and self._folded[1][0] <= before_s:
            self._folded.popleft()
        at_s, then = self._folded[0]
        return min(then, folded) if at_s <= before_s else 0

    async def _removable(self, extent: StreamExtent, stored: int, last: int) -> tuple[int, int]:
        """Returns the last sequence to remove, at most ``last``, and its stored time."""
        first, now_ms = extent.first, self._clock.now_ms()
        oldest_ms = await self._log.stored_at(first)
        if oldest_ms is None or last < first:
            return 0, 0
        before_ms, age_ms = now_ms - self._kept_ms, int(self._settings.events_max_age_s * 1000)
        if stored > self._settings.events_max_bytes:
            excess = 1 - self._settings.events_max_bytes / 2 / stored
            last = min(last, first + int(excess * (extent.last - first)))
        elif oldest_ms < now_ms - age_ms:
            before_ms = min(before_ms, now_ms - age_ms // 2)
        else:
            return 0, 0
        return await newest_before(self._log, first, last, before_ms)

    def _is_worthwhile(self, checkpoint_bytes: int, freed: int, stored: int) -> bool:
        pays = 2 * checkpoint_bytes <= freed
        if not pays and stored > self._settings.events_max_bytes and not self._has_told:
            text = "EVENTS is not trimmed yet: %d bytes would go, and the journals of living executions take %d"
            log.warning(text, freed, checkpoint_bytes)
        self._has_told = not pays
        return pays

    async def _keep(self, execution: LivingExecution, partition: PartitionView) -> None:
        """Writes the journal of a living execution to EVENTS as a checkpoint, and waits until it is stored."""
        execution_id, writer = execution.execution_id, self._clock.random_bytes(8).hex()
        stamp = Stamp(partition.id, partition.tick, partition.epoch, writer, again=True)
        after = 0
        while rows := (await self._store.journals({execution_id: after}, ENTRIES_AT_ONCE))[execution_id]:
            parts = (part for row in rows for part in in_full(row))
            await self._log.publish_checkpoints(list(messages_of(execution_id, parts, partition.last_seq, stamp)))
            after = last_position(execution_id, rows[-1])
