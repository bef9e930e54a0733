"""The fill levels of the stores, and when they will be full at their present growth."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.operations.doctor.readings import STREAMS, reading
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.self_reports import (
    DatabaseDiagnosis,
    DatabaseFacts,
    NatsDiagnosis,
    NatsStorage,
    StoreUse,
    StreamFacts,
)
from noetl_stream.protocol.subjects import LOGS, RESULTS

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
WINDOW_S: Final = 3_600.0
"""The growth of the last hour counts."""

LEAST_S: Final = 300.0
"""The shortest observation of growth that counts for the next hours."""


def nats_uses(streams: Iterable[StreamFacts], storage: NatsStorage) -> list[StoreUse]:
    """Returns the use of streams, the account and nats-servers, with the known bounds."""
    found = [
        # LOGS drops its oldest lines when it is full, as it should.
        StoreUse(
            "OBJECTS" if one.name == RESULTS else one.name, one.size_bytes, None if one.name == LOGS else one.max_bytes
        )
        for one in streams
        if one.exists
    ]
    return [*found, StoreUse("all streams", storage.size_bytes, storage.max_bytes), *storage.servers]


def postgres_use(facts: DatabaseFacts, max_bytes: int | None) -> StoreUse:
    return StoreUse("Postgres", facts.size_bytes, max_bytes)


class _Sample(NamedTuple):
    at_s: float
    bytes: Mapping[str, int]


class StoreWatch:
    """Measures the stores once a minute, for as long as its process runs.

    Args:
        stored: What executions have in the object store, wherever that is, by path.
        postgres_max_bytes: The disk space for the database; ``None`` if it is not configured.
    """

    def __init__(
        self,
        nats: NatsDiagnosis,
        database: DatabaseDiagnosis,
        stored: Callable[[], Awaitable[Mapping[str, int]]],
        clock: Clock,
        postgres_max_bytes: int | None,
    ) -> None:
        self._nats = nats
        self._database = database
        self._stored = stored
        self._clock = clock
        self._postgres_max_bytes = postgres_max_bytes
        self._last: list[StoreUse] = []
        self._samples: deque[_Sample] = deque()

    async def watch(self) -> None:
        """Measures until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Measures once. A store that does not answer is left out."""
        looks = (self._look_at_nats(), self._look_at_postgres(), self._look_at_executions())
        found: list[StoreUse] = []
        for part in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(part, NoetlError):
                log.debug("cannot see how full a store is: %s", part)
            elif isinstance(part, BaseException):
                raise part
            else:
                found += part
        now_s = self._clock.monotonic_s()
        self._last = found
        self._samples.append(_Sample(now_s, {one.name: one.bytes for one in found}))
        while self._samples[0].at_s < now_s - WINDOW_S:
            self._samples.popleft()

    def uses(self) -> list[StoreUse]:
        """Returns the last measurements, with the time to full of growing stores."""
        return [replace(one, full_in_s=self._full_in_s(one)) for one in self._last]

    async def _look_at_nats(self) -> list[StoreUse]:
        streams, storage = await asyncio.gather(
            reading("the streams", asyncio.gather(*(self._nats.stream(name) for name in STREAMS))),
            reading("the storage of NATS", self._nats.storage()),
        )
        return nats_uses(streams, storage)

    async def _look_at_postgres(self) -> list[StoreUse]:
        facts = await reading("Postgres", self._database.facts())
        return [postgres_use(facts, self._postgres_max_bytes)]

    async def _look_at_executions(self) -> list[StoreUse]:
        stored = await reading("Postgres", self._stored())
        return [StoreUse("objects of executions", sum(stored.values()), None)]

    def _full_in_s(self, use: StoreUse) -> float | None:
        seen = [(sample.at_s, sample.bytes[use.name]) for sample in self._samples if use.name in sample.bytes]
        (from_s, first), (to_s, last) = seen[0], seen[-1]
        if use.max_bytes is None or to_s - from_s < LEAST_S or last <= first:
            return None
        return max(0.0, (use.max_bytes - last) * (to_s - from_s) / (last - first))
