"""Leases of running commands: renewed in a thread, given up when NATS is out of reach (PROTOCOL §3 *Order*)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from typing import Protocol

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.command_queue import CommandQueue, Delivery
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.waiting import done_within

log = logging.getLogger(__name__)


class Leased(Protocol):
    """A run that needs the lease of a delivery."""

    delivery: Delivery


class LeaseKeeper:
    """Renews the leases of all deliveries in one thread, so that code blocking the event loop costs no lease.

    Args:
        runs: The present runs, added and removed by the thread of the event loop. Copying them is one step.
        interval_s: Seconds between two renewals.
    """

    def __init__(self, runs: Collection[Leased], interval_s: float) -> None:
        self.interval_s = interval_s
        self._runs = runs
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_closed, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended by itself, so that leases are no longer renewed."""
        return self._thread.ident is not None and not self._thread.is_alive() and not self._closing.is_set()

    def close(self) -> None:
        """Ends the thread; leases are no longer renewed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def renew(self) -> None:
        for run in list(self._runs):
            try:
                run.delivery.in_progress()
            except NoetlError as error:
                log.warning("cannot renew a lease: %s", error)

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(self.interval_s):
            self.renew()


class BrokerLiveness:
    """Tracks when NATS last answered: an acknowledged report, or a round trip if there is none.

    Attributes:
        losses: The number of times NATS was silent for too long.
    """

    def __init__(self, queue: CommandQueue, pool: str, clock: Clock) -> None:
        self._queue = queue
        self._pool = pool
        self._clock = clock
        self._last_s = clock.monotonic_s()
        self.losses = 0

    def touch(self) -> None:
        """Records that NATS has just answered."""
        self._last_s = self._clock.monotonic_s()

    @property
    def age_s(self) -> float:
        return self._clock.monotonic_s() - self._last_s

    async def watch(self, lost: Callable[[], None]) -> None:
        """Checks contact with NATS until cancelled; calls ``lost`` when it was silent for too long.

        A new attempt always precedes the verdict, so that a blocked event loop does not count as lost contact.
        """
        is_lost = False
        while True:
            if self.age_s < limits.CONTACT_INTERVAL_S or await self._reach():
                is_lost = False
                await self._clock.sleep(limits.CONTACT_INTERVAL_S)
                continue
            if self.age_s >= limits.CONTACT_LOST_AFTER_S:
                if not is_lost:
                    self.losses += 1
                    log.error("no contact with NATS for %.0f s: stopping all runs, their leases expire", self.age_s)
                is_lost = True
                lost()
            await self._clock.sleep(limits.CONTACT_RETRY_S)

    async def _reach(self) -> bool:
        probe = asyncio.ensure_future(self._queue.reach(self._pool))
        try:
            if not await done_within(self._clock, limits.CONTACT_ANSWER_S, probe):
                return False
            probe.result()
        except NoetlError as error:
            log.debug("no contact: %s", error)
            return False
        finally:
            probe.cancel()
        self.touch()
        return True
