"""Whether NATS can be reached, and what follows when it cannot for too long (PROTOCOL §3 *Order*)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog
from noetl_stream.worker import limits
from noetl_stream.worker.waiting import within

log = logging.getLogger(__name__)


class BrokerLiveness:
    """The last proof that NATS answers. An acknowledged report is one; a round trip is made when there is no other."""

    def __init__(self, event_log: EventLog, clock: Clock) -> None:
        self._log = event_log
        self._clock = clock
        self._last_s = clock.monotonic_s()

    def touch(self) -> None:
        """NATS has answered just now."""
        self._last_s = self._clock.monotonic_s()

    @property
    def age_s(self) -> float:
        return self._clock.monotonic_s() - self._last_s

    async def watch(self, lost: Callable[[], None]) -> None:
        """Looks for contact without end; calls ``lost`` whenever there has been none for too long.

        A try always comes before the verdict, so an event loop that stood still for long loses nothing.
        """
        is_lost = False
        while True:
            if self.age_s < limits.CONTACT_INTERVAL_S or await self._reach():
                is_lost = False
                await self._clock.sleep(limits.CONTACT_INTERVAL_S)
                continue
            if self.age_s >= limits.CONTACT_LOST_AFTER_S:
                if not is_lost:
                    log.error("no contact with NATS for %.0f s: ending what runs, its leases run out", self.age_s)
                is_lost = True
                lost()
            await self._clock.sleep(limits.CONTACT_RETRY_S)

    async def _reach(self) -> bool:
        asked = asyncio.ensure_future(self._log.last_sequence())
        try:
            if not await within(self._clock, limits.CONTACT_ANSWER_S, asked):
                return False
            asked.result()
        except NoetlError as error:
            log.debug("no contact: %s", error)
            return False
        finally:
            asked.cancel()
        self.touch()
        return True
