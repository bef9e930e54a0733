"""How much the gateway takes in: requests and streams at once, and new work while the servers are far behind."""

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

LOOK_S: Final = 1.0
RETRY_AFTER_S: Final = 1.0
BEHIND_RETRY_AFTER_S: Final = 5.0


class Pressure:
    """Counts what is under way, and looks once a second how far behind the servers are.

    Attributes:
        behind: Messages of EVENTS that are not folded yet, as of the last look.
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
        """For the time of a request.

        Raises:
            TooBusy: there are as many as there may be.
        """
        if self.requests >= self._limits.max_requests:
            raise TooBusy(
                f"{self.requests} requests are under way (NOETL_GATEWAY_MAX_REQUESTS)",
                RETRY_AFTER_S,
                hint="come again, or start another gateway",
            )
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """For the time of a stream; errors as :meth:`request`."""
        if self.streams >= self._limits.max_streams:
            raise TooBusy(
                f"{self.streams} streams are open (NOETL_GATEWAY_MAX_STREAMS)",
                BEHIND_RETRY_AFTER_S,
                hint="come again, or start another gateway",
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
                hint="come again, or start another server; cancel, pause and patch are taken all the same",
            )

    async def watch(self) -> None:
        """Looks how far behind the servers are, for ever. While nobody can say, what was seen last holds."""
        while True:
            try:
                self.behind = sum(row.behind for row in await self._cluster.partitions())
            except NoetlError as error:
                log.debug("cannot see how far behind the servers are: %s", error)
            await self._clock.sleep(LOOK_S)
