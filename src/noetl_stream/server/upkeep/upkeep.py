"""The periodic work of a server, beside its loop, that bounds the growth of the stores; it changes no execution.

Commands of ended executions are purged from the queue. A nats-server that is killed may forget deletions, so that
acknowledged commands are in the stream again without a consumer that delivers them; and a withdrawal is lost with its
server.

EVENTS is trimmed below every cursor, but never facts of living executions (PROTOCOL §5): a journal that would lose
messages is first written to EVENTS again, as checkpoint records. A trim must free twice as much.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.cursors import Cursors
from noetl_stream.ports.stores.dead_letters import DeadLetters, LetterBounds
from noetl_stream.ports.stores.fed_events import FeedStore
from noetl_stream.ports.stores.retention import RetentionStore
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal_records import (
    MARGIN_MS,
    StreamExtent,
    behind_events,
    lost_cursors,
    newest_before,
)
from noetl_stream.server.upkeep.bundles import BundleSweeper
from noetl_stream.server.upkeep.checkpoints import write_checkpoint
from noetl_stream.server.upkeep.expiry import Retention
from noetl_stream.server.upkeep.holes import LOOK_S as LOOK_FOR_HOLES_S
from noetl_stream.server.upkeep.holes import HoleFinder
from noetl_stream.server.upkeep.log_shares import LogTrimmer
from noetl_stream.settings.retention_periods import RetentionSettings

log = logging.getLogger(__name__)

EXECUTIONS_AT_ONCE: Final = 500


class QueueSweeper:
    """Purges commands of ended executions. Several servers may do so at once."""

    def __init__(self, queue: CommandQueue, store: Store) -> None:
        self._queue = queue
        self._store = store

    async def sweep(self) -> None:
        """Removes the commands of ended executions from the queue.

        Raises:
            Unreachable: no answer in time; the next sweep continues.
        """
        present = await self._queue.present()
        executions, ended = sorted(set(present.values())), set[str]()
        for start in range(0, len(executions), EXECUTIONS_AT_ONCE):
            rows = await self._store.executions(executions[start : start + EXECUTIONS_AT_ONCE])
            ended |= {execution_id for execution_id, row in rows.items() if row.finished_ms is not None}
        gone = [
            (execution_id, command_id)
            for command_id, execution_id in present.items()
            if execution_id in ended and is_valid_id(command_id)
        ]
        if gone:
            await self._queue.withdraw(gone)
            log.info("purged %d commands of executions that have ended", len(gone))


KEPT_MS: Final = 2 * MARGIN_MS
"""The time for which messages stay after they were stored or folded: a lost tail is repaired from them, and so is a
Postgres that is restored to an older state.
"""


class Trimmer:
    """Trims EVENTS above a bound to half of it. Several servers may do so at once: one of them moves the floor.

    Args:
        kept_ms: The time for which messages stay after they were stored or folded.
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
        self._told = ""
        self._folded: deque[tuple[float, int]] = deque()

    async def trim(self) -> int:
        """Trims EVENTS if it exceeds a bound; returns the last removed sequence, 0 if none was.

        The floor in Postgres is moved before anything is removed.
        """
        extent = await StreamExtent.of(self._log)
        floor = await self._cursors.floor()
        cursors = await self._cursors.all()
        folded = self._folded_long_ago(min(cursor.last_seq for cursor in cursors))
        if not folded:
            return 0  # the position of the fold at that time is not known yet
        if extent.last < floor or await lost_cursors(self._log, cursors, extent):
            return 0  # a different or damaged stream is reported by the owners of the partitions
        stored = await self._log.stored_bytes()
        through, at_ms = await self._removable(extent, stored, folded - 1)
        if through < max(1, extent.first):
            return self._leave(stored, f"what came or was folded in the last {self._kept_ms / 1000:g} s stays")
        if await behind_events(self._log, self._store):
            # A checkpoint of a journal that has yet to catch up would hide the missing records.
            return self._leave(stored, "Postgres has yet to catch up with it")
        living = await self._retained.living_since(at_ms + MARGIN_MS)
        freed = stored * (through - extent.first + 1) // (extent.last - extent.first + 1)
        if 2 * sum(execution.journal_bytes for execution in living) > freed:
            return self._leave(stored, "the journals of living executions take more than half of what would go")
        self._told = ""
        partitions = {view.id: view for view in await self._store.read_partitions()}  # before their journals
        for execution in living:
            view = partitions[execution.partition]
            await write_checkpoint(self._log, self._store, self._clock, execution.execution_id, view)
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

    def _leave(self, stored: int, why: str) -> int:
        """Leaves EVENTS unchanged, and logs the reason once if it exceeds its size. Returns 0."""
        most = self._settings.events_max_bytes
        if stored > most and why != self._told:
            log.warning("EVENTS is not trimmed yet: it has %d bytes, %d are wanted at most; %s", stored, most, why)
        self._told = why if stored > most else ""
        return 0


TICKS_AT_ONCE: Final = 5_000
"""The most ticks of the feed that one transaction trims, to keep it short."""

LETTERS_AT_ONCE: Final = 5_000

TRIM_FEED_S: Final = 600.0
TRIM_LETTERS_S: Final = 30.0
TRIM_EVENTS_S: Final = 30.0
TRIM_LOGS_S: Final = 5.0
SWEEP_S: Final = 300.0
COMPARE_S: Final = 60.0
MAKE_MONTHS_S: Final = 6 * 3_600.0
DELETE_OLD_S: Final = 3_600.0
"""The interval at which old executions and bundles are deleted, in seconds; above, the intervals of the other jobs."""

LOOK_S: Final = 5.0
"""The interval at which a server checks whether the upkeep is its own."""


class Upkeep:
    """The periodic work on the stores. Every server trims the feed; the rest is done by one of them.

    Attributes:
        feed: The feed that is trimmed.
        letters_dropped: Dead letters above their bounds.
        disagreements: The disagreements between Postgres and EVENTS at the last comparison, a line each.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        feed: FeedStore | None = None,
        trimmer: Trimmer | None = None,
        retention: Retention | None = None,
        letters: DeadLetters | None = None,
        sweeper: QueueSweeper | None = None,
        holes: HoleFinder | None = None,
        compare: Callable[[], Awaitable[list[str]]] | None = None,
        log_trimmer: LogTrimmer | None = None,
        bundles: BundleSweeper | None = None,
        trim_events_s: float = TRIM_EVENTS_S,
    ) -> None:
        self._trim_events_s = trim_events_s
        self._clock = clock
        self.feed = feed
        self._trimmer = trimmer
        self._retention = retention
        self._letters = letters
        self._sweeper = sweeper
        self._holes = holes
        self._compare = compare
        self.disagreements: Sequence[str] = ()
        self._log_trimmer = log_trimmer
        self._bundles = bundles
        self.letters_dropped = 0

    async def run(self, feed_keep_s: float, is_mine: Callable[[], bool]) -> None:
        """Runs the jobs until cancelled.

        Args:
            feed_keep_s: The time for which the whole feed can be resumed.
            is_mine: Returns whether this server does the work that one server does for all.
        """
        async with asyncio.TaskGroup() as group:
            if self.feed is not None:
                group.create_task(self._repeat(lambda: self._trim_feed(feed_keep_s), TRIM_FEED_S, "trim the feed"))
            if self._trimmer is not None:
                group.create_task(self._repeat(self._trimmer.trim, self._trim_events_s, "trim EVENTS", is_mine))
            if self._letters is not None:
                trim = partial(self._trim_letters, self._letters)
                group.create_task(self._repeat(trim, TRIM_LETTERS_S, "trim the dead letters", is_mine))
            if self._sweeper is not None:
                group.create_task(self._repeat(self._sweeper.sweep, SWEEP_S, "sweep the queue", is_mine))
            if self._holes is not None:
                look = self._holes.look
                group.create_task(self._repeat(look, LOOK_FOR_HOLES_S, "look for lost messages", is_mine))
            if self._compare is not None:
                compare = partial(self._note_disagreements, self._compare, is_mine)
                group.create_task(self._repeat(compare, COMPARE_S, "compare Postgres and EVENTS"))
            if self._log_trimmer is not None:
                group.create_task(self._repeat(self._log_trimmer.trim, TRIM_LOGS_S, "trim LOGS", is_mine))
            if self._bundles is not None:
                sweep = self._bundles.sweep
                group.create_task(self._repeat(sweep, DELETE_OLD_S, "delete bundles that nothing names", is_mine))
            if self._retention is not None:
                make, delete = self._retention.make_months, self._retention.delete_old
                group.create_task(self._repeat(make, MAKE_MONTHS_S, "make tables for the next months", is_mine))
                group.create_task(self._repeat(delete, DELETE_OLD_S, "delete old executions", is_mine))

    async def _trim_feed(self, keep_s: float) -> None:
        while self.feed is not None and await self.feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
            pass

    async def _trim_letters(self, letters: DeadLetters) -> None:
        bounds, dropped, count = LetterBounds(), 0, LETTERS_AT_ONCE
        while count == LETTERS_AT_ONCE:
            count = await letters.trim(bounds, self._clock.now_ms(), LETTERS_AT_ONCE)
            self.letters_dropped += count
            dropped += count
        if dropped:
            log.warning("dropped the %d oldest dead letters: above their bounds", dropped)

    @property
    def messages_lost(self) -> int:
        """The number of messages of EVENTS that this server found to be lost."""
        return self._holes.lost if self._holes is not None else 0

    @property
    def late_records(self) -> int:
        """The number of late records that this server found in EVENTS."""
        return self._holes.late if self._holes is not None else 0

    async def _note_disagreements(
        self, compare: Callable[[], Awaitable[list[str]]], is_mine: Callable[[], bool]
    ) -> None:
        found = await compare() if is_mine() else []
        for line in found:
            if line not in self.disagreements:
                log.error("Postgres and EVENTS disagree: %s", line)
        self.disagreements = found

    async def _repeat(
        self,
        work: Callable[[], Awaitable[object]],
        every_s: float,
        what: str,
        is_mine: Callable[[], bool] = lambda: True,
    ) -> None:
        while True:
            if not is_mine():
                await self._clock.sleep(LOOK_S)
                continue
            try:
                await work()
            except NoetlError as error:
                log.warning("cannot %s, will retry: %s", what, error)
            await self._clock.sleep(every_s)
