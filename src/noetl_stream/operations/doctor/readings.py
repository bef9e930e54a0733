"""The readings of all checks, made once and at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import Unreachable
from noetl_stream.model.aggregates import TRIGGER
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WorkerPresence
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.operations.presence import server_uses, workers_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.self_reports import (
    DatabaseDiagnosis,
    DatabaseFacts,
    NatsDiagnosis,
    NatsFacts,
    NatsStorage,
    StoreUses,
    StreamFacts,
)
from noetl_stream.ports.stores.credentials import CredentialInfo, Credentials
from noetl_stream.ports.stores.dead_letters import DeadLetter, DeadLetters, HeldLetters
from noetl_stream.ports.stores.identities import StoredToken, Tokens
from noetl_stream.ports.stores.store import KnownServer, PartitionView, Store
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

    database: DatabaseDiagnosis
    nats: NatsDiagnosis
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
    watch: StoreUses | None = None
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


class Readings(NamedTuple):
    """The readings, each awaited by every check that needs it, and raising its own error."""

    database: asyncio.Future[Timed[DatabaseFacts]]
    nats: asyncio.Future[NatsFacts]
    schema: asyncio.Future[None]
    newer: asyncio.Future[list[str]]
    streams: asyncio.Future[list[Timed[StreamFacts]]]
    storage: asyncio.Future[NatsStorage]
    unsynced: asyncio.Future[int]
    warnings: asyncio.Future[list[str]]
    excess: asyncio.Future[list[str]]
    known: asyncio.Future[list[KnownServer]]
    servers: asyncio.Future[Timed[list[MemoryUse]]]
    workers: asyncio.Future[Timed[list[WorkerPresence]]]
    pools: asyncio.Future[list[QueuedPool]]
    partitions: asyncio.Future[list[PartitionView]]
    folding: asyncio.Future[Folding]
    living: asyncio.Future[dict[ExecutionStatus, int]]
    stuck: asyncio.Future[list[str]]
    letters: asyncio.Future[list[DeadLetter]]
    held_letters: asyncio.Future[HeldLetters]
    triggers: asyncio.Future[list[TriggerState]]
    credentials: asyncio.Future[list[CredentialInfo]]
    tokens: asyncio.Future[list[StoredToken]]
    places: asyncio.Future[str]

    async def close(self) -> None:
        """Ends pending readings, and drops errors that no check has asked for."""
        await end_tasks(list(self))
        for one in self:
            if not one.cancelled():
                one.exception()


def begin(ports: DoctorPorts) -> Readings:
    """Begins all readings."""
    pools, nats = reading("the pools", ports.queue.pools()), reading("NATS", ports.nats.facts())
    return Readings(
        database=reading("Postgres", _timed(ports.clock, ports.database.facts())),
        nats=nats,
        schema=reading("the schema", ports.store.verify()),
        newer=reading("the schema", ports.database.newer_migrations()),
        streams=reading(
            "the streams", asyncio.gather(*(_timed(ports.clock, ports.nats.stream(name)) for name in STREAMS))
        ),
        storage=reading("the storage of NATS", ports.nats.storage()),
        unsynced=reading("EVENTS", _unsynced(ports, nats)),
        warnings=reading("the settings of Postgres", ports.store.durability_warnings()),
        excess=reading("the rights in Postgres", ports.database.excess_rights(ROLE)),
        known=reading("the servers", ports.database.live_servers()),
        servers=reading("the servers", _timed(ports.clock, _servers(ports, nats))),
        workers=reading("the workers", _timed(ports.clock, _workers(ports, pools))),
        pools=pools,
        partitions=reading("the partitions", ports.store.read_partitions()),
        folding=reading("the fold", _folding(ports)),
        living=reading("the executions", ports.store.living_by_status()),
        stuck=reading("the executions", ports.store.stuck(COUNTED)),
        letters=reading("the dead letters", ports.dead_letters.page(COUNTED, None)),
        held_letters=reading("the dead letters", ports.dead_letters.held()),
        triggers=reading("the triggers", _triggers(ports.store)),
        credentials=reading("the credentials", ports.credentials.list_all()),
        tokens=reading("the tokens", ports.tokens.list_all()),
        places=reading("the objects", _places(ports)),
    )


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


async def _servers(ports: DoctorPorts, nats: Awaitable[NatsFacts]) -> list[MemoryUse]:
    await nats  # a user that may not ask hears no server
    return await server_uses(ports.bus)


async def _workers(ports: DoctorPorts, pools: Awaitable[list[QueuedPool]]) -> list[WorkerPresence]:
    return await workers_of(ports.bus, [pool.pool for pool in await pools])


async def _unsynced(ports: DoctorPorts, nats: Awaitable[NatsFacts]) -> int:
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
