"""Connections to NATS and Postgres, and the ports over them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.concurrency import Deferred, closing
from noetl_stream.errors import UsageError, page
from noetl_stream.operations.executions.submit import Requests
from noetl_stream.protocol.nats_permissions import GATEWAY
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.sealing.keys import KeyRing, key_ring
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.settings.key_variables import ACCESS_KEY_VARIABLE
from noetl_stream.settings.places import OBJECTS_VARIABLE, Place
from noetl_stream.settings.servers import POSTGRES_VARIABLE, NatsSync
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.wiring.endpoint import Endpoint

if TYPE_CHECKING:  # each process imports what it uses: a command that reads takes a third of the time, and a worker
    # knows no Postgres
    from noetl_stream.adapters.files.folder import FolderFiles
    from noetl_stream.adapters.files.objects import ObjectFiles
    from noetl_stream.adapters.nats.blobs import NatsBlobs
    from noetl_stream.adapters.nats.bus import NatsBus
    from noetl_stream.adapters.nats.cluster_report import NatsOwnDiagnosis
    from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
    from noetl_stream.adapters.nats.connections.connection import NatsConnection
    from noetl_stream.adapters.nats.event_log import NatsEventLog
    from noetl_stream.adapters.nats.streams import StreamDocument
    from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
    from noetl_stream.adapters.nats.trigger_streams import NatsTriggerStreams
    from noetl_stream.adapters.postgres.store import PostgresStore
    from noetl_stream.ports.self_reports import NatsDiagnosis
    from noetl_stream.ports.stores.identities import KeptText, StoredToken
    from noetl_stream.ports.streams.blobs import Blobs
    from noetl_stream.ports.streams.bus import Bus
    from noetl_stream.ports.streams.command_queue import CommandQueue
    from noetl_stream.ports.streams.event_log import EventLog
    from noetl_stream.ports.streams.task_logs import TaskLogs
    from noetl_stream.ports.streams.trigger_streams import TriggerStreams
    from noetl_stream.telemetry.measures import Reading

SETUP_HINT: Final = (
    "`noetl-stream setup --nats URL --postgres URL` makes all that servers of your own need, in a file that commands "
    f"read; {page('own-servers')} says who needs what"
)

COMMAND_WAIT_S: Final = 2.0
"""The time for which commands wait for NATS. A role, which may start at the same time, waits longer."""

ROLE_WAIT_S: Final = 5.0

PATIENCE_S: Final = 15.0
"""The time for which a request of a gateway waits for a Postgres that fails over."""


_OF_NATS: Final = ("log", "queue", "bus", "task_logs")
_OF_NATS_IF_USED: Final = ("diagnosis", "trigger_streams")


class NatsPorts(msgspec.Struct, frozen=True):
    """An open connection to NATS with its ports: all that a worker has."""

    nats: NatsConnection
    log: NatsEventLog
    queue: NatsCommandQueue
    bus: NatsBus
    blobs: NatsBlobs
    task_logs: NatsTaskLogs
    clock: SystemClock
    sync: NatsSync

    @property
    def diagnosis(self) -> NatsOwnDiagnosis:
        """NATS's report on itself, for `doctor` alone."""
        from noetl_stream.adapters.nats.cluster_report import NatsOwnDiagnosis

        return NatsOwnDiagnosis(self.nats, self.sync)

    def readings(self) -> Sequence[Reading]:
        """Returns the metrics of the connection to NATS."""
        from noetl_stream.adapters.nats.cluster_report import nats_readings

        return nats_readings(self.nats, self.log, self.queue, self.blobs)

    def refusals(self) -> list[str]:
        """Returns the reasons for which JetStream has refused messages for a while, one line for each stream."""
        return [why for one in (self.log, self.queue, self.blobs) if (why := one.outbox.refusal())]

    @property
    def trigger_streams(self) -> NatsTriggerStreams:
        """The streams that triggers read, for servers alone."""
        from noetl_stream.adapters.nats.trigger_streams import NatsTriggerStreams

        return NatsTriggerStreams(self.nats, self.clock)

    async def close(self) -> None:
        """Closes the connection and its ports, in reverse order of opening."""
        await self.task_logs.close()
        await self.blobs.close()
        await self.queue.close()
        await self.log.close()
        await self.nats.close()


class OperatorPorts(msgspec.Struct, frozen=True):
    """The ports of a command: over Postgres, which is connected, and over NATS, which may connect on first use.

    Attributes:
        blobs: Sealed objects in all places; :attr:`objects` opens and seals them.
        access_keys: ``None`` if the endpoint has none, as an admin's.
        replica: The store to read executions from, if there is another; connected when it is first used.
    """

    log: EventLog
    queue: CommandQueue
    bus: Bus
    blobs: Blobs
    task_logs: TaskLogs
    diagnosis: NatsDiagnosis
    trigger_streams: TriggerStreams
    clock: SystemClock
    store: PostgresStore
    access_keys: KeyRing | None
    replica: Deferred[PostgresStore] | None

    @property
    def is_connected(self) -> bool:
        return True

    def refusals(self) -> list[str]:
        """Returns the reasons for which JetStream has refused messages for a while, one line for each stream."""
        return []

    @property
    def places(self) -> PlacedBlobs | None:
        """The places of objects; ``None``: only NATS."""
        return self.blobs if isinstance(self.blobs, PlacedBlobs) else None

    @property
    def requests(self) -> Requests:
        """The publisher of requests, signed with the access key.

        Raises:
            UsageError: there is no access key.
        """
        return Requests(self.log, RequestSigner(needed_keys(self.access_keys, ACCESS_KEY_VARIABLE)))

    @property
    def objects(self) -> SealedBlobs:
        """The objects of all executions. Raises like :attr:`requests`."""
        return SealedBlobs(self.blobs, self.object_keys)

    @property
    def object_keys(self) -> DerivedKeys:
        """The keys of objects. Raises like :attr:`requests`."""
        return DerivedKeys(needed_keys(self.access_keys, ACCESS_KEY_VARIABLE))


class Connected(OperatorPorts, frozen=True):
    """Open connections to NATS and Postgres with their ports."""

    opened: NatsPorts

    @property
    def nats(self) -> NatsConnection:
        return self.opened.nats

    @property
    def is_connected(self) -> bool:
        return self.nats.is_connected

    def refusals(self) -> list[str]:
        return self.opened.refusals()

    async def close(self) -> None:
        """Closes the connections and their ports, in reverse order of opening."""
        await self.opened.close()
        if self.replica is not None:
            await self.replica.close()
        await self.store.close()


async def connect_to_nats(endpoint: Endpoint, *, name: str, nats_wait_s: float = ROLE_WAIT_S) -> NatsPorts:
    """Connects to NATS alone. Arguments and errors: as of :func:`connect`."""
    from noetl_stream.adapters.nats.blobs import NatsBlobs
    from noetl_stream.adapters.nats.bus import NatsBus
    from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
    from noetl_stream.adapters.nats.event_log import NatsEventLog
    from noetl_stream.adapters.nats.task_logs import NatsTaskLogs

    nats = await open_nats(endpoint, name, nats_wait_s)
    clock = SystemClock()
    try:
        log = await NatsEventLog.open(nats, clock)
        queue = await NatsCommandQueue.open(nats)
        blobs = await NatsBlobs.open(nats, clock)
        logs = await NatsTaskLogs.open(nats)
    except BaseException:
        await nats.close()
        raise
    return NatsPorts(
        nats=nats,
        log=log,
        queue=queue,
        bus=NatsBus(nats),
        blobs=blobs,
        task_logs=logs,
        clock=clock,
        sync=endpoint.nats_sync,
    )


async def connect(endpoint: Endpoint, *, name: str, nats_wait_s: float = ROLE_WAIT_S) -> Connected:
    """Connects to NATS and Postgres.

    Args:
        name: The client's name shown by NATS and Postgres.
        nats_wait_s: The time for which to retry a NATS that does not answer.

    Raises:
        Unreachable: one of them does not answer, or refuses; the message names it.
        UsageError: the endpoint has no Postgres.
    """
    dsn = required_dsn(endpoint)
    ports = await connect_to_nats(endpoint, name=name, nats_wait_s=nats_wait_s)
    try:
        blobs = open_objects(endpoint, ports.blobs)
        store = await _open_store(dsn, endpoint, name)
    except BaseException:
        await ports.close()
        raise
    at_hand = Deferred(partial(_at_hand, ports))
    return Connected(
        **{name: getattr(ports, name) for name in _OF_NATS},
        **{name: at_hand.part(name) for name in _OF_NATS_IF_USED},
        blobs=blobs,
        clock=ports.clock,
        store=store,
        access_keys=key_ring(endpoint.access_keys, ACCESS_KEY_VARIABLE),
        replica=_replica(endpoint, name),
        opened=ports,
    )


@asynccontextmanager
async def connected_when_used(endpoint: Endpoint, *, name: str) -> AsyncIterator[OperatorPorts]:
    """Connects to Postgres now, and to NATS on first use. Errors: as for :func:`connect`."""
    store, replica = await _open_store(required_dsn(endpoint), endpoint, name), _replica(endpoint, name)
    nats = Deferred(lambda: connect_to_nats(endpoint, name=name, nats_wait_s=COMMAND_WAIT_S))
    try:
        yield OperatorPorts(
            **{name: nats.part(name) for name in (*_OF_NATS, *_OF_NATS_IF_USED)},
            blobs=open_objects(endpoint, nats.part("blobs")),
            clock=SystemClock(),
            store=store,
            access_keys=key_ring(endpoint.access_keys, ACCESS_KEY_VARIABLE),
            replica=replica,
        )
    finally:
        await nats.close()
        if replica is not None:
            await replica.close()
        await store.close()


async def _at_hand(ports: NatsPorts) -> NatsPorts:
    return ports


async def open_nats(endpoint: Endpoint, name: str, wait_s: float) -> NatsConnection:
    """A connection to NATS alone. Arguments and errors: as of :func:`connect`."""
    from noetl_stream.adapters.nats.connections.connection import NatsConnection

    return await NatsConnection.open(
        endpoint.nats_url,
        name=name,
        nkey=endpoint.nats_nkey,
        identity=endpoint.identity,
        certificate=endpoint.nats_certificate,
        connect_timeout_s=wait_s,
    )


async def _open_store(dsn: str, endpoint: Endpoint, name: str) -> PostgresStore:
    """Opens the store. Servers wait for Postgres themselves."""
    from noetl_stream.adapters.postgres.store import PostgresStore

    return await PostgresStore.open(dsn, name=name, patience_s=PATIENCE_S if endpoint.identity == GATEWAY else 0.0)


def _replica(endpoint: Endpoint, name: str) -> Deferred[PostgresStore] | None:
    from noetl_stream.adapters.postgres.store import PostgresStore

    dsn = endpoint.postgres_read_dsn
    return None if dsn is None else Deferred(lambda: PostgresStore.open(dsn, name=name))


def required_dsn(endpoint: Endpoint) -> str:
    """Returns the endpoint's DSN; raises :class:`~noetl_stream.errors.UsageError` if there is none."""
    if endpoint.postgres_dsn is None:
        raise UsageError(f"{POSTGRES_VARIABLE} is not set", hint=SETUP_HINT)
    return endpoint.postgres_dsn


async def migrate_schema(endpoint: Endpoint, *, roles: bool = False) -> list[str]:
    """Creates or upgrades the schema, and with ``roles`` the roles; returns the names of the migrations applied."""
    from noetl_stream.adapters.postgres.schema.migrate import migrate

    return await migrate(required_dsn(endpoint), roles=roles)


async def register_bootstrap_token(endpoint: Endpoint, kept: KeptText) -> StoredToken | None:
    """Calls :func:`~noetl_stream.operations.access.ensure_bootstrap_token` on the Postgres of an endpoint."""
    from noetl_stream.operations.access import ensure_bootstrap_token

    async with closing(await _open_store(required_dsn(endpoint), endpoint, "noetl-bootstrap")) as store:
        return await ensure_bootstrap_token(kept, store.tokens, store.audit, SystemClock())


async def ensure_all_streams(endpoint: Endpoint, *, replicas: int | None = None) -> list[str]:
    """Creates or updates the streams; returns a line per change. ``replicas`` is the endpoint's by default."""
    from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams

    async with closing(await open_nats(endpoint, "noetl-prepare", COMMAND_WAIT_S)) as nats:
        kept = endpoint.retention
        logs = LogsBounds(kept.logs_max_bytes, kept.logs_max_age_s)
        spread = endpoint.spread
        return await ensure_streams(nats, replicas=replicas or spread.replicas, tags=spread.tags, logs=logs)


async def list_streams(endpoint: Endpoint) -> list[StreamDocument]:
    """Lists the existing streams, and the nats-servers of their copies."""
    from noetl_stream.adapters.nats.streams import list_streams

    async with closing(await open_nats(endpoint, "noetl-streams", COMMAND_WAIT_S)) as nats:
        return await list_streams(nats)


def needed_keys(ring: KeyRing | None, variable: str) -> KeyRing:
    if ring is None:
        raise UsageError(f"{variable} is not set", hint=SETUP_HINT)
    return ring


def open_files(place: Place) -> FolderFiles | ObjectFiles:
    """Opens a folder or object storage by its address.

    Raises:
        UsageError: the address is of object storage, and the extra ``objects`` is not installed or a variable of it is
            invalid.
    """
    if isinstance(place, Path):
        from noetl_stream.adapters.files.folder import FolderFiles

        return FolderFiles(place)
    with _extra_needed(str(place)):
        from noetl_stream.adapters.files.objects import ObjectFiles
    return ObjectFiles(place)


def open_objects(endpoint: Endpoint, nats: Blobs) -> Blobs:
    """Opens the places of objects, including NATS. Raises the errors of :func:`open_files`."""
    if not endpoint.objects:
        return nats
    with _extra_needed(OBJECTS_VARIABLE):
        from noetl_stream.adapters.files.object_places import ObjectPlace
    return PlacedBlobs(nats, [None if place is None else ObjectPlace(place) for place in endpoint.objects])


@contextmanager
def _extra_needed(what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{what} needs {error.name}", hint="install noetl-stream[objects]") from None
