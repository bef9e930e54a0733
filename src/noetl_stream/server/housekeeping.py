"""Periodic work between ticks: leases and what they bring into memory, idle cursors, fair share, reconcile."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown, ReaderBroken, Unreachable
from noetl_stream.ports import subjects
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.store import FeedStore, PartitionLease
from noetl_stream.server.commit import Committer
from noetl_stream.server.parts import ServerParts
from noetl_stream.server.reader import MAX_READERS
from noetl_stream.server.reconcile import Reconciler
from noetl_stream.server.recovery import Recovery

log = logging.getLogger(__name__)

TICKS_AT_ONCE: Final = 5_000
"""How many ticks one transaction trims, to keep it short."""

TRIM_S: Final = 600.0
"""How often every server trims."""


class PartitionAssignment:
    """Keeps memory and reader in step with the leases this server holds.

    Attributes:
        read_since_s: When the current readers were opened, by the monotonic clock.
        changed: Set when partitions are gained or readers reopened, so that the queue is reconciled.
    """

    def __init__(self, parts: ServerParts, committer: Committer, recovery: Recovery) -> None:
        self._parts = parts
        self._committer = committer
        self._clock = parts.ports.clock
        self._recovery = recovery
        self.read_since_s = float("-inf")
        self.changed = False

    async def adopt(self, taken: Collection[PartitionLease]) -> None:
        """Loads newly leased partitions, makes good what is lost of them, and reads them from their cursors."""
        await self._parts.inputs.synchronize()
        self._parts.inbox.expect_messages()
        await self._parts.executions.load_partitions({lease.id for lease in taken})
        taken = await self._made_good(taken)
        ids = {lease.id for lease in taken}
        if not taken:
            return
        if self._parts.reader.readers >= MAX_READERS:
            await self.reopen()
        else:
            await self._parts.reader.add(ids, min(lease.last_seq for lease in taken))
        self.changed = True

    async def release(self, partitions: Collection[int]) -> None:
        """Releases these leases once everything published for them is acknowledged."""
        await self._parts.publications.drain(self._parts.times.lease_s / 3)
        await self._parts.ownership.release(partitions, self._committer.published(partitions))
        await self.forget(partitions)

    async def forget(self, partitions: Collection[int]) -> None:
        """Drops partitions that another server now owns (PROTOCOL §2: memory is per epoch)."""
        self._parts.executions.forget_partitions(partitions)
        await self._parts.reader.drop(partitions)

    async def give_up_lost(self) -> None:
        """Gives partitions up whose last folded message EVENTS has lost; they are repaired, and taken over again.

        Raises:
            StreamLost: EVENTS is another database's.
        """
        lost = await self._parts.ownership.give_up_lost()
        if lost:
            self._parts.publications.forget(lost)
            await self.forget(lost)

    async def reopen(self) -> None:
        """Opens one reader for all owned partitions, from the committed cursors.

        Raises:
            StreamLost: EVENTS is another database's.
        """
        await self._parts.reader.close()
        self.read_since_s = self._clock.monotonic_s()
        await self.give_up_lost()
        if len(self._parts.ownership):
            await self._parts.executions.load_partitions(set(self._parts.ownership.ids))
            await self._parts.reader.add(
                self._parts.ownership.ids, min(lease.last_seq for lease in self._parts.ownership)
            )
            self.changed = True

    async def reconnect(self) -> None:
        """Reopens the reader, and publishes what EVENTS may have lost meanwhile."""
        await self.reopen()
        await self._recovery.publish_owed(list(self._parts.ownership))

    async def reload(self, is_stopping: Callable[[], bool]) -> None:
        """Drops all folded state and reads it again, after a failed tick or one of unknown outcome."""
        await self._parts.reader.close()
        await self.retry_until_reached(self._reload, is_stopping)

    async def retry_until_reached(
        self, restore: Callable[[], Awaitable[None]], is_stopping: Callable[[], bool]
    ) -> None:
        """Retries ``restore`` while a store is away or leases are lost meanwhile. Each reason is logged once."""
        reason = ""
        while not is_stopping():
            try:
                await restore()
                return
            except (Unreachable, ReaderBroken, Fenced, OutcomeUnknown) as error:
                if str(error) != reason:
                    reason = str(error)
                    log.warning("stores unreachable or missing, will retry: %s", reason)
                await self._clock.sleep(self._parts.times.retry_s)

    async def release_all(self) -> None:
        """Releases all leases, so that other servers need not wait for them to expire."""
        try:
            await self.release(list(self._parts.ownership.ids))
        except NoetlError as error:
            log.warning("cannot release the leases, they will expire: %s", error)

    async def _reload(self) -> None:
        # At each attempt: what an earlier one loaded may belong to another server by now.
        self._parts.executions.forget_all()
        self._parts.inputs.forget()
        leases = await self._parts.ownership.reload()
        await self._parts.executions.load_partitions({lease.id for lease in leases})
        await self._made_good(leases)
        await self.reopen()

    async def _made_good(self, leases: Collection[PartitionLease]) -> Collection[PartitionLease]:
        """Those of the leases that are left when what is lost is made good."""
        await self._recovery.publish_owed(leases)
        behind = await self._recovery.catch_up(leases)
        self._parts.executions.forget_partitions(behind)
        return [lease for lease in leases if lease.id not in behind]


class Housekeeping:
    """Runs jobs at intervals; :meth:`run` does those that are due."""

    def __init__(
        self, parts: ServerParts, committer: Committer, assignment: PartitionAssignment, reconciler: Reconciler
    ) -> None:
        self._parts = parts
        self._committer = committer
        self._assignment = assignment
        self._reconciler = reconciler
        self._times = parts.times
        self._ran_s = self._renewed_s = self._marked_s = self._reconciled_s = float("-inf")
        self._abstains_until_s = float("-inf")
        self._silences = 0

    async def run(self, now_s: float) -> None:
        """Runs the jobs due at ``now_s`` of the monotonic clock."""
        if now_s - self._ran_s < self._times.housekeeping_s:
            return
        self._ran_s = now_s
        self._parts.publications.settle()
        self._parts.ports.bus.send(subjects.SERVERS, self._parts.owner.encode())
        if now_s - self._renewed_s >= self._times.lease_s / 3 and len(self._parts.ownership):
            await self._renew(now_s)
        if now_s - self._marked_s >= self._times.mark_s:
            self._marked_s = now_s
            self._parts.inbox.expect_messages()
            await self._committer.mark(self._parts.reader.folded_through())
        if now_s >= self._abstains_until_s:
            await self._balance(now_s)
        if len(self._parts.ownership) and (
            self._assignment.changed or now_s - self._reconciled_s >= self._times.reconcile_s
        ):
            await self._reconcile(now_s)

    async def _renew(self, now_s: float) -> None:
        """Renews leases only while their partitions are read; after two failures releases all (PROTOCOL §2)."""
        self._renewed_s = now_s
        await self._parts.inputs.synchronize()
        if self._parts.reader.silent_s(now_s) > self._times.silence_s:
            self._silences += 1
            if self._silences == 2:
                log.warning("nothing received from EVENTS for %.0f s: releasing all partitions", self._times.silence_s)
                self._silences = 0
                self._abstains_until_s = now_s + self._times.lease_s  # let other servers try first
                await self._assignment.release(list(self._parts.ownership.ids))
            return
        self._silences = 0
        lost = await self._parts.ownership.renew()
        if lost:
            log.warning("lost %d partitions to another server", len(lost))
            await self._assignment.forget(lost)

    async def _balance(self, now_s: float) -> None:
        share = self._parts.ownership.fair_share(now_s)
        extra = len(self._parts.ownership) - share
        if extra > 0:
            await self._assignment.release(sorted(self._parts.ownership.ids)[-extra:])
            log.info("released %d partitions, %d left", extra, len(self._parts.ownership))
            return
        taken = await self._parts.ownership.take(share - len(self._parts.ownership), now_s)
        if taken:
            log.info("took over %d partitions, %d now", len(taken), len(self._parts.ownership))
            await self._assignment.adopt(taken)

    async def _reconcile(self, now_s: float) -> None:
        self._reconciled_s = now_s
        self._assignment.changed = False
        await self._assignment.give_up_lost()
        await self._reconciler.list_missing(self._parts.executions, self._parts.publications.commands_under_way())


log = logging.getLogger(__name__)


async def trim_feed(feed: FeedStore | None, clock: Clock, keep_s: float) -> None:
    """Trims ``feed`` periodically, for ever; returns at once without a feed."""
    while feed is not None:
        try:
            while await feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
                pass
        except NoetlError as error:
            log.warning("cannot trim the feed, will retry: %s", error)
        await clock.sleep(TRIM_S)
