"""Servers, workers and gateways in this process, until a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.concurrency import closing, end_tasks, first_done
from noetl_stream.local.processes import LOOPBACK
from noetl_stream.model.secrets.urls import redact_urls
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER, WORKER, worker_identity
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.storage.availability import until_reached
from noetl_stream.telemetry.measures import NotYetRunning
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.role_assembly import HostedWorker, make_server, make_worker, open_gateway
from noetl_stream.wiring.stack import POSTGRES_USER, StackAccess
from noetl_stream.wiring.stores import ROLE_WAIT_S, Connected, connect, connect_to_nats

if TYPE_CHECKING:
    from noetl_stream.adapters.nats.connections.connection import NatsConnection
    from noetl_stream.gateway.gateway import Gateway
    from noetl_stream.server.server import Server
    from noetl_stream.telemetry.measures import Measured, Role

log = logging.getLogger(__name__)
Ports = TypeVar("Ports")

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))

STOP_S = 20.0
"""The time for which a stopping server waits for its stores. Its supervisor waits for 40 s."""


_NATS: Final = (
    *(f".adapters.nats.{port}" for port in ("blobs", "bus", "commands.command_queue", "event_log", "task_logs")),
    "nkeys",  # by the NATS client when it connects
)
_POSTGRES: Final = (".adapters.postgres.schema.migrate", ".adapters.postgres.store")
_SEALING: Final = "cryptography.hazmat.primitives.ciphers.aead"

LOADED: Final[Mapping[str, Sequence[str]]] = {
    "server": (*_NATS, *_POSTGRES, _SEALING, ".adapters.evaluation.pool", ".adapters.trace_exporter", ".server.server"),
    "worker": (*_NATS, ".adapters.trace_exporter", ".worker.worker"),
}
"""The modules that the server and the worker of :mod:`noetl_stream.wiring` import; the package's own begin with a dot.
"""


def load(role: str) -> None:
    """Imports the modules of a role, for a process that cannot connect yet; nothing for roles not in ``LOADED``."""
    if role not in LOADED:
        return
    from noetl_stream.tools.registry import installed_tools

    for module in LOADED[role]:
        import_module(module, "noetl_stream")
    installed_tools()  # :func:`installed_kinds` reports unusable ones, once logging is set up


def on_termination(act: Callable[[], object]) -> None:
    """Calls ``act`` on Ctrl-C, SIGTERM or a closed terminal. Signals that ``nohup`` ignores stay ignored."""
    loop = asyncio.get_running_loop()
    for number in set(TERMINATION_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, act)


def say_start(role: str, settings: Settings, endpoint: Endpoint, **more: object) -> None:
    """Logs the running role with its settings. Not earlier, or a user's mistake would log more than a line."""
    from noetl_stream import __version__  # only roles need these

    about = {
        "version": __version__,
        "nats": redact_urls(endpoint.nats_url),
        "home": str(settings.home) if settings.nats_url is None else None,
        "status_address": settings.status_address and str(settings.status_address),
        **more,
    }
    log.info("%s starts", role, extra={name: value for name, value in about.items() if value is not None})
    gc.collect()
    gc.freeze()  # what it has loaded stays until the end: no collection needs to examine it


async def run_server(server: Server, nats: NatsConnection, ending: asyncio.Event) -> None:
    """Runs a server until ``ending``, a signal, or the end of its connection; then it releases its partitions.

    Raises:
        NoetlError: The error that ended it.
    """
    on_termination(ending.set)
    nats.on_ended(ending.set)
    running = asyncio.create_task(server.run())
    if not await first_done([running], ending.wait()):
        log.info("server stops", extra={"partitions": len(server.ownership)})
    await end_server(server, running)
    _check_open(nats)
    log.info("server stopped")


async def run_worker(hosted: HostedWorker, nats: NatsConnection, opened: Callable[[], object] = lambda: None) -> None:
    """Runs a worker until a signal, or the end of its connection; then it drains.

    Args:
        opened: Called when it takes commands.

    Raises:
        NoetlError: The error that ended it.
    """
    ending = asyncio.Event()
    on_termination(ending.set)
    nats.on_ended(ending.set)
    running, ended = asyncio.create_task(hosted.worker.run()), asyncio.create_task(ending.wait())
    if not await first_done([running, ended], hosted.worker.opened.wait()):
        opened()
    await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not running.done():
        log.info("worker drains", extra={"running": hosted.worker.running})
    hosted.worker.drain()
    await asyncio.wait([running])
    await hosted.close()
    await running
    _check_open(nats)
    log.info("worker stopped")


async def end_server(server: Server, running: asyncio.Task[None]) -> None:
    """Lets a server finish its tick and release its partitions, within :data:`STOP_S`.

    A store that does not answer, as when the network is cut, would delay it for a minute. Giving up loses nothing:
    other servers see this one as killed.

    Raises:
        NoetlError: The error that ended it.
    """
    server.stop()
    await asyncio.wait([running], timeout=STOP_S)
    if running.done():
        return await running
    log.warning("a store has not answered for %g s: the server ends, and its leases expire", STOP_S)
    return await end_tasks([running])


def _check_open(nats: NatsConnection) -> None:
    """Raises if the connection to NATS has ended for good, which ended the role."""
    if nats.client.is_closed:
        raise nats.unreachable("the connection was closed")


class AttachRole(Protocol):
    """Attaches a running role to the status address, with its parts that have metrics."""

    def __call__(self, role: Role, *parts: Measured) -> None: ...


@asynccontextmanager
async def status_of(settings: Settings, role: str) -> AsyncIterator[AttachRole]:
    """Serves the status address, if there is one: the role is not ready until it is attached.

    Raises:
        UsageError: the address cannot be listened on.
    """
    if settings.status_address is None:
        yield lambda role, *parts: None
        return
    from noetl_stream.telemetry.status_server import open_status  # needs HTTP and Prometheus

    async with open_status(settings.status_address.host, settings.status_address.port, role) as status:
        yield status.attach


async def host_server(stack: StackAccess) -> None:
    """Connects, runs a server until a signal, and closes."""
    endpoint = stack.endpoint_of(SERVER)
    async with (
        status_of(stack.settings, SERVER) as attach,
        stores_of_role(stack, SERVER, attach) as connected,
    ):
        from noetl_stream.server.status_report import ServerStatus

        server = make_server(connected, endpoint)
        attach(ServerStatus(server, lambda: connected.is_connected), connected.opened)
        say_start(SERVER, stack.settings, endpoint, max_state_bytes=endpoint.max_state_bytes)
        await run_server(server, connected.nats, asyncio.Event())


async def host_worker(stack: StackAccess, pool: str, slots: int, debugger: int | None = None) -> None:
    """Connects to NATS, runs a worker until a signal, and closes. ``debugger``: see :class:`Debugged`."""
    endpoint, settings = stack.endpoint_of(worker_identity(pool)), stack.settings
    from noetl_stream.tools.children.linux import return_large_buffers
    from noetl_stream.tools.children.measures import confinement_of
    from noetl_stream.tools.contract import Debugged

    return_large_buffers()
    confinement = confinement_of(settings.children).level
    about = {"pool": pool, "slots": slots, "isolation": settings.isolation, "confinement": confinement}
    async with status_of(settings, WORKER) as attach:
        connecting = partial(connect_to_nats, endpoint, name="noetl-worker", nats_wait_s=ROLE_WAIT_S)
        async with closing(await _reach_ports(stack, WORKER, attach, connecting)) as ports:
            from noetl_stream.worker.status_report import WorkerStatus

            drain_s = settings.worker_drain_s
            hosted = make_worker(ports, endpoint, pool=pool, slots=slots, drain_s=drain_s, confinement=confinement)
            for tool in hosted.tools.values():
                if isinstance(tool, Debugged):
                    tool.debugger = debugger
            attach(WorkerStatus(hosted.worker, lambda: ports.nats.is_connected), ports)
            await run_worker(hosted, ports.nats, lambda: say_start(WORKER, settings, endpoint, **about))


@asynccontextmanager
async def stores_of_role(stack: StackAccess, identity: str, attach: AttachRole) -> AsyncIterator[Connected]:
    """Connects a server or gateway to prepared stores, until the end of the block.

    Raises:
        NotReady, StreamLost: The schema or the streams are not prepared.
        UsageError: A place of objects refuses access.
    """

    async def connect_and_verify() -> Connected:
        from noetl_stream.adapters.postgres.statements import read_queries

        read_queries()
        endpoint = stack.endpoint_of(identity)
        connected = await connect(endpoint, name=f"noetl-{identity}", nats_wait_s=ROLE_WAIT_S)
        try:
            await warn_of_excess_rights(connected, identity)
            if connected.places is not None:
                await connected.places.verify()
        except BaseException:
            await connected.close()
            raise
        return connected

    async with closing(await _reach_ports(stack, identity, attach, connect_and_verify)) as connected:
        yield connected


async def _reach_ports(
    stack: StackAccess, role: str, attach: AttachRole, connecting: Callable[[], Awaitable[Ports]]
) -> Ports:
    """Returns the ports of a role. Waits for the user's own stores; those of an embedded stack are already running."""
    if stack.embedded is not None:
        return await connecting()
    return await until_reached(SystemClock(), connecting, lambda why: attach(NotYetRunning(role, why)))


async def warn_of_excess_rights(connected: Connected, identity: str) -> None:
    """Warns if the Postgres user of this process may do more than its role needs.

    Raises:
        NotReady, StreamLost: The schema or the streams are not prepared: reported first, and alone.
    """
    await connected.store.verify()
    await connected.log.verify()
    role = POSTGRES_USER[identity]
    excess = await connected.store.diagnosis.excess_rights(role)
    if excess:
        reasons = "; ".join(excess)
        log.warning("the Postgres user of this %s %s: use a member of the role %s", identity, reasons, role)


async def host_gateway(
    stack: StackAccess,
    settings: Settings,
    listening_on: tuple[str, int],
    accepting: socket.socket | None,
    echo: Callable[[str], object],
) -> None:
    """Connects, serves HTTP until a signal, finishes pending requests, and closes.

    Args:
        listening_on: Host and port.
        accepting: A socket that already listens there.
        echo: Shows the link with which a browser signs in, for the stack of a home.
    """
    host, port = listening_on
    async with (
        status_of(settings, GATEWAY) as attach,
        stores_of_role(stack, GATEWAY, attach) as connected,
    ):
        token = await local_token(stack, connected)
        if settings.status_address is not None:
            await _until_way_in(connected, settings, host, attach)
        async with open_gateway(connected, stack.endpoint, settings, host) as gateway:
            attach(gateway.status, connected.opened)
            is_balanced = stack.home is None and accepting is None  # else it is that of a home, or of `dev`
            on_termination(partial(_stop, gateway, at_once=not is_balanced))
            connected.nats.on_ended(gateway.stop)
            listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            inviting = asyncio.create_task(_invite(stack, connected, listening, token, echo))
            try:
                await gateway.run(host, port, listening, accepting)
            finally:
                await end_tasks([inviting])
        _check_open(connected.nats)
        log.info("gateway stopped")


async def _until_way_in(connected: Connected, settings: Settings, host: str, attach: AttachRole) -> None:
    """Waits for the first token: a gateway that exits would only be restarted repeatedly."""
    from noetl_stream.gateway.access.guard import until_way_in

    def wait(why: str) -> None:
        log.warning("%s: waiting for one", why)
        attach(NotYetRunning(GATEWAY, why), connected.opened)

    tokens, provider = connected.store.tokens, settings.oidc is not None
    await until_way_in(host, tokens, connected.clock, provider=provider, waits=wait)


def _stop(gateway: Gateway, *, at_once: bool) -> None:
    """Stops a gateway; unless ``at_once``, it accepts connections until load balancers have noticed."""
    log.info("gateway stops", extra={"requests": gateway.pressure.requests.under_way})
    if at_once:
        gateway.stop()
    else:
        gateway.drain()


async def local_token(stack: StackAccess, connected: Connected) -> str | None:
    """Returns the token of the home's gateways; ``None`` for a stack that the environment names."""
    if stack.home is None:
        return None
    from noetl_stream.local.gateway_address import ensure_token

    return await ensure_token(stack.home, connected.store.tokens, connected.clock, is_shared=stack.embedded is None)


async def _invite(
    stack: StackAccess,
    connected: Connected,
    listening: asyncio.Future[str],
    token: str | None,
    echo: Callable[[str], object],
) -> None:
    """Announces a gateway to commands and in the log, and shows the link for browsers, until it is cancelled."""
    url = await listening
    say_start(GATEWAY, stack.settings, stack.endpoint)
    if stack.home is None or token is None:
        return
    from noetl_stream.adapters.gateway_client.own_verbs import sign_in_link  # only gateways need an HTTP client
    from noetl_stream.local.gateway_address import announce_gateway

    with announce_gateway(stack.home, url):
        echo(f"sign in: {await sign_in_link(_reachable(url), token, connected.clock)}")
        await asyncio.Event().wait()


def _reachable(url: str) -> str:
    """Returns an address on this machine of a gateway that may listen on all of its addresses."""
    return url.replace("//0.0.0.0:", f"//{LOOPBACK}:").replace("//[::]:", "//[::1]:")
