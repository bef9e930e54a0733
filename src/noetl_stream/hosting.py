"""Runs servers, workers and gateways in this process, until a signal or, in the background, until idle."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl_stream import wiring
from noetl_stream.adapters.gateway.sign_in import sign_in_link
from noetl_stream.concurrency import end_tasks, first_done
from noetl_stream.errors import Unreachable, UsageError
from noetl_stream.local.diagnosis import system_errors_explained
from noetl_stream.local.gateway import announced, ensure_token
from noetl_stream.local.home import FileLock, prepare_home
from noetl_stream.local.processes import LOOPBACK
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.limits import operator_limits
from noetl_stream.settings.environment import NATS_URL_VARIABLE, POSTGRES_VARIABLE, Settings

if TYPE_CHECKING:
    from noetl_stream.server.server import Server

log = logging.getLogger(__name__)

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))

ROLE_WAIT_S = 5.0
IDLE_POLL_S = 0.5
EXTERNAL_LINGER_S = 5.0
STALLED_LINGER_S = 60.0
"""A background process exits when live executions make no progress for this long; the next one continues them."""

BACKGROUND_LOCK = "background.lock"
BACKGROUND_WAIT_S = 3.0
"""Longer than an exiting background process takes to end."""


@dataclass(slots=True)
class StackAccess:
    """The stack of a command. ``embedded`` is its use of the embedded stack, if any; its ports may change."""

    endpoint: wiring.Endpoint
    embedded: EmbeddedStack | None


@contextmanager
def open_stack(settings: Settings) -> Iterator[StackAccess]:
    """The NATS and Postgres of the settings: the user's own, or the embedded ones, started if necessary.

    Raises:
        LocalStackError, UsageError: With a one-line message.
    """
    if settings.nats_url is not None:
        if settings.postgres_dsn is None:
            hint = "set both for your own servers, or neither"
            raise UsageError(f"{NATS_URL_VARIABLE} is set, but {POSTGRES_VARIABLE} is not", hint=hint)
        tools, limits = settings.tools(settings.nats_url, embedded=False), operator_limits(settings.limits)
        own = wiring.Endpoint(
            settings.nats_url,
            settings.postgres_dsn,
            settings.credentials,
            _keys(settings),
            tools,
            limits,
            nats_nkey=settings.nats_nkey,
            server_keys=settings.server_keys,
            access_keys=settings.access_keys,
        )
        yield StackAccess(own, None)
        return
    with EmbeddedStack.join(settings.home) as stack:
        for notice in stack.notices:
            log.warning("%s", notice)
        yield StackAccess(embedded_endpoint(stack, settings), stack)


def embedded_endpoint(stack: EmbeddedStack, settings: Settings) -> wiring.Endpoint:
    """The embedded servers, with the playbooks' database as ``auth: local_postgres`` (LANGUAGE §11)."""
    address = stack.address
    credentials = {"local_postgres": address.playbooks_dsn, **settings.credentials}
    # The user's own key comes first; credentials stored before it was set can still be read.
    keys = (*_keys(settings), address.keys.credential)
    tools, limits = settings.tools(address.nats_url, embedded=True), operator_limits(settings.limits)
    return wiring.Endpoint(
        address.nats_url,
        address.postgres_dsn,
        credentials,
        keys,
        tools,
        limits,
        server_keys=(*settings.server_keys, address.keys.server),
        access_keys=(*settings.access_keys, address.keys.access),
    )


def _keys(settings: Settings) -> tuple[str, ...]:
    return (settings.credential_key, *settings.credential_old_keys) if settings.credential_key else ()


async def prepare_embedded(stack: StackAccess) -> None:
    """Creates or upgrades the embedded stack's schema and streams. The user's own need explicit commands."""
    if stack.embedded is not None:
        await asyncio.gather(wiring.migrate_schema(stack.endpoint), wiring.ensure_all_streams(stack.endpoint))


@asynccontextmanager
async def connected_to(
    stack: StackAccess, name: str, *, nats_wait_s: float = wiring.COMMAND_WAIT_S
) -> AsyncIterator[wiring.Connected]:
    """Connections for the duration of a command."""
    connected = await wiring.connect(stack.endpoint, name=name, nats_wait_s=nats_wait_s)
    try:
        yield connected
    finally:
        await connected.close()


def on_termination(act: Callable[[], object]) -> None:
    """Calls ``act`` on Ctrl-C, SIGTERM or a closed terminal. Signals that ``nohup`` ignores stay ignored."""
    loop = asyncio.get_running_loop()
    for number in set(TERMINATION_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, act)


class Roles:
    """A server, a worker, or both, in one process, until SIGTERM, SIGINT or :meth:`end`."""

    def __init__(self, connected: wiring.Connected, endpoint: wiring.Endpoint) -> None:
        self._connected = connected
        self._endpoint = endpoint
        self._ending = asyncio.Event()
        self.server: Server | None = None
        self._hosted: wiring.HostedWorker | None = None

    @property
    def busy(self) -> bool:
        """Whether a command is running here."""
        return self._hosted is not None and self._hosted.worker.busy

    def end(self) -> None:
        """Starts an orderly shutdown: the worker drains, the server releases its partitions."""
        self._ending.set()

    def shares_partitions(self) -> bool:
        """Whether other servers share the partitions with this one."""
        if self.server is None:
            return False
        return self.server.ownership.fair_share(self._connected.clock.monotonic_s()) < PARTITIONS

    async def run(self, *, server: bool = False, worker: tuple[str, int] | None = None) -> None:
        """Runs until shutdown.

        Args:
            worker: Pool and slots of the worker, if any.

        Raises:
            NoetlError: The error that ended a server or worker.
        """
        on_termination(self.end)
        tasks: list[asyncio.Task[None]] = []
        if server:
            self.server = wiring.make_server(self._connected, self._endpoint)
            tasks.append(asyncio.create_task(self.server.run()))
        if worker is not None:
            pool, slots = worker
            self._hosted = wiring.make_worker(self._connected, self._endpoint, pool=pool, slots=slots)
            tasks.append(asyncio.create_task(self._hosted.worker.run()))
        self._connected.nats.on_ended(self.end)
        await first_done(tasks, self._ending.wait())
        if self._hosted is not None:
            self._hosted.worker.drain()
            await asyncio.wait([tasks[-1]])
            await self._hosted.close()
        if self.server is not None:
            self.server.stop()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        _check_open(self._connected)


def _check_open(connected: wiring.Connected) -> None:
    """Raises if the connection to NATS has ended for good, which ended the role."""
    if connected.nats.client.is_closed:
        raise connected.nats.unreachable("the connection was closed")


async def host(stack: StackAccess, *, server: bool = False, worker: tuple[str, int] | None = None, name: str) -> None:
    """Connects, runs until a signal, and closes."""
    async with connected_to(stack, name, nats_wait_s=ROLE_WAIT_S) as connected:
        await Roles(connected, stack.endpoint).run(server=server, worker=worker)


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
        accepting: A socket that listens there already.
        echo: Shows the link with which a browser signs in, if the stack is embedded.
    """
    host, port = listening_on
    async with connected_to(stack, "noetl-gateway", nats_wait_s=ROLE_WAIT_S) as connected:
        token = await local_token(stack, connected)
        async with wiring.open_gateway(connected, stack.endpoint, settings, host) as gateway:
            on_termination(gateway.stop)
            connected.nats.on_ended(gateway.stop)
            listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            inviting = asyncio.create_task(_invite(stack, connected, listening, token, echo))
            try:
                await gateway.run(host, port, listening, accepting)
            finally:
                await end_tasks([inviting])
        _check_open(connected)


async def local_token(stack: StackAccess, connected: wiring.Connected) -> str | None:
    """The token of the embedded stack's gateways; ``None`` for a stack of the user's own."""
    if stack.embedded is None:
        return None
    return await ensure_token(stack.embedded.address.home, connected.store.tokens, connected.clock)


async def _invite(
    stack: StackAccess,
    connected: wiring.Connected,
    listening: asyncio.Future[str],
    token: str | None,
    echo: Callable[[str], object],
) -> None:
    """Lets commands find the gateway, and shows the link for browsers; until it is cancelled."""
    url = await listening
    if stack.embedded is None or token is None:
        return
    with announced(stack.embedded.address.home, url):
        echo(f"sign in: {await sign_in_link(_reachable(url), token, connected.clock)}")
        await asyncio.Event().wait()


def _reachable(url: str) -> str:
    """An address on this machine of a gateway that may listen on all of its addresses."""
    return url.replace("//0.0.0.0:", f"//{LOOPBACK}:").replace("//[::]:", "//[::1]:")


@contextmanager
def background_lock(settings: Settings) -> Iterator[bool]:
    """Whether this is the only background process of its home. Two would keep each other running."""
    if settings.nats_url is not None:
        yield True
        return
    with system_errors_explained(settings.home):
        lock = FileLock(prepare_home(settings.home).root / BACKGROUND_LOCK)
    try:
        yield lock.try_exclusive_within(BACKGROUND_WAIT_S)
    finally:
        lock.close()


async def host_in_background(stack: StackAccess, worker: tuple[str, int]) -> None:
    """Runs a server and a worker for commands that found none, until they are no longer needed."""
    async with connected_to(stack, "noetl-background") as connected:
        roles = Roles(connected, stack.endpoint)
        watch = asyncio.create_task(_end_when_idle(roles, connected, stack.embedded))
        watch.add_done_callback(lambda _: roles.end())
        await roles.run(server=True, worker=worker)
        if watch.done():
            watch.result()
        watch.cancel()


async def _end_when_idle(roles: Roles, connected: wiring.Connected, embedded: EmbeddedStack | None) -> None:
    clock = connected.clock
    moved_s = clock.monotonic_s()
    seen = -1
    while True:
        await clock.sleep(IDLE_POLL_S)
        now_s = clock.monotonic_s()
        ticks = roles.server.committer.ticks if roles.server is not None else 0
        if ticks != seen or roles.busy:
            seen, moved_s = ticks, now_s
        if embedded is not None:
            for name in await asyncio.to_thread(embedded.revive):
                log.warning("%s had stopped: restarted", name)
            if roles.shares_partitions() and not roles.busy:
                log.info("other servers are running: exiting")
                return
            if await asyncio.to_thread(embedded.has_other_users):
                continue
        linger_s = 0.0 if embedded is not None else EXTERNAL_LINGER_S
        try:
            if await connected.store.live_executions(range(PARTITIONS)):
                linger_s = STALLED_LINGER_S
        except Unreachable as error:
            log.warning("%s: waiting", error)
            continue
        has_users = embedded.has_other_users if embedded else lambda: False
        if now_s - moved_s >= linger_s and await can_exit(roles.server, has_users):
            return


async def can_exit(server: Server | None, has_users: Callable[[], bool]) -> bool:
    """Whether ``server`` can exit because no other command uses it. If so, it no longer answers.

    A command joins the stack before it asks for a server. So any command that still got an answer is seen here, and
    later ones find no server and start another, instead of waiting for one that has stopped folding.
    """
    if server is None:
        return True
    await server.responder.close()
    if not await asyncio.to_thread(has_users):
        return True
    await server.responder.open()
    return False
