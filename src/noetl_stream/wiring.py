"""Wiring: the only module that connects adapters to roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.postgres.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.client.executions.submit import Client, Requests
from noetl_stream.concurrency import Deferred
from noetl_stream.endpoint import Endpoint, process_name
from noetl_stream.errors import UsageError
from noetl_stream.ports.sealed_blobs import SealedBlobs
from noetl_stream.ports.signed_requests import RequestSigner
from noetl_stream.sealing.keys import KEY_HINT, KeyRing, key_ring
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.settings.environment import (
    ACCESS_KEY_VARIABLE,
    DEFAULT_WORKER_DRAIN_S,
    NATS_URL_VARIABLE,
    POSTGRES_VARIABLE,
    SERVER_KEY_VARIABLE,
    Settings,
)

if TYPE_CHECKING:  # each command imports what it uses: one that reads Postgres takes a third of the time
    from noetl_stream.adapters.nats.blobs import NatsBlobs
    from noetl_stream.adapters.nats.bus import NatsBus
    from noetl_stream.adapters.nats.command_queue import NatsCommandQueue
    from noetl_stream.adapters.nats.connection import NatsConnection
    from noetl_stream.adapters.nats.event_log import NatsEventLog
    from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
    from noetl_stream.client.access import Recorded
    from noetl_stream.client.executions.prepare import CheckedText, PlaybookChecker
    from noetl_stream.client.executions.redacted import UsedSecrets
    from noetl_stream.gateway.gateway import Gateway
    from noetl_stream.playbook.kinds.spec import Kinds
    from noetl_stream.ports.blobs import Blobs
    from noetl_stream.ports.bus import Bus
    from noetl_stream.ports.command_queue import CommandQueue
    from noetl_stream.ports.cursors import Repair
    from noetl_stream.ports.event_log import EventLog
    from noetl_stream.ports.operations.access import Access
    from noetl_stream.ports.operations.cluster import Cluster
    from noetl_stream.ports.operations.credentials import CredentialStore
    from noetl_stream.ports.operations.executions import Executions
    from noetl_stream.ports.operations.feed import Feed
    from noetl_stream.ports.operations.playbooks import Playbooks
    from noetl_stream.ports.task_logs import TaskLogs
    from noetl_stream.server.recovery import Restored
    from noetl_stream.server.server import Server
    from noetl_stream.telemetry.measures import Reading, Role
    from noetl_stream.tools.contract import Tool
    from noetl_stream.tools.registry import ToolClass
    from noetl_stream.worker.playbooks import PlanClient
    from noetl_stream.worker.worker import Worker

COMMAND_WAIT_S: Final = 2.0
"""Commands report soon that NATS does not answer; a role, which may be starting beside it, waits longer."""

ROLE_WAIT_S: Final = 5.0


class NatsPorts(msgspec.Struct, frozen=True):
    """An open connection to NATS with its ports: all that a worker has."""

    nats: NatsConnection
    log: NatsEventLog
    queue: NatsCommandQueue
    bus: NatsBus
    blobs: NatsBlobs
    task_logs: NatsTaskLogs
    clock: SystemClock

    def readings(self) -> Sequence[Reading]:
        """What the connection measures."""
        from noetl_stream.adapters.nats.readings import nats_readings

        return nats_readings(self.nats, self.log, self.queue, self.blobs)

    async def close(self) -> None:
        """Closes everything, in reverse order of opening."""
        await self.task_logs.close()
        await self.blobs.close()
        await self.queue.close()
        await self.log.close()
        await self.nats.close()


class OperatorPorts(msgspec.Struct, frozen=True):
    """The ports of a command: over Postgres, which is connected, and over NATS, which may be when it is first used.

    Attributes:
        blobs: Objects as they are stored; :attr:`objects` opens and seals them.
        access_keys: ``None`` if the endpoint has none, as that of an admin.
    """

    log: EventLog
    queue: CommandQueue
    bus: Bus
    blobs: Blobs
    task_logs: TaskLogs
    clock: SystemClock
    store: PostgresStore
    access_keys: KeyRing | None

    @property
    def is_connected(self) -> bool:
        """Whether the connection to NATS, if there is one, is not lost at the moment."""
        return True

    @property
    def requests(self) -> Requests:
        """Signed with the access key.

        Raises:
            UsageError: there is none.
        """
        return Requests(self.log, RequestSigner(_needed(self.access_keys, ACCESS_KEY_VARIABLE)))

    @property
    def objects(self) -> SealedBlobs:
        """The objects of all executions. Raises like :attr:`requests`."""
        return SealedBlobs(self.blobs, DerivedKeys(_needed(self.access_keys, ACCESS_KEY_VARIABLE)))


class Connected(OperatorPorts, frozen=True):
    """Open connections to NATS and Postgres with their ports."""

    opened: NatsPorts

    @property
    def nats(self) -> NatsConnection:
        return self.opened.nats

    @property
    def is_connected(self) -> bool:
        return self.nats.is_connected

    async def close(self) -> None:
        """Closes everything, in reverse order of opening."""
        await self.opened.close()
        await self.store.close()


async def connect_to_nats(endpoint: Endpoint, *, name: str, nats_wait_s: float = ROLE_WAIT_S) -> NatsPorts:
    """Connects to NATS alone. Arguments and errors: as of :func:`connect`."""
    from noetl_stream.adapters.nats.blobs import NatsBlobs
    from noetl_stream.adapters.nats.bus import NatsBus
    from noetl_stream.adapters.nats.command_queue import NatsCommandQueue
    from noetl_stream.adapters.nats.event_log import NatsEventLog
    from noetl_stream.adapters.nats.task_logs import NatsTaskLogs

    nats = await _open_nats(endpoint, name, nats_wait_s)
    clock = SystemClock()
    log = await NatsEventLog.open(nats, clock)
    queue = await NatsCommandQueue.open(nats)
    blobs = await NatsBlobs.open(nats, clock)
    logs = await NatsTaskLogs.open(nats)
    return NatsPorts(nats=nats, log=log, queue=queue, bus=NatsBus(nats), blobs=blobs, task_logs=logs, clock=clock)


async def connect(endpoint: Endpoint, *, name: str, nats_wait_s: float = ROLE_WAIT_S) -> Connected:
    """Connects to NATS and Postgres.

    Args:
        name: The client's name shown by NATS and Postgres.
        nats_wait_s: How long to retry a NATS that does not answer.

    Raises:
        Unreachable: one of them does not answer; the message says which.
        UsageError: NOETL_POSTGRES_DSN is not set.
    """
    dsn = _required_dsn(endpoint)
    ports = await connect_to_nats(endpoint, name=name, nats_wait_s=nats_wait_s)
    try:
        store = await PostgresStore.open(dsn, name=name)
    except BaseException:
        await ports.close()
        raise
    return Connected(
        log=ports.log,
        queue=ports.queue,
        bus=ports.bus,
        blobs=ports.blobs,
        task_logs=ports.task_logs,
        clock=ports.clock,
        store=store,
        access_keys=key_ring(endpoint.access_keys, ACCESS_KEY_VARIABLE),
        opened=ports,
    )


@asynccontextmanager
async def connected_when_used(endpoint: Endpoint, *, name: str) -> AsyncIterator[OperatorPorts]:
    """Connects to Postgres, and to NATS when it is first used. Errors: as of :func:`connect`."""
    store = await PostgresStore.open(_required_dsn(endpoint), name=name)
    nats = Deferred(lambda: connect_to_nats(endpoint, name=name, nats_wait_s=COMMAND_WAIT_S))
    try:
        yield OperatorPorts(
            log=nats.part("log"),
            queue=nats.part("queue"),
            bus=nats.part("bus"),
            blobs=nats.part("blobs"),
            task_logs=nats.part("task_logs"),
            clock=SystemClock(),
            store=store,
            access_keys=key_ring(endpoint.access_keys, ACCESS_KEY_VARIABLE),
        )
    finally:
        await nats.close()
        await store.close()


async def _open_nats(endpoint: Endpoint, name: str, wait_s: float) -> NatsConnection:
    from noetl_stream.adapters.nats.connection import NatsConnection

    return await NatsConnection.open(
        endpoint.nats_url,
        name=name,
        nkey=endpoint.nats_nkey,
        identity=endpoint.identity,
        connect_timeout_s=wait_s,
    )


def _required_dsn(endpoint: Endpoint) -> str:
    if endpoint.postgres_dsn is None:
        hint = "set both for your own servers, or neither; only workers need no Postgres"
        raise UsageError(f"{NATS_URL_VARIABLE} is set, but {POSTGRES_VARIABLE} is not", hint=hint)
    return endpoint.postgres_dsn


async def migrate_schema(endpoint: Endpoint, *, roles: bool = False) -> list[str]:
    """Creates or upgrades the schema, and with ``roles`` the roles; returns the names of the migrations applied."""
    return await migrate(_required_dsn(endpoint), roles=roles)


async def ensure_all_streams(endpoint: Endpoint, *, replicas: int = 1) -> list[str]:
    """Creates or updates the streams; returns a line per change."""
    from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams

    nats = await _open_nats(endpoint, "noetl-prepare", COMMAND_WAIT_S)
    try:
        kept = endpoint.retention
        logs = LogsBounds(kept.logs_max_bytes, kept.logs_max_age_s)
        return await ensure_streams(nats, replicas=replicas, logs=logs)
    finally:
        await nats.close()


async def reconcile_stream(endpoint: Endpoint) -> list[Repair]:
    """Repairs the cursors of partitions after EVENTS has lost messages; returns the repairs."""
    from noetl_stream.server.lost_stream import reconcile_cursors

    connected = await connect(endpoint, name="noetl-reconcile", nats_wait_s=COMMAND_WAIT_S)
    try:
        await connected.store.verify()
        await connected.log.verify()
        return await reconcile_cursors(connected.log, connected.store.cursors)
    finally:
        await connected.close()


async def rebuild_database(endpoint: Endpoint) -> Restored:
    """Fills an empty Postgres from EVENTS; returns what was restored. ``endpoint`` is that of a server."""
    from noetl_stream.server.rebuild import rebuild

    connected = await connect(endpoint, name="noetl-rebuild", nats_wait_s=COMMAND_WAIT_S)
    try:
        return await rebuild(make_server(connected, endpoint))
    finally:
        await connected.close()


async def compare_stores(endpoint: Endpoint) -> list[str]:
    """What disagrees between Postgres and EVENTS, a line each."""
    from noetl_stream.server.comparison import disagreements

    connected = await connect(endpoint, name="noetl-verify", nats_wait_s=COMMAND_WAIT_S)
    try:
        await connected.store.verify()
        await connected.log.verify()
        return await disagreements(connected.log, connected.store, connected.store.cursors)
    finally:
        await connected.close()


@cache
def installed_kinds() -> Mapping[str, ToolClass]:
    """The tool kinds installed here, looked up once, so that unusable ones are reported once."""
    from noetl_stream.tools.registry import load_tools

    return load_tools()


def _installed_kinds(kinds_off: Collection[str] = ()) -> Kinds:
    from noetl_stream.tools.registry import kinds_of

    return kinds_of(installed_kinds(), kinds_off)


def make_client(connected: OperatorPorts) -> Client:
    return Client(connected.requests, connected.objects, connected.bus)


class DirectOperations:
    """The operations, executed directly on these connections. A part is imported when it is first used.

    Args:
        unanswered: Called whenever no server has answered a request, so that a command can start one.
        checked: Playbooks that were checked here already.
        audited: Whether the audit gets deletions and changes of credentials; a gateway records its calls itself.
    """

    def __init__(
        self,
        connected: OperatorPorts,
        endpoint: Endpoint,
        *,
        unanswered: Callable[[], Awaitable[None]] | None = None,
        checked: Sequence[CheckedText] = (),
        audited: bool = False,
    ) -> None:
        self._connected, self._endpoint = connected, endpoint
        self._unanswered, self._checked, self._audited = unanswered, checked, audited
        self._keys = _credential_keys(endpoint)

    @cached_property
    def executions(self) -> Executions:
        from noetl_stream.client.executions.direct import DirectExecutions, ExecutionPorts
        from noetl_stream.client.executions.logs import ExecutionLogs
        from noetl_stream.client.executions.redacted import RedactedExecutions

        given, store = self._connected, self._connected.store
        logs = ExecutionLogs(given.task_logs, self._secrets, given.clock)
        ports = ExecutionPorts(
            requests=given.requests,
            bus=given.bus,
            blobs=given.objects,
            store=store,
            catalog=store.catalog,
            clock=given.clock,
            logs=logs,
        )
        direct = DirectExecutions(ports, self._checking, self.cluster, self._unanswered, self._recorded)
        return RedactedExecutions(direct, self._secrets)

    @cached_property
    def feed(self) -> Feed:
        from noetl_stream.client.feed.live import LiveFeed

        given, store = self._connected, self._connected.store
        return LiveFeed(store, store.feed, given.bus, given.clock, self._secrets)

    @cached_property
    def playbooks(self) -> Playbooks:
        from noetl_stream.client.playbooks import DirectPlaybooks, PlaybookPorts

        given, store = self._connected, self._connected.store
        return DirectPlaybooks(PlaybookPorts(store, store.catalog, given.clock), self._checking, self._recorded)

    @cached_property
    def credentials(self) -> CredentialStore:
        from noetl_stream.client.credentials import DirectCredentials

        return DirectCredentials(self._connected.store.credentials, self._keys, self._recorded)

    @cached_property
    def cluster(self) -> Cluster:
        from noetl_stream.client.cluster import ClusterPorts, DirectCluster

        given, store = self._connected, self._connected.store
        ports = ClusterPorts(given.log, given.queue, given.bus, store, store.dead_letters, given.clock)
        return DirectCluster(ports, self._secrets)

    @cached_property
    def access(self) -> Access:
        from noetl_stream.client.access import DirectAccess

        store = self._connected.store
        return DirectAccess(store.tokens, store.audit, self._connected.clock)

    @cached_property
    def _checking(self) -> PlaybookChecker:
        from noetl_stream.client.executions.prepare import PlaybookChecker

        off = self._endpoint.tools.kinds_off
        return PlaybookChecker(lambda: _installed_kinds(off), self._endpoint.limits, self._checked)

    @cached_property
    def _recorded(self) -> Recorded:
        from noetl_stream.client.access import AuditRecord, unrecorded

        return AuditRecord(self._connected.store.audit, self._connected.clock) if self._audited else unrecorded

    @cached_property
    def _secrets(self) -> UsedSecrets:
        from noetl_stream.client.executions.redacted import UsedSecrets

        return UsedSecrets(self._connected.store.credentials, self._keys)


def _credential_keys(endpoint: Endpoint) -> KeyRing | None:
    return key_ring(endpoint.credential_keys, "a credential key")


def _needed(ring: KeyRing | None, variable: str) -> KeyRing:
    if ring is None:
        raise UsageError(f"{variable} is not set", hint=f"{KEY_HINT}; docs/how-to/own-servers.md says who needs it")
    return ring


def server_status(server: Server, connected: Connected) -> Role:
    """What a server tells probes and Prometheus."""
    from noetl_stream.server.status import ServerStatus

    return ServerStatus(server, lambda: connected.is_connected)


def make_server(connected: OperatorPorts, endpoint: Endpoint) -> Server:
    from noetl_stream.adapters.evaluation.pool import EvaluationPool
    from noetl_stream.server.capabilities import Capabilities
    from noetl_stream.server.credentials import SecretsResponder
    from noetl_stream.server.deleting import delete_kept
    from noetl_stream.server.parts import ServerPorts, StateBounds
    from noetl_stream.server.retention import Retention
    from noetl_stream.server.server import Server
    from noetl_stream.server.trimming import Trimmer
    from noetl_stream.server.upkeep import Upkeep
    from noetl_stream.settings.grants import GrantsFile

    delete = partial(delete_kept, connected.blobs, connected.task_logs)
    server_keys = _needed(key_ring(endpoint.server_keys, SERVER_KEY_VARIABLE), SERVER_KEY_VARIABLE)
    access_keys, store = _needed(connected.access_keys, ACCESS_KEY_VARIABLE), connected.store
    ports = ServerPorts(
        log=connected.log,
        queue=connected.queue,
        store=store,
        blobs=connected.objects,
        task_logs=connected.task_logs,
        bus=connected.bus,
        clock=connected.clock,
        catalog=store.catalog,
        evaluator=EvaluationPool(),
        capabilities=Capabilities(server_keys, access_keys),
        signer=RequestSigner(access_keys),
        secrets=SecretsResponder(
            store.credentials, store.audit, connected.clock, _credential_keys(endpoint), endpoint.credentials
        ),
        grants=GrantsFile(endpoint.grants_file) if endpoint.grants_file is not None else None,
        upkeep=Upkeep(
            connected.clock,
            feed=store.feed,
            trimmer=Trimmer(connected.log, store, store.cursors, store.retention, connected.clock, endpoint.retention),
            retention=Retention(store, store.retention, delete, connected.clock, endpoint.retention.rules),
        ),
    )
    states = StateBounds(max_bytes=endpoint.max_state_bytes)
    return Server(process_name("server"), ports, _installed_kinds(), limits=endpoint.limits, states=states)


LOADED: Final[Mapping[str, Sequence[str]]] = {
    "server": ("adapters.nats.event_log", "adapters.evaluation.pool", "server.server"),
    "worker": ("adapters.nats.event_log", "worker.worker"),
}
"""What :func:`make_server` and :func:`make_worker` import."""


def load(role: str) -> None:
    """Imports what a role needs, for a process that cannot connect yet. Does nothing for others than those above."""
    if role not in LOADED:
        return
    from noetl_stream.tools.registry import installed_tools

    for module in LOADED[role]:
        import_module(f"noetl_stream.{module}")
    installed_tools()  # :func:`installed_kinds` reports those that are unusable, once logging is set up


class HostedWorker(msgspec.Struct, frozen=True):
    """A worker with its own resources; ``show_in_logs`` ends the redaction of this process's logs."""

    worker: Worker
    tools: Mapping[str, Tool]
    plans: PlanClient
    show_in_logs: Callable[[], None]

    async def close(self) -> None:
        """Closes the worker, then its tools: their sessions, pools and child processes."""
        await self.worker.close()
        await self.plans.close()
        await asyncio.gather(*(tool.close() for tool in self.tools.values()))
        self.show_in_logs()


def worker_status(worker: Worker, connected: NatsPorts) -> Role:
    """What a worker tells probes and Prometheus."""
    from noetl_stream.worker.status import WorkerStatus

    return WorkerStatus(worker, lambda: connected.nats.is_connected)


def make_worker(
    connected: NatsPorts | Connected,
    endpoint: Endpoint,
    *,
    pool: str,
    slots: int,
    drain_s: float = DEFAULT_WORKER_DRAIN_S,
) -> HostedWorker:
    """A worker with all tool kinds installed here. ``drain_s``: how long running tasks may finish when it stops."""
    from noetl_stream.tools.registry import create_tools
    from noetl_stream.worker.playbooks import PlanClient
    from noetl_stream.worker.secrets.keychain import find_stored
    from noetl_stream.worker.secrets.redaction import hide_in_logs
    from noetl_stream.worker.worker import Worker

    tools = create_tools(installed_kinds(), endpoint.tools)
    plans = PlanClient({kind: tool.spec for kind, tool in tools.items()})
    worker = Worker(
        name=process_name("worker"),
        pool=pool,
        slots=slots,
        event_log=connected.log,
        queue=connected.queue,
        bus=connected.bus,
        blobs=connected.blobs,
        task_logs=connected.task_logs,
        clock=connected.clock,
        tools=tools,
        plans=plans,
        credentials=endpoint.credentials,
        secrets=find_stored,
        keychain_folders=endpoint.tools.keychain_folders,
        grace_s=drain_s,
    )
    return HostedWorker(worker, tools, plans, hide_in_logs(worker.keychain.redactor))


async def check_way_in(connected: OperatorPorts, settings: Settings, host: str) -> None:
    """Raises :class:`~noetl_stream.errors.UsageError` if nobody could use a gateway on ``host``."""
    from noetl_stream.gateway.access.guard import require_way_in

    tokens, now_ms = connected.store.tokens, connected.clock.now_ms()
    await require_way_in(host, tokens, now_ms, provider=settings.oidc is not None)


@asynccontextmanager
async def open_gateway(
    connected: Connected, endpoint: Endpoint, settings: Settings, host: str
) -> AsyncIterator[Gateway]:
    """A gateway.

    Args:
        host: The host it will listen on.

    Raises:
        UsageError: no one would have access.
    """
    from noetl_stream.adapters.oidc import OidcProvider, ProviderKeys
    from noetl_stream.client.cluster import DirectReadiness
    from noetl_stream.client.living import DirectLiving
    from noetl_stream.client.memory import DirectMemory
    from noetl_stream.gateway.access.authentication import Authentication
    from noetl_stream.gateway.access.network import Network
    from noetl_stream.gateway.gateway import Gateway, GatewayPorts
    from noetl_stream.tools.egress import Egress

    log, store, clock, oidc = connected.log, connected.store, connected.clock, settings.oidc
    await check_way_in(connected, settings, host)
    egress = Egress(endpoint.tools.egress)
    keys = ProviderKeys(oidc.issuer, oidc.jwks_url, clock, egress) if oidc is not None else None
    provider = OidcProvider(oidc, keys) if oidc is not None and keys is not None else None
    ports = GatewayPorts(
        operations=DirectOperations(connected, endpoint),
        idempotency=store.idempotency,
        readiness=DirectReadiness(log, store, connected.bus),
        memory=DirectMemory(connected.queue, connected.bus),
        living=DirectLiving(store, clock),
        authenticator=Authentication(store.tokens, store.sessions, clock, provider),
        sessions=store.sessions,
        audit=store.audit,
        clock=clock,
        cursor_keys=connected.access_keys,
    )
    try:
        yield Gateway(ports, settings.gateway_limits, Network(settings.gateway_hosts, settings.gateway_proxies))
    finally:
        if keys is not None:
            await keys.close()
