"""The gateway role: listens, serves, polls how far behind the servers are, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final, NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from noetl_stream.concurrency import end_tasks, first_done
from noetl_stream.errors import UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.guard import AccessGuard
from noetl_stream.gateway.access.network import Network
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.gateway.access.sessions import SignIns
from noetl_stream.gateway.application import make_application
from noetl_stream.gateway.http.idempotency import IdempotentCalls
from noetl_stream.gateway.http.pressure import Pressure
from noetl_stream.gateway.http.serving import Serving
from noetl_stream.gateway.metrics import Metrics
from noetl_stream.ports.access import Audit, Authenticator, Sessions
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.gateway import Idempotency, Ingest, Readiness
from noetl_stream.ports.operations import Operations
from noetl_stream.settings.environment import GatewayLimits

log = logging.getLogger(__name__)


class _OfRequests(logging.Filter):
    """Drops records of what is not HTTP: anybody can send that, and aiohttp would log it, perhaps with a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


connection_log = log.getChild("connection")
connection_log.addFilter(_OfRequests())

DRAIN_S: Final = 10.0
"""How long requests under way may take once the gateway stops."""


BY_ADDRESS: Final = Network()
"""Called by IP addresses and ``localhost`` alone, behind no proxy."""


class GatewayPorts(NamedTuple):
    operations: Operations
    ingest: Ingest
    idempotency: Idempotency
    readiness: Readiness
    authenticator: Authenticator
    sessions: Sessions
    audit: Audit
    clock: Clock


class Gateway:
    def __init__(self, ports: GatewayPorts, limits: GatewayLimits, network: Network = BY_ADDRESS) -> None:
        self._ending = asyncio.Event()
        self.pressure = pressure = Pressure(limits, ports.operations.cluster, ports.clock)
        once = IdempotentCalls(ports.idempotency, ports.clock)
        serving = Serving(
            operations=ports.operations,
            ingest=ports.ingest,
            sign_ins=SignIns(ports.sessions, ports.clock),
            scopes=Scopes(),
            guard=AccessGuard(network, ports.authenticator, Auditor(ports.audit, ports.clock), ports.clock),
            once=once,
            pressure=pressure,
            metrics=Metrics(pressure),
            limits=limits,
            clock=ports.clock,
            ending=self._ending,
        )
        self._application = make_application(serving, ports.readiness)
        self._lasting = (pressure.watch, once.forget_old)

    def stop(self) -> None:
        """Begins an orderly stop: no new requests, waits end early."""
        self._ending.set()

    async def run(
        self, host: str, port: int, listening: asyncio.Future[str] | None = None, accepting: socket.socket | None = None
    ) -> None:
        """Serves until :meth:`stop`, then until what is under way has been answered.

        Args:
            port: 0 for any free port.
            listening: Receives the address once requests are accepted.
            accepting: A socket that listens already, instead of one for ``host`` and ``port``.

        Raises:
            UsageError: it cannot listen there.
        """
        runner = web.AppRunner(
            self._application,
            access_log=None,
            logger=connection_log,
            shutdown_timeout=DRAIN_S,
            auto_decompress=False,
        )
        await runner.setup()
        tasks = [asyncio.create_task(lasting()) for lasting in self._lasting]
        try:
            try:
                site = web.TCPSite(runner, host, port) if accepting is None else web.SockSite(runner, accepting)
                await site.start()
            except OSError as error:
                reason = error.strerror or str(error)
                raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint="choose another --port") from None
            url = _url(runner)
            log.info("listening on %s", url)
            if listening is not None:
                listening.set_result(url)
            for task in await first_done(tasks, self._ending.wait()):
                task.result()
        finally:
            self._ending.set()
            await end_tasks(tasks)
            await runner.cleanup()


def _url(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
