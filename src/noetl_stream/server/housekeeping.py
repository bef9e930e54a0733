"""Periodic work between ticks: leases, cursors of idle partitions, fair share, reconcile."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.feed import FeedStore
from noetl_stream.server.assignment import PartitionAssignment, ServerParts
from noetl_stream.server.reconcile import Reconciler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Intervals in seconds. A lease is renewed every third of its length; reconcile also runs after every takeover.

    ``mark_s``: how often published ticks and the cursors of idle partitions are written.
    ``feed_keep_s``: how long the whole feed can be resumed; older parts are trimmed.
    """

    lease_s: float = 6.0
    housekeeping_s: float = 0.5
    mark_s: float = 1.0
    reconcile_s: float = 10.0
    silence_s: float = 7.0
    retry_s: float = 0.5
    feed_keep_s: float = 86_400.0


class Housekeeping:
    """Runs jobs at intervals; :meth:`run` does those that are due."""

    def __init__(
        self, parts: ServerParts, assignment: PartitionAssignment, reconciler: Reconciler, bus: Bus, times: ServerTimes
    ) -> None:
        self._parts = parts
        self._assignment = assignment
        self._reconciler = reconciler
        self._bus = bus
        self._times = times
        self._ran_s = self._renewed_s = self._marked_s = self._reconciled_s = float("-inf")
        self._abstains_until_s = float("-inf")
        self._in_vain = 0

    async def run(self, now_s: float) -> None:
        """Runs the jobs due at ``now_s`` of the monotonic clock."""
        if now_s - self._ran_s < self._times.housekeeping_s:
            return
        self._ran_s = now_s
        self._parts.publications.settle()
        self._bus.send(subjects.SERVERS, self._parts.ownership.owner.encode())
        if now_s - self._renewed_s >= self._times.lease_s / 3 and len(self._parts.ownership):
            await self._renew(now_s)
        if now_s - self._marked_s >= self._times.mark_s:
            self._marked_s = now_s
            self._parts.inbox.expect_messages()
            await self._parts.committer.mark(self._parts.reader.folded_through())
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
            self._in_vain += 1
            if self._in_vain == 2:
                log.warning("no word from EVENTS for %.0f s: releasing all partitions", self._times.silence_s)
                self._in_vain = 0
                self._abstains_until_s = now_s + self._times.lease_s  # let other servers try first
                await self._assignment.release(list(self._parts.ownership.ids))
            return
        self._in_vain = 0
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
        taken = await self._parts.ownership.take(share - len(self._parts.ownership))
        if taken:
            log.info("took over %d partitions, %d now", len(taken), len(self._parts.ownership))
            await self._assignment.adopt(taken)

    async def _reconcile(self, now_s: float) -> None:
        self._reconciled_s = now_s
        self._assignment.changed = False
        await self._parts.ownership.verify_stream()
        await self._reconciler.list_missing(self._parts.executions, self._parts.publications.commands_under_way())


log = logging.getLogger(__name__)

TICKS_AT_ONCE: Final = 5_000
"""How many ticks one transaction trims, to keep it short."""


TRIM_S: Final = 600.0
"""How often every server trims."""


async def trim_feed(feed: FeedStore | None, clock: Clock, keep_s: float) -> None:
    """Trims ``feed`` periodically, for ever; returns at once without a feed."""
    while feed is not None:
        try:
            while await feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
                pass
        except NoetlError as error:
            log.warning("cannot trim the feed, will retry: %s", error)
        await clock.sleep(TRIM_S)
