"""The gateway role: its route table; it listens, serves, polls the backlog of the servers, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from noetl_stream import __version__
from noetl_stream.concurrency import end_tasks, first_done, let_loop_switch_soon
from noetl_stream.errors import UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.authentication import Network, SignIns
from noetl_stream.gateway.access.guard import AccessGuard
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.gateway.http.budgets import MeteredThreads
from noetl_stream.gateway.http.connections import HttpConnection, HttpConnections
from noetl_stream.gateway.http.idempotency import IdempotentCalls
from noetl_stream.gateway.http.inputs import BodyReader
from noetl_stream.gateway.http.openapi import openapi_of
from noetl_stream.gateway.http.pressure import Pressure
from noetl_stream.gateway.http.routes import AnyRoute, routes_of
from noetl_stream.gateway.http.serving import RequestTraces, Serving, connection_of
from noetl_stream.gateway.metrics import Metrics
from noetl_stream.gateway.page_files import ASSET, VIEWS, read_page
from noetl_stream.gateway.resources import agents, ctx, executions, interventions, playbooks, session, streams
from noetl_stream.gateway.resources.system import system_routes
from noetl_stream.gateway.status_report import GatewayStatus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.self_reports import StoreUses
from noetl_stream.ports.stores.idempotency import Idempotency, KeptIndexes, LivingExecutions, Memory, Readiness
from noetl_stream.ports.stores.identities import Audit, Authenticator, Sessions
from noetl_stream.ports.traces import Tracing
from noetl_stream.settings.gateway_settings import AgentAccess, GatewayLimits
from noetl_stream.settings.grants import GrantsSource
from noetl_stream.storage.grants import keep_fresh

log = logging.getLogger(__name__)


connection_log = log.getChild("connection")

BACKLOG: Final = 128
"""Connections that the system holds until they are accepted."""

BY_ADDRESS: Final = Network()
"""The network of a gateway that is called by IP addresses and ``localhost`` only, without a proxy."""


class GatewayPorts(NamedTuple):
    operations: Operations
    indexes: KeptIndexes
    idempotency: Idempotency
    readiness: Readiness
    memory: Memory
    living: LivingExecutions
    authenticator: Authenticator
    sessions: Sessions
    audit: Audit
    clock: Clock
    grants: GrantsSource | None = None
    tracing: Tracing | None = None
    stores: StoreUses | None = None


class Gateway:
    """
    Args:
        agents: The settings of tools for agents at ``/mcp``.
    """

    def __init__(
        self,
        ports: GatewayPorts,
        limits: GatewayLimits,
        network: Network = BY_ADDRESS,
        agents: AgentAccess = "read",
    ) -> None:
        self._ending = asyncio.Event()
        self._drain_s, self._stop_delay_s = limits.drain_s, limits.stop_delay_s
        self._stopping: asyncio.TimerHandle | None = None
        metrics = Metrics()
        self.connections = HttpConnections(limits, metrics, connection_log, network.trusts)
        self.pressure = pressure = Pressure(limits, ports.operations.cluster, ports.clock, metrics)
        self._auditor = auditor = Auditor(
            ports.audit, ports.clock, keep_days=limits.audit_days, count_left_out=metrics.left_out
        )
        self._bodies = BodyReader()
        once = IdempotentCalls(ports.idempotency, ports.clock)
        serving = Serving(
            operations=ports.operations,
            sign_ins=SignIns(ports.sessions, ports.clock),
            scopes=Scopes(ports.grants),
            guard=AccessGuard(network, ports.authenticator, auditor, ports.clock),
            once=once,
            bodies=self._bodies,
            auditor=auditor,
            pressure=pressure,
            metrics=metrics,
            limits=limits,
            clock=ports.clock,
            agents=agents,
            traces=RequestTraces(ports.tracing, ports.clock),
        )
        self.status = GatewayStatus(
            metrics=metrics,
            pressure=pressure,
            indexes=ports.indexes,
            cluster=ports.operations.cluster,
            living=ports.living,
            memory=ports.memory,
            readiness=ports.readiness,
            clock=ports.clock,
            tracing=ports.tracing,
            is_ending=lambda: self.connections.closing,
            stores=ports.stores,
        )
        self._application = make_application(serving, self.status)
        self._lasting = [pressure.watch, once.forget_old, auditor.refusals.record_left_out, auditor.trim]
        if ports.grants is not None:
            self._lasting.append(partial(keep_fresh, ports.grants, ports.clock))
        if ports.stores is not None:
            self._lasting.append(ports.stores.watch)

    def drain(self) -> None:
        """Lets callers go elsewhere, then stops: the gateway is not ready, and each answer closes its connection, while
        new ones are accepted for ``stop_delay_s``. A second call stops at once.
        """
        if self._stopping is not None or not self._stop_delay_s:
            self.stop()
        else:
            self.connections.closing = True
            self._stopping = asyncio.get_running_loop().call_later(self._stop_delay_s, self.stop)

    def stop(self) -> None:
        """Begins an orderly stop: no new requests, waits end early."""
        if self._stopping is not None:
            self._stopping.cancel()
        self._ending.set()
        self.connections.end()

    async def run(
        self, host: str, port: int, listening: asyncio.Future[str] | None = None, accepting: socket.socket | None = None
    ) -> None:
        """Serves until :meth:`stop`, then until all requests under way are answered.

        Args:
            port: 0 for any free port.
            listening: Receives the address once requests are accepted.
            accepting: A listening socket to use instead of ``host`` and ``port``.

        Raises:
            UsageError: it cannot listen there.
        """
        asyncio.get_running_loop().set_default_executor(MeteredThreads())
        let_loop_switch_soon()
        runner = web.AppRunner(self._application, shutdown_timeout=self._drain_s)
        await runner.setup()
        assert runner.server is not None
        tasks = [asyncio.create_task(lasting()) for lasting in self._lasting]
        try:
            make_connection = partial(self.connections.make, runner.server)
            async with _listening(make_connection, host, port, accepting) as url:
                log.info("listening on %s", url)
                if listening is not None:
                    listening.set_result(url)
                for task in await first_done(tasks, self._ending.wait()):
                    task.result()
        finally:
            self.stop()
            await end_tasks(tasks)
            await runner.cleanup()
            await self._auditor.refusals.finish_sample()
            self._bodies.close()


@asynccontextmanager
async def _listening(
    make_connection: Callable[[], HttpConnection], host: str, port: int, accepting: socket.socket | None
) -> AsyncIterator[str]:
    """Accepts connections; yields the address."""
    loop = asyncio.get_running_loop()
    try:
        if accepting is None:
            server = await loop.create_server(make_connection, host, port, backlog=BACKLOG)
        else:
            server = await loop.create_server(make_connection, sock=accepting, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint="choose another --port") from None
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        server.close()


RESOURCES: Final[tuple[AnyRoute, ...]] = (
    *executions.routes,
    *routes_of("views"),
    *interventions.routes,
    *ctx.routes,
    *playbooks.routes,
    *routes_of("schedules"),
    *routes_of("credentials"),
    *routes_of("grants"),
    *routes_of("cluster"),
    *routes_of("diagnosis"),
    *streams.routes,
    *session.token_routes,
    *executions.trigger_routes,
    *session.routes,
    *agents.routes,
)
"""The routes under ``/api``, and ``/mcp``."""


def make_application(serving: Serving, status: GatewayStatus) -> web.Application:
    @cache  # made on first use: it takes longer than everything else here
    def document() -> dict[str, Any]:
        return openapi_of(table, __version__)

    table = (*RESOURCES, *system_routes(status, document))
    page = read_page()
    application = web.Application(middlewares=[serving.problems, _for_browsers(serving.page_handler(page.missing))])
    application.on_response_prepare.append(_keep_to_caller)
    for route in table:
        application.router.add_route(route.method, route.pattern, serving.handler(route))
    application.router.add_get(VIEWS, serving.page_handler(page.index))
    application.router.add_get(ASSET, serving.page_handler(page.asset))
    return application


def _for_browsers(missing: Handler) -> Middleware:
    """Lets ``missing`` answer people at an unknown address; programs are answered with a problem."""

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            if request.method != "GET" or "text/html" not in request.headers.get("Accept", ""):
                raise
        return await missing(request)

    return handle


async def _keep_to_caller(request: web.Request, response: web.StreamResponse) -> None:
    """Keeps an answer out of caches, unless it says otherwise, and from being interpreted as a script or a page."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    if connection_of(request).closes:
        response.headers["Connection"] = "close"  # aiohttp has already decided
        response.force_close()
