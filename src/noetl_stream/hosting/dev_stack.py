"""Runs the full stack in the foreground: ``noetl-stream dev``."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Final, NamedTuple

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.gateway_client.own_verbs import sign_in_link
from noetl_stream.concurrency import end_tasks, result_until
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.hosting.processes import Supervised
from noetl_stream.hosting.role_processes import local_token, on_termination
from noetl_stream.local.gateway_address import announce_gateway
from noetl_stream.local.processes import LOOPBACK, listen
from noetl_stream.model.secrets.urls import strip_logins
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER, worker_identity
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.role_assembly import check_way_in
from noetl_stream.wiring.stack import StackAccess, connected_to, open_stack, prepare_embedded

log = logging.getLogger(__name__)

WATCH_S = 1.0
ANSWER_POLL_S = 0.05
GATEWAY_PORT: Final = 8080
GATEWAY_WAIT_S = 10.0
"""The wait for the gateway before continuing without a link to it; its log has the reason."""


async def develop(
    settings: Settings,
    *,
    servers: int,
    workers: int,
    slots: int,
    gateway_port: int | None,
    echo: Callable[[str], object],
) -> None:
    """Runs the whole stack until SIGINT or SIGTERM, then shuts it down in order.

    Args:
        gateway_port: ``None`` for no gateway; 0 for :data:`GATEWAY_PORT` or, if that is in use, a free port.
    """
    ending = asyncio.Event()
    on_termination(ending.set)
    with ExitStack() as closing:
        port = closing.enter_context(gateway_socket(gateway_port)) if gateway_port is not None else None
        stack = closing.enter_context(open_stack(settings))
        stack.endpoint_of(SERVER)  # raises once, where the server would do so repeatedly
        if stack.embedded is not None:
            log.info("preparing the schema and the streams")
            await prepare_embedded(stack)
        log.info("starting servers and workers")
        gateway = await _gateway(stack, settings, port) if port is not None else None
        children = [Supervised(f"server {n}", ["server"], stack, SERVER) for n in range(1, servers + 1)]
        worker, pool = ["worker", "--pool", settings.pool, "--slots", str(slots)], worker_identity(settings.pool)
        children += [
            Supervised(f"worker {n}", worker, stack, pool, gateway_port=None if gateway is None else gateway.port)
            for n in range(1, workers + 1)
        ]
        if gateway is not None:
            closing.enter_context(gateway.announce(stack))
            number = gateway.socket.fileno()
            of_gateway = ["gateway", "--socket", str(number)]
            children.append(Supervised("gateway", of_gateway, stack, GATEWAY, inherited=[number]))
        tasks = [asyncio.create_task(child.run()) for child in children]
        tasks.append(asyncio.create_task(_watch(stack, children)))
        try:
            if servers:
                await result_until(_wait_for_server(stack), ending.wait())
            told = await result_until(gateway.lines(), ending.wait()) if gateway is not None else None
            for line in [*_address(stack, settings), *(told or ())]:
                echo(line)
            await ending.wait()
            log.info("stopping")
        finally:
            await asyncio.gather(*(child.stop() for child in reversed(children)))
            await end_tasks(tasks)


class DevGateway(NamedTuple):
    """The gateway's socket, which this process keeps, so that its port stays; and the token of its home, if any."""

    socket: socket.socket
    token: str | None

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def announce(self, stack: StackAccess) -> AbstractContextManager[None]:
        return announce_gateway(stack.home, self.url) if stack.home is not None else nullcontext()

    async def lines(self) -> list[str]:
        """Returns the lines of information for the user."""
        lines = [f"  gateway   {self.url}"]
        if self.port != GATEWAY_PORT:
            lines.append(f"            on port {self.port}, not {GATEWAY_PORT}")
        if self.token is None:
            return [*lines, "            callers need a token: noetl-stream token create NAME --role ROLE"]
        try:
            async with asyncio.timeout(GATEWAY_WAIT_S):
                link = await sign_in_link(self.url, self.token, SystemClock())
        except (NoetlError, TimeoutError) as error:
            log.error("the gateway does not answer: %s", error)
            return lines
        return [*lines, f"  sign in   {link}", "            once, within 10 minutes; later: noetl-stream sign-in"]


def gateway_socket(port: int) -> socket.socket:
    """Binds the gateway's socket before other processes start, so that two stacks cannot choose the same port.

    Raises:
        UsageError: the port is in use.
    """
    try:
        return listen(port or GATEWAY_PORT)
    except OSError:
        if port:
            raise UsageError(f"port {port} is already in use", hint="choose another --gateway-port") from None
    return listen(0)


async def _gateway(stack: StackAccess, settings: Settings, port: socket.socket) -> DevGateway:
    """Returns the gateway's socket and token.

    Raises:
        UsageError: the servers are the user's own, and there is no token for a gateway.
    """
    async with connected_to(stack, "noetl-dev") as connected:
        token = await local_token(stack, connected)
        if token is None:
            await check_way_in(connected, settings, LOOPBACK)
        return DevGateway(port, token)


async def _wait_for_server(stack: StackAccess) -> None:
    """Waits until a server answers, so that the addresses are not printed too early."""
    async with connected_to(stack, "noetl-dev") as connected:
        client = make_client(connected)
        while not await client.alive():
            await connected.clock.sleep(ANSWER_POLL_S)


async def _watch(stack: StackAccess, children: Sequence[Supervised]) -> None:
    """Restarts embedded servers that die, and the children when their addresses change."""
    embedded = stack.embedded
    while embedded is not None:
        await asyncio.sleep(WATCH_S)
        before = embedded.address
        try:
            for name in await asyncio.to_thread(embedded.revive):
                log.warning("%s had stopped: restarted", name)
            if (embedded.address.nats_url, embedded.address.dsns) != (before.nats_url, before.dsns):
                for child in children:
                    child.restart()
        except NoetlError as error:
            log.error("%s", error)


def _address(stack: StackAccess, settings: Settings) -> list[str]:
    lines = ["noetl-stream is running. Press Ctrl-C to stop."]
    if stack.home is not None:
        lines.append(f"  home      {stack.home}")
    lines.append(f"  NATS      {strip_logins(stack.endpoint.nats_url)}")
    lines.append(f"  Postgres  {strip_logins(stack.endpoint.postgres_dsn or '')}")
    is_open = settings.grants_file is None and settings.grants_default in (None, "everything")
    if stack.embedded is not None and is_open:
        open_until = "every playbook may use every credential until some are registered"
        lines.append(f"  grants    {open_until}; NOETL_GRANTS_DEFAULT=own bounds that")
    home = f" --home {stack.home}" if stack.home is not None else ""
    lines.append(f"  run a playbook: noetl-stream run FILE{home}")
    return lines
