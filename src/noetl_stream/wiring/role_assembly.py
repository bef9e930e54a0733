"""Makes servers, workers and gateways on connected stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from noetl_stream import __version__
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER, WORKER
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.sealing.keys import key_ring
from noetl_stream.settings.key_variables import ACCESS_KEY_VARIABLE, SERVER_KEY_VARIABLE
from noetl_stream.settings.places import Place
from noetl_stream.settings.sources.environment import DEFAULT_WORKER_DRAIN_S, Settings
from noetl_stream.wiring.endpoint import Endpoint, maker, process_name
from noetl_stream.wiring.operations import DirectOperations, credential_keys, grants_of, installed_kinds, kinds_without
from noetl_stream.wiring.stores import Connected, NatsPorts, OperatorPorts, needed_keys, open_files, required_dsn

if TYPE_CHECKING:  # each command imports what it uses: one that reads Postgres takes a third of the time
    from noetl_stream.adapters.object_addresses import AddressedObjects
    from noetl_stream.gateway.gateway import Gateway
    from noetl_stream.ports.operations import Operations
    from noetl_stream.ports.stores.retention import Archiver
    from noetl_stream.server.server import Server
    from noetl_stream.server.upkeep.expiry import Retention
    from noetl_stream.tools.contract import Tool
    from noetl_stream.worker.child_playbooks import PlanClient
    from noetl_stream.worker.worker import Worker


def make_server(connected: OperatorPorts, endpoint: Endpoint) -> Server:
    from noetl_stream.adapters.evaluation.pool import EvaluationPool
    from noetl_stream.adapters.lineage_receiver import HttpLineageReceiver
    from noetl_stream.adapters.trace_exporter import open_tracing
    from noetl_stream.server.answers.capabilities import Capabilities
    from noetl_stream.server.answers.credential_values import SecretsResponder
    from noetl_stream.server.assembly import ServerPorts, StateBounds
    from noetl_stream.server.journal_records import disagreements
    from noetl_stream.server.server import Server
    from noetl_stream.server.upkeep.bundles import BundleSweeper
    from noetl_stream.server.upkeep.holes import HoleFinder
    from noetl_stream.server.upkeep.log_shares import LogTrimmer
    from noetl_stream.server.upkeep.upkeep import QueueSweeper, Trimmer, Upkeep

    server_keys = needed_keys(key_ring(endpoint.server_keys, SERVER_KEY_VARIABLE), SERVER_KEY_VARIABLE)
    access_keys, store = needed_keys(connected.access_keys, ACCESS_KEY_VARIABLE), connected.store
    name = process_name(SERVER)
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
        capabilities=Capabilities(server_keys, access_keys, by_address=connected.places is not None),
        signer=RequestSigner(access_keys),
        rights=store.rights,
        tracing=open_tracing(endpoint.traces, SERVER, name),
        lineage=None if endpoint.lineage is None else HttpLineageReceiver(endpoint.lineage),
        secrets=SecretsResponder(
            store.credentials, store.audit, connected.clock, credential_keys(endpoint), endpoint.credentials
        ),
        grants=grants_of(endpoint, store),
        upkeep=Upkeep(
            connected.clock,
            feed=store.feed,
            letters=store.dead_letters,
            sweeper=QueueSweeper(connected.queue, store),
            log_trimmer=LogTrimmer(connected.task_logs),
            trimmer=Trimmer(connected.log, store, store.cursors, store.retention, connected.clock, endpoint.retention),
            holes=HoleFinder(connected.log, store, store.cursors, store.retention, store.dead_letters, connected.clock),
            compare=partial(disagreements, connected.log, store, store.cursors),
            bundles=BundleSweeper(store.catalog, connected.blobs, connected.clock),
            retention=make_retention(connected, endpoint),
        ),
        trigger_streams=connected.trigger_streams,
        open_streams=endpoint.trigger_streams,
        trigger_rates=endpoint.trigger_rates,
        page_url=endpoint.page_url,
        pool_labels=endpoint.pool_labels,
        max_stored_bytes=endpoint.retention.namespace_max_stored_bytes,
        refusals=connected.refusals,
        places=connected.places,
    )
    states = StateBounds(max_bytes=endpoint.max_state_bytes)
    return Server(name, ports, kinds_without(), limits=endpoint.limits, states=states)


def make_retention(connected: OperatorPorts, endpoint: Endpoint) -> Retention:
    from noetl_stream.server.answers.responder import delete_kept
    from noetl_stream.server.upkeep.expiry import Retention

    store, kept = connected.store, endpoint.retention
    delete = partial(delete_kept, connected.blobs, connected.task_logs)
    archiver = _make_archiver(connected, endpoint, kept.archive) if kept.archive is not None else None
    return Retention(store, store.retention, delete, connected.clock, kept.rules, archiver)


def _make_archiver(connected: OperatorPorts, endpoint: Endpoint, place: Place) -> Archiver:
    from noetl_stream.adapters.archive import ParquetArchive, month_of
    from noetl_stream.adapters.postgres.connections.database import shown_address
    from noetl_stream.operations.executions.archiving import ExecutionArchiver

    keys = endpoint.retention.archive_keys
    # With keys, only signed files are trusted: the contents of a planted one would be deleted without being archived.
    has_keys = bool(keys.signing_key or keys.trusted_keys)
    origin = f"made by {maker()} with release {__version__}, from {shown_address(required_dsn(endpoint))}"
    files = ParquetArchive(open_files(place), replace(keys, accepts_unsigned=not has_keys), origin)
    return ExecutionArchiver(DirectOperations(connected, endpoint).executions, files, month_of)


class HostedWorker(msgspec.Struct, frozen=True):
    """A worker with its own resources; ``show_in_logs`` ends the redaction of this process's logs."""

    worker: Worker
    tools: Mapping[str, Tool]
    plans: PlanClient
    objects: AddressedObjects
    show_in_logs: Callable[[], None]

    async def close(self) -> None:
        """Closes the worker, then its tools: their sessions, pools and child processes."""
        await self.worker.close()
        await self.plans.close()
        await self.objects.close()
        await asyncio.gather(*(tool.close() for tool in self.tools.values()))
        self.show_in_logs()


def make_worker(
    connected: NatsPorts | Connected,
    endpoint: Endpoint,
    *,
    pool: str,
    slots: int,
    drain_s: float = DEFAULT_WORKER_DRAIN_S,
    confinement: str = "",
) -> HostedWorker:
    """Makes a worker with all tool kinds installed here.

    Args:
        drain_s: The time in which its running tasks may finish.
        confinement: The level of confinement that it reports.
    """
    from noetl_stream.adapters.object_addresses import AddressedObjects
    from noetl_stream.adapters.trace_exporter import open_tracing
    from noetl_stream.tools.registry import create_tools
    from noetl_stream.worker.child_playbooks import PlanClient
    from noetl_stream.worker.secrets.keychain import find_stored
    from noetl_stream.worker.secrets.redaction import hide_in_logs
    from noetl_stream.worker.worker import Worker

    tools = create_tools(installed_kinds(), endpoint.tools)
    plans = PlanClient({kind: tool.spec for kind, tool in tools.items()})
    name, objects = process_name(WORKER), AddressedObjects()
    worker = Worker(
        name=name,
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
        max_result_bytes=endpoint.tools.max_result_bytes,
        grace_s=drain_s,
        confinement=confinement,
        network=endpoint.tools.children.network,
        tracing=open_tracing(endpoint.traces, WORKER, name),
        objects=objects,
    )
    return HostedWorker(worker, tools, plans, objects, hide_in_logs(worker.keychain.redactor))


async def check_way_in(connected: OperatorPorts, settings: Settings, host: str) -> None:
    """Raises :class:`~noetl_stream.errors.UsageError` if nobody could use a gateway on ``host``."""
    from noetl_stream.gateway.access.guard import require_way_in

    tokens, now_ms = connected.store.tokens, connected.clock.now_ms()
    await require_way_in(host, tokens, now_ms, provider=settings.oidc is not None)


@asynccontextmanager
async def open_gateway(
    connected: Connected, endpoint: Endpoint, settings: Settings, host: str
) -> AsyncIterator[Gateway]:
    """Makes a gateway on connected stores.

    Args:
        host: The host that the gateway will listen on.

    Raises:
        UsageError: no one would have access.
    """
    from noetl_stream.adapters.evaluation.pool import EvaluationPool
    from noetl_stream.adapters.oidc import OidcProvider, ProviderKeys
    from noetl_stream.adapters.trace_exporter import open_tracing
    from noetl_stream.gateway.access.authentication import Authentication, Network
    from noetl_stream.gateway.gateway import Gateway, GatewayPorts
    from noetl_stream.operations.cluster import DirectLiving, DirectMemory, DirectReadiness
    from noetl_stream.operations.doctor.readings import StoreWatch
    from noetl_stream.tools.egress import Egress

    log, store, clock, oidc = connected.log, connected.store, connected.clock, settings.oidc
    await check_way_in(connected, settings, host)
    grants = grants_of(endpoint, store)
    await grants.refresh()
    egress = Egress(endpoint.tools.egress)
    keys = ProviderKeys(oidc.issuer, oidc.jwks_url, clock, egress) if oidc is not None else None
    provider = OidcProvider(oidc, keys) if oidc is not None and keys is not None else None
    evaluator = EvaluationPool()
    tracing = open_tracing(endpoint.traces, GATEWAY, process_name(GATEWAY))
    watch = StoreWatch(connected.diagnosis, store.diagnosis, store.stored_by_path, clock, endpoint.postgres_max_bytes)
    operations = DirectOperations(connected, endpoint, evaluator=evaluator, watch=watch)
    ports = GatewayPorts(
        operations=cast("Operations", operations),
        indexes=operations.indexes,
        idempotency=store.idempotency,
        readiness=DirectReadiness(log, store, connected.bus),
        memory=DirectMemory(connected.queue, connected.bus),
        living=DirectLiving(store, store.dead_letters, clock),
        authenticator=Authentication(store.tokens, store.sessions, clock, provider),
        sessions=store.sessions,
        audit=store.audit,
        clock=clock,
        grants=grants,
        tracing=tracing,
        stores=watch,
    )
    try:
        network = Network(settings.gateway_hosts, settings.gateway_proxies)
        yield Gateway(ports, settings.gateway_limits, network, settings.gateway_mcp)
    finally:
        await evaluator.close()
        if tracing is not None:
            await tracing.close()
        if keys is not None:
            await keys.close()
