"""The readings of all checks, made once and at the same time; and the fill levels of the stores, and when they will be
full at their present growth.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model.aggregates import TRIGGER
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WorkerPresence
from noetl_stream.operations.cluster import server_uses, workers_of
from noetl_stream.ports import self_reports as reports
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.credentials import Credentials
from noetl_stream.ports.stores.dead_letters import DeadLetters
from noetl_stream.ports.stores.identities import Tokens
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue, QueuedPool
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, LOGS, RESULTS
from noetl_stream.sealing.keys import KeyRing
from noetl_stream.storage.object_places import PlacedBlobs

if TYPE_CHECKING:
    from noetl_stream.engine.aggregates.triggers import TriggerState

Read = TypeVar("Read")

READ_S: Final = 10.0
"""The time that each reading may take."""
TOO_LONG: Final = f"took longer than {READ_S:g} s"

MOVES_S: Final = 1.0
"""The time in which a server that folds at all folds something of a partition."""

COUNTED: Final = 100
"""The bound of counts that may be large."""

MOST_TRIGGERS: Final = 1_000
"""The number of triggers that are examined, by path."""


STREAMS: Final = (EVENTS, COMMANDS, RESULTS, LOGS)
ROLE: Final = "noetl_gateway"
"""The Postgres role that the caller should be a member of, and no more."""


class DoctorPorts(NamedTuple):
    """
    Attributes:
        keys: The keys that open credentials; ``None`` if this process has none.
        on_demand: True if commands start a server here when they need one.
        postgres_max_bytes: The disk space for the database; ``None`` if it is not configured.
        watch: The observer of the growth of the stores, if there is one.
        places: The places of objects; ``None``: only NATS.
    """

    database: reports.DatabaseDiagnosis
    nats: reports.NatsDiagnosis
    store: Store
    log: EventLog
    queue: CommandQueue
    bus: Bus
    dead_letters: DeadLetters
    tokens: Tokens
    credentials: Credentials
    clock: Clock
    keys: KeyRing | None
    on_demand: bool = False
    postgres_max_bytes: int | None = None
    watch: reports.StoreUses | None = None
    places: PlacedBlobs | None = None


class Timed(NamedTuple, Generic[Read]):
    """A reading with the times of this process before and after it, ms since the epoch."""

    value: Read
    from_ms: int
    to_ms: int


class Folding(NamedTuple):
    """Unfolded inputs by partition; ``stands`` are those of which none was folded for a while."""

    behind: Mapping[int, int]
    stands: Sequence[int]


class Readings:
    """The readings, all begun at once, each awaited by every check that needs it, and raising its own error."""

    def __init__(self, ports: DoctorPorts) -> None:
        self.ports = ports
        self.now_ms = ports.clock.now_ms()
        self.watched = ports.watch.uses() if ports.watch is not None else ()
        self.database = reading("Postgres", _timed(ports.clock, ports.database.facts()))
        self.nats = reading("NATS", ports.nats.facts())
        self.schema = reading("the schema", ports.store.verify())
        self.newer = reading("the schema", ports.database.newer_migrations())
        timed_streams = (_timed(ports.clock, ports.nats.stream(name)) for name in STREAMS)
        self.streams = reading("the streams", asyncio.gather(*timed_streams))
        self.storage = reading("the storage of NATS", ports.nats.storage())
        self.unsynced = reading("EVENTS", _unsynced(ports, self.nats))
        self.warnings = reading("the settings of Postgres", ports.store.durability_warnings())
        self.excess = reading("the rights in Postgres", ports.database.excess_rights(ROLE))
        self.known = reading("the servers", ports.database.live_servers())
        self.servers = reading("the servers", _timed(ports.clock, _servers(ports, self.nats)))
        self.pools = reading("the pools", ports.queue.pools())
        self.workers = reading("the workers", _timed(ports.clock, _workers(ports, self.pools)))
        self.partitions = reading("the partitions", ports.store.read_partitions())
        self.folding = reading("the fold", _folding(ports))
        self.living = reading("the executions", ports.store.living_by_status())
        self.stuck = reading("the executions", ports.store.stuck(COUNTED))
        self.letters = reading("the dead letters", ports.dead_letters.page(COUNTED, None))
        self.held_letters = reading("the dead letters", ports.dead_letters.held())
        self.triggers = reading("the triggers", _triggers(ports.store))
        self.credentials = reading("the credentials", ports.credentials.list_all())
        self.tokens = reading("the tokens", ports.tokens.list_all())
        self.places = reading("the objects", _places(ports))

    async def close(self) -> None:
        """Ends pending readings, and drops errors that no check has asked for."""
        begun = [one for one in vars(self).values() if isinstance(one, asyncio.Future)]
        await end_tasks(begun)
        for one in begun:
            if not one.cancelled():
                one.exception()


def reading(what: str, work: Awaitable[Read]) -> asyncio.Future[Read]:
    """Begins a reading; it ends in time, or raises :class:`~noetl_stream.errors.Unreachable`."""
    return asyncio.ensure_future(_in_time(what, work))


async def _in_time(what: str, work: Awaitable[Read]) -> Read:
    try:
        return await asyncio.wait_for(work, READ_S)
    except TimeoutError:
        raise Unreachable(f"reading {what} {TOO_LONG}") from None


async def _places(ports: DoctorPorts) -> str:
    return "" if ports.places is None else await ports.places.verify()


async def _timed(clock: Clock, work: Awaitable[Read]) -> Timed[Read]:
    from_ms = clock.now_ms()
    return Timed(await work, from_ms, clock.now_ms())


async def _servers(ports: DoctorPorts, nats: Awaitable[reports.NatsFacts]) -> list[MemoryUse]:
    await nats  # a user that may not ask hears no server
    return await server_uses(ports.bus)


async def _workers(ports: DoctorPorts, pools: Awaitable[list[QueuedPool]]) -> list[WorkerPresence]:
    return await workers_of(ports.bus, [pool.pool for pool in await pools])


async def _unsynced(ports: DoctorPorts, nats: Awaitable[reports.NatsFacts]) -> int:
    sync_s = (await nats).sync_s
    if not sync_s:
        return 0
    return await ports.nats.stored_since(EVENTS, int(ports.clock.now_ms() - sync_s * 1000))


async def _triggers(store: Store) -> list[TriggerState]:
    from noetl_stream.engine.aggregates.triggers import TriggerState  # most commands start faster without it

    rows = await store.list_aggregates(TRIGGER, "", MOST_TRIGGERS, None)
    return [codec.decode_as(TriggerState, row.state) for row in rows]


async def _folding(ports: DoctorPorts) -> Folding:
    """Looks twice if there is a backlog, since under load there always is."""
    before = await _behind(ports)
    if not before:
        return Folding({}, [])
    await ports.clock.sleep(MOVES_S)
    after = await _behind(ports)
    stands = [id for id, (cursor, _) in after.items() if id in before and before[id][0] == cursor]
    return Folding({id: behind for id, (_, behind) in after.items()}, stands)


async def _behind(ports: DoctorPorts) -> dict[int, tuple[int, int]]:
    """Cursor, and inputs above it, of the partitions that have any."""
    cursors = {view.id: view.last_seq for view in await ports.store.read_partitions()}
    behind = await ports.log.beyond(cursors)
    return {id: (cursors[id], count) for id, count in behind.items() if count}


log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
WINDOW_S: Final = 3_600.0
"""The growth of the last hour counts."""

LEAST_S: Final = 300.0
"""The shortest observation of growth that counts for the next hours."""


def nats_uses(streams: Iterable[reports.StreamFacts], storage: reports.NatsStorage) -> list[reports.StoreUse]:
    """Returns the use of streams, the account and nats-servers, with the known bounds."""
    found = [
        # LOGS drops its oldest lines when it is full, as it should.
        reports.StoreUse(
            "OBJECTS" if one.name == RESULTS else one.name, one.size_bytes, None if one.name == LOGS else one.max_bytes
        )
        for one in streams
        if one.exists
    ]
    return [*found, reports.StoreUse("all streams", storage.size_bytes, storage.max_bytes), *storage.servers]


def postgres_use(facts: reports.DatabaseFacts, max_bytes: int | None) -> reports.StoreUse:
    return reports.StoreUse("Postgres", facts.size_bytes, max_bytes)


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
        nats: reports.NatsDiagnosis,
        database: reports.DatabaseDiagnosis,
        stored: Callable[[], Awaitable[Mapping[str, int]]],
        clock: Clock,
        postgres_max_bytes: int | None,
    ) -> None:
        self._nats = nats
        self._database = database
        self._stored = stored
        self._clock = clock
        self._postgres_max_bytes = postgres_max_bytes
        self._last: list[reports.StoreUse] = []
        self._samples: deque[_Sample] = deque()

    async def watch(self) -> None:
        """Measures until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Measures once. A store that does not answer is left out."""
        looks = (self._look_at_nats(), self._look_at_postgres(), self._look_at_executions())
        found: list[reports.StoreUse] = []
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

    def uses(self) -> list[reports.StoreUse]:
        """Returns the last measurements, with the time to full of growing stores."""
        return [replace(one, full_in_s=self._full_in_s(one)) for one in self._last]

    async def _look_at_nats(self) -> list[reports.StoreUse]:
        streams, storage = await asyncio.gather(
            reading("the streams", asyncio.gather(*(self._nats.stream(name) for name in STREAMS))),
            reading("the storage of NATS", self._nats.storage()),
        )
        return nats_uses(streams, storage)

    async def _look_at_postgres(self) -> list[reports.StoreUse]:
        facts = await reading("Postgres", self._database.facts())
        return [postgres_use(facts, self._postgres_max_bytes)]

    async def _look_at_executions(self) -> list[reports.StoreUse]:
        stored = await reading("Postgres", self._stored())
        return [reports.StoreUse("objects of executions", sum(stored.values()), None)]

    def _full_in_s(self, use: reports.StoreUse) -> float | None:
        seen = [(sample.at_s, sample.bytes[use.name]) for sample in self._samples if use.name in sample.bytes]
        (from_s, first), (to_s, last) = seen[0], seen[-1]
        if use.max_bytes is None or to_s - from_s < LEAST_S or last <= first:
            return None
        return max(0.0, (use.max_bytes - last) * (to_s - from_s) / (last - first))
