"""How much the gateway admits: requests and streams at once, and new work while the servers are far behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from noetl_stream.errors import NoetlError, TooBusy
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.cluster import Cluster
from noetl_stream.settings.environment import GatewayLimits

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
RETRY_AFTER_S: Final = 1.0
BEHIND_RETRY_AFTER_S: Final = 5.0


class Pressure:
    """Counts requests and streams under way, and polls once a second how far behind the servers are.

    Attributes:
        behind: Messages of EVENTS that are not folded yet, as of the last poll.
    """

    def __init__(self, limits: GatewayLimits, cluster: Cluster, clock: Clock) -> None:
        self._limits = limits
        self._cluster = cluster
        self._clock = clock
        self.requests = 0
        self.streams = 0
        self.behind = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Counts a request for as long as it takes.

        Raises:
            TooBusy: the limit is reached.
        """
        if self.requests >= self._limits.max_requests:
            raise TooBusy(
                f"{self.requests} requests are under way (NOETL_GATEWAY_MAX_REQUESTS)",
                RETRY_AFTER_S,
                hint="try again, or start another gateway",
            )
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a stream for as long as it is open; errors as :meth:`request`."""
        if self.streams >= self._limits.max_streams:
            raise TooBusy(
                f"{self.streams} streams are open (NOETL_GATEWAY_MAX_STREAMS)",
                BEHIND_RETRY_AFTER_S,
                hint="try again, or start another gateway",
            )
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def admit_work(self) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` while the servers are too far behind for more work."""
        if self.behind > self._limits.max_behind:
            raise TooBusy(
                f"the servers are {self.behind} messages behind (NOETL_GATEWAY_MAX_BEHIND={self._limits.max_behind})",
                BEHIND_RETRY_AFTER_S,
                hint="try again, or start another server; cancel, pause and patch are still accepted",
            )

    async def watch(self) -> None:
        """Polls how far behind the servers are; never returns. While that is unknown, the last value counts."""
        while True:
            try:
                self.behind = sum(row.behind for row in await self._cluster.partitions())
            except NoetlError as error:
                log.debug("cannot see how far behind the servers are: %s", error)
            await self._clock.sleep(POLL_S)
