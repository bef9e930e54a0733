"""Periodic work between ticks: leases and the memory of their partitions, idle cursors, fair share, reconcile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from noetl_stream.errors import Fenced, NewerFormat, NoetlError, OutcomeUnknown, ReaderBroken, Unreachable
from noetl_stream.model.aggregates import is_aggregate
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.store import PartitionLease
from noetl_stream.retries import pauses
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.own_inputs import Reconciler
from noetl_stream.server.ownership.leases import PartitionLeaseKeeper
from noetl_stream.server.ownership.recovery import Recovery
from noetl_stream.server.ticks.commit import Committer

LONGEST_RETRY_S: Final = 2.0
"""The longest wait before a server reads its partitions again, since others wait for it."""

log = logging.getLogger(__name__)

UPKEEP: Final = 0
"""The partition whose owner does the upkeep of the stores for all servers."""

LOOK_AFTER: Final = 5
"""Round trips to wait after finding no free partition, so that takeovers do not delay folding."""


class PartitionAssignment:
    """Keeps memory and reader in step with the leases this server holds.

    Attributes:
        read_since_s: The time at which the current readers were opened, by the monotonic clock.
        changed: Set when partitions are gained or readers reopened, so that the queue is reconciled.
    """

    def __init__(
        self, parts: ServerParts, committer: Committer, leases: PartitionLeaseKeeper, recovery: Recovery
    ) -> None:
        self._parts = parts
        self._committer = committer
        self._leases = leases
        self._clock = parts.ports.clock
        self._recovery = recovery
        self.read_since_s = float("-inf")
        self.changed = False

    async def adopt(self, taken: Collection[PartitionLease]) -> None:
        """Loads newly leased partitions, repairs their losses, and reads them from their cursors."""
        self._parts.inbox.expect_messages()
        await self.forget({lease.id for lease in taken})  # they may have been lost, unnoticed, since they were loaded
        self._parts.publications.forget({lease.id for lease in taken})
        await self._load({lease.id for lease in taken})
        taken = await self._repair(taken)
        ids = {lease.id for lease in taken}
        if not taken:
            return
        if self._parts.reader.is_full:
            await self.reopen()
        else:
            await self._parts.reader.add(ids, min(lease.last_seq for lease in taken))
        self.changed = True

    async def _load(self, partitions: Collection[int]) -> None:
        """Loads the executions of these partitions; those of a partition with crashed owners one at a time, each
        recorded first, and no condemned one (PROTOCOL §5 *Poison*).
        """
        ownership, executions = self._parts.ownership, self._parts.executions
        careful = [partition for partition in partitions if ownership.is_careful(partition)]
        await executions.load_partitions(set(partitions) - set(careful))
        live = await self._parts.ports.store.live_executions(careful) if careful else ()
        alone = [execution_id for execution_id in live if not ownership.is_condemned(execution_id)]
        # If the lease is lost meanwhile, the loaded executions are dropped with it.
        for execution_id in alone:
            with contextlib.suppress(Fenced):
                await ownership.note_loading(execution_id)
                await executions.load([execution_id])
        for partition in set(map(partition_of, alone)):
            with contextlib.suppress(Fenced):
                await ownership.note_loaded(partition)
        timers = await self._parts.ports.store.timers_in(partitions)
        self._parts.timers.track(timers)
        self._parts.waits.track_timers([row for row in timers if not is_aggregate(row.execution_id)])

    async def release(self, partitions: Collection[int]) -> None:
        """Releases these leases once all their publications are acknowledged."""
        await self._parts.publications.drain(self._parts.times.lease_s / 3)
        await self._parts.ownership.release(partitions, self._committer.published_ticks(partitions))
        self._parts.counts.released += len(partitions)
        await self.forget(partitions)

    async def forget(self, partitions: Collection[int]) -> None:
        """Drops partitions that another server now owns (PROTOCOL §2: memory is per epoch)."""
        self._parts.executions.forget_partitions(partitions)
        self._parts.turns.forget(partitions)
        self._parts.catching_up.forget(partitions)
        if self._parts.streams is not None:
            self._parts.streams.forget(partitions)
        await self._parts.reader.drop(partitions)

    def leave(self, found: NewerFormat) -> None:
        """Gives up a partition that only a newer server can read, until memory and reader are loaded again."""
        log.warning("%s: leaving partition %d to a newer server", found.message, found.partition)
        self._parts.ownership.leave(found.partition, self._clock.monotonic_s())

    async def give_up_lost(self) -> None:
        """Gives up partitions whose last folded message EVENTS has lost: they are repaired, and may be taken over
        again.

        Raises:
            StreamLost: EVENTS belongs to another database.
        """
        lost = await self._parts.ownership.give_up_lost()
        if lost:
            self._parts.publications.forget(lost)
            await self.forget(lost)

    async def look_into_refused(self) -> None:
        """Finds out why the queue has refused commands: partitions are lost, or the queue has lost its fences."""
        refused = self._parts.publications.fenced_off
        lost = await self._parts.ownership.fence_again(refused)
        if lost:
            self._parts.counts.lost += len(lost)
            log.warning("the queue is fenced by another server: %d partitions are lost", len(lost))
            await self.forget(lost)
        if not refused.isdisjoint(self._parts.ownership.ids):
            log.warning("COMMANDS has lost fences: what it lacks is issued again")
            self.changed = True
        refused.clear()

    async def reopen(self) -> None:
        """Opens one reader for all owned partitions, from the committed cursors.

        Raises:
            StreamLost: EVENTS belongs to another database.
        """
        await self._parts.reader.close()
        self.read_since_s = self._clock.monotonic_s()
        await self.give_up_lost()
        if len(self._parts.ownership):
            await self._load(set(self._parts.ownership.ids))
            await self._parts.reader.add(
                self._parts.ownership.ids, min(lease.last_seq for lease in self._parts.ownership)
            )
            self.changed = True

    async def reconnect(self) -> None:
        """Reopens the reader, and publishes records that EVENTS may have lost meanwhile."""
        await self.reopen()
        await self._recovery.publish_owed(list(self._parts.ownership))

    async def reload(self, is_stopping: Callable[[], bool]) -> None:
        """Drops all folded state and reads it again, after a tick that failed or has an unknown outcome."""
        await self._parts.reader.close()
        await self.retry_until_reached(self._reload, is_stopping)

    async def retry_until_reached(
        self, restore: Callable[[], Awaitable[None]], is_stopping: Callable[[], bool]
    ) -> None:
        """Retries ``restore`` while a store is away or leases are lost meanwhile. Each reason is logged once."""
        reason, waits = "", pauses(self._parts.times.retry_s, LONGEST_RETRY_S)
        self._leases.is_restoring = True
        while not is_stopping():
            try:
                await restore()
                self._leases.is_restoring = False
                held = {"partitions": len(self._parts.ownership)}
                log.info("the stores answer: partitions are read again", extra=held)
                return
            except NewerFormat as error:
                self.leave(error)
            except (Unreachable, ReaderBroken, Fenced, OutcomeUnknown) as error:
                if isinstance(error, Unreachable):
                    self._parts.note_failure(error)
                if str(error) != reason:
                    reason = str(error)
                    log.warning("stores unreachable or missing, will retry: %s", reason)
                await self._clock.sleep(next(waits))

    async def release_all(self) -> None:
        """Releases all leases, so that other servers need not wait for them to expire."""
        try:
            await self.release(list(self._parts.ownership.ids))
        except NoetlError as error:
            log.warning("cannot release the leases, they will expire: %s", error)

    async def _reload(self) -> None:
        # At each attempt, since executions loaded before may belong to another server by now.
        self._parts.executions.forget_all()
        self._parts.turns.forget_all()
        self._parts.waits.forget()
        self._parts.timers.forget()
        leases = await self._parts.ownership.reload()
        self._parts.catching_up.forget({lease.id for lease in leases})
        await self._load({lease.id for lease in leases})
        await self._repair(leases)
        await self.reopen()

    async def _repair(self, leases: Collection[PartitionLease]) -> Collection[PartitionLease]:
        """Repairs the losses of these partitions; returns the remaining leases."""
        behind = await self._recovery.make_good(leases)
        self._parts.executions.forget_partitions(behind)
        self._parts.turns.forget(behind)
        return [lease for lease in leases if lease.id not in behind]


class Housekeeping:
    """Runs the periodic jobs of a server; :meth:`run` does those that are due."""

    def __init__(
        self,
        parts: ServerParts,
        committer: Committer,
        leases: PartitionLeaseKeeper,
        assignment: PartitionAssignment,
        reconciler: Reconciler,
    ) -> None:
        self._parts = parts
        self._leases = leases
        self._committer = committer
        self._assignment = assignment
        self._reconciler = reconciler
        self._times = parts.times
        self._ran_s = self._marked_s = self._compared_s = self._reconciled_s = self._looks_again_s = float("-inf")

    async def run(self, now_s: float) -> None:
        """Runs the jobs due at ``now_s`` of the monotonic clock."""
        if lost := self._leases.take_lost():
            self._parts.counts.lost += len(lost)
            log.warning("%d partitions are lost or given back", len(lost), extra={"partitions": sorted(lost)})
            await self._assignment.forget(lost)
        if now_s - self._ran_s < self._times.housekeeping_s:
            return
        self._ran_s = now_s
        self._parts.publications.settle()
        if self._parts.publications.fenced_off:
            await self._assignment.look_into_refused()
        if now_s - self._marked_s >= self._times.mark_s:
            self._marked_s = now_s
            self._parts.inbox.expect_messages()
            await self._refresh_triggers(now_s)
            await self._committer.mark(self._parts.reader.folded_through())
        if now_s >= self._leases.abstains_until_s:
            await self._balance(now_s)
        if len(self._parts.ownership) and (
            self._assignment.changed or now_s - self._reconciled_s >= self._times.reconcile_s
        ):
            await self._reconcile(now_s)
        elif len(self._parts.ownership) and now_s - self._compared_s >= self._times.compare_s:
            await self._compare(now_s)

    async def _refresh_triggers(self, now_s: float) -> None:
        triggers, streams = self._parts.triggers, self._parts.streams
        if await triggers.refresh(now_s) and streams is not None:
            streams.refresh(triggers.on_streams, sweeps=UPKEEP in self._parts.ownership.ids)

    async def _balance(self, now_s: float) -> None:
        share = self._parts.ownership.fair_share(now_s)
        extra = len(self._parts.ownership) - share
        if extra > 0:
            released = sorted(self._parts.ownership.ids)[-extra:]
            await self._assignment.release(released)
            about = {"partitions": released}
            log.info("released %d partitions, %d left", extra, len(self._parts.ownership), extra=about)
            return
        if now_s < self._looks_again_s:
            return
        taken = await self._parts.ownership.take(share - len(self._parts.ownership), self._leases.lease_s, now_s)
        if not taken:
            self._looks_again_s = now_s + LOOK_AFTER * self._leases.round_trips.longest_s
        else:
            self._parts.counts.taken_over += len(taken)
            log.info("took over %d partitions, %d now", len(taken), len(self._parts.ownership))
            await self._assignment.adopt(taken)

    async def _reconcile(self, now_s: float) -> None:
        self._reconciled_s = now_s
        self._assignment.changed = False
        await self._compare(now_s)
        await self._reconciler.list_missing(self._parts.executions, self._parts.publications.commands_under_way())

    async def _compare(self, now_s: float) -> None:
        self._compared_s = now_s
        await self._assignment.give_up_lost()
