"""Running roles in this process: until a signal, or in the background until there is nothing left to do."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl_stream.errors import Unreachable
from noetl_stream.local.diagnosis import system_errors_explained
from noetl_stream.local.home import prepare_home
from noetl_stream.local.locks import FileLock
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.limits import operator_limits
from noetl_stream.settings.environment import Settings
from noetl_stream.wiring import (
    COMMAND_WAIT_S,
    Connected,
    Endpoint,
    HostedWorker,
    connect,
    ensure_all_streams,
    make_gateway,
    make_server,
    make_worker,
    migrate_schema,
)

if TYPE_CHECKING:
    from noetl_stream.server.server import Server

log = logging.getLogger(__name__)

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))

ROLE_WAIT_S = 5.0
IDLE_POLL_S = 0.5
EXTERNAL_LINGER_S = 5.0
STALLED_LINGER_S = 60.0
"""A background process leaves an execution to itself when nothing has moved for this long: it goes on with the next."""

BACKGROUND_LOCK = "background.lock"
BACKGROUND_WAIT_S = 3.0
"""Longer than a background process that is about to leave takes to do so."""


@dataclass(slots=True)
class StackAccess:
    """Where a command works. ``embedded`` is its use of the embedded stack, if it has one; its ports may change."""

    endpoint: Endpoint
    embedded: EmbeddedStack | None


@contextmanager
def open_stack(settings: Settings) -> Iterator[StackAccess]:
    """The NATS and Postgres of the settings: the person's own, or the embedded ones, started if need be.

    Raises:
        LocalStackError, UsageError: one clear line.
    """
    if settings.nats_url is not None and settings.postgres_dsn is not None:
        tools, limits = settings.tools(embedded=False), operator_limits(settings.limits)
        own = Endpoint(settings.nats_url, settings.postgres_dsn, settings.credentials, _keys(settings), tools, limits)
        yield StackAccess(own, None)
        return
    with EmbeddedStack.join(settings.home) as stack:
        for notice in stack.notices:
            log.warning("%s", notice)
        yield StackAccess(embedded_endpoint(stack, settings), stack)


def embedded_endpoint(stack: EmbeddedStack, settings: Settings) -> Endpoint:
    """The embedded servers, with the playbooks' database as ``auth: local_postgres`` (LANGUAGE §11)."""
    address = stack.address
    credentials = {"local_postgres": address.playbooks_dsn, **settings.credentials}
    # A key of the person's own comes first; what was stored before it was given can still be read.
    keys = (*_keys(settings), address.credential_key)
    tools, limits = settings.tools(embedded=True), operator_limits(settings.limits)
    return Endpoint(address.nats_url, address.postgres_dsn, credentials, keys, tools, limits)


def _keys(settings: Settings) -> tuple[str, ...]:
    return (settings.credential_key, *settings.credential_old_keys) if settings.credential_key else ()


async def prepare_embedded(stack: StackAccess) -> None:
    """Makes or upgrades schema and streams of the embedded stack; a person's own is prepared by explicit commands."""
    if stack.embedded is not None:
        await asyncio.gather(migrate_schema(stack.endpoint), ensure_all_streams(stack.endpoint))


@asynccontextmanager
async def connected_to(
    stack: StackAccess, name: str, *, nats_wait_s: float = COMMAND_WAIT_S
) -> AsyncIterator[Connected]:
    """Connections for the time of a command."""
    connected = await connect(stack.endpoint, name=name, nats_wait_s=nats_wait_s)
    try:
        yield connected
    finally:
        await connected.close()


def on_ending(act: Callable[[], object]) -> None:
    """Calls ``act`` instead of dying of Ctrl-C, SIGTERM or a closed terminal; what ``nohup`` ignores stays ignored."""
    loop = asyncio.get_running_loop()
    for number in set(ENDING_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, act)


class Roles:
    """A server, a worker, or both, in one process; ends on SIGTERM, SIGINT or :meth:`end`."""

    def __init__(self, connected: Connected, endpoint: Endpoint) -> None:
        self._connected = connected
        self._endpoint = endpoint
        self._ending = asyncio.Event()
        self._lost = False
        self.server: Server | None = None
        self._hosted: HostedWorker | None = None

    @property
    def busy(self) -> bool:
        """Whether a command runs here now."""
        return self._hosted is not None and self._hosted.worker.busy

    def end(self) -> None:
        """Begins an orderly end: the worker drains, the server gives its partitions back."""
        self._ending.set()

    def has_company(self) -> bool:
        """Whether other servers share the partitions with the one here."""
        if self.server is None:
            return False
        return self.server.ownership.fair_share(self._connected.clock.monotonic_s()) < PARTITIONS

    async def run(self, *, server: bool = False, worker: tuple[str, int] | None = None) -> None:
        """Runs until the end.

        Args:
            worker: Pool and slots of the worker, if one is to run.

        Raises:
            NoetlError: what ended a role that should have gone on.
        """
        on_ending(self.end)
        tasks: list[asyncio.Task[None]] = []
        if server:
            self.server = make_server(self._connected, self._endpoint)
            tasks.append(asyncio.create_task(self.server.run()))
        if worker is not None:
            pool, slots = worker
            self._hosted = make_worker(self._connected, self._endpoint, pool=pool, slots=slots)
            tasks.append(asyncio.create_task(self._hosted.worker.run()))
        ending = asyncio.create_task(self._ending.wait())
        self._connected.nats.on_ended(self._lose)
        await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
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
        if self._lost:
            raise self._connected.nats.unreachable("the connection has ended")

    def _lose(self) -> None:
        self._lost = True
        self.end()


async def host(stack: StackAccess, *, server: bool = False, worker: tuple[str, int] | None = None, name: str) -> None:
    """Connects, runs the roles until a signal, and closes."""
    async with connected_to(stack, name, nats_wait_s=ROLE_WAIT_S) as connected:
        await Roles(connected, stack.endpoint).run(server=server, worker=worker)


async def host_gateway(stack: StackAccess, settings: Settings, host: str, port: int) -> None:
    """Connects, serves HTTP until a signal, answers what is under way, and closes."""
    async with connected_to(stack, "noetl-gateway", nats_wait_s=ROLE_WAIT_S) as connected:
        hosted = await make_gateway(connected, stack.endpoint, settings, host)
        on_ending(hosted.gateway.stop)
        lost: list[bool] = []

        def lose() -> None:
            lost.append(True)
            hosted.gateway.stop()

        connected.nats.on_ended(lose)
        log.info("the gateway is %s", hosted.sentence)
        try:
            await hosted.gateway.run(host, port)
        finally:
            await hosted.close()
        if lost:
            raise connected.nats.unreachable("the connection has ended")


@contextmanager
def only_background(settings: Settings) -> Iterator[bool]:
    """Whether this is the one background process of its home: two would each stay up for the other."""
    if settings.nats_url is not None:
        yield True
        return
    with system_errors_explained(settings.home):
        lock = FileLock(prepare_home(settings.home).root / BACKGROUND_LOCK)
    try:
        yield lock.take_alone_within(BACKGROUND_WAIT_S)
    finally:
        lock.close()


async def host_in_background(stack: StackAccess, worker: tuple[str, int]) -> None:
    """Server and worker for commands that found none; leaves when nobody needs them any more."""
    async with connected_to(stack, "noetl-background") as connected:
        roles = Roles(connected, stack.endpoint)
        watch = asyncio.create_task(_end_when_idle(roles, connected, stack.embedded))
        watch.add_done_callback(lambda _: roles.end())
        await roles.run(server=True, worker=worker)
        if watch.done():
            watch.result()
        watch.cancel()


async def _end_when_idle(roles: Roles, connected: Connected, embedded: EmbeddedStack | None) -> None:
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
                log.warning("%s had died: started again", name)
            if roles.has_company() and not roles.busy:
                log.info("other servers run here: leaving the work to them")
                return
            if await asyncio.to_thread(embedded.others):
                continue
        linger_s = 0.0 if embedded is not None else EXTERNAL_LINGER_S
        try:
            if await connected.store.live_executions(range(PARTITIONS)):
                linger_s = STALLED_LINGER_S
        except Unreachable as error:
            log.warning("waiting: %s", error)
            continue
        if now_s - moved_s >= linger_s and await may_leave(roles.server, embedded.others if embedded else _nobody):
            return


async def may_leave(server: Server | None, others: Callable[[], bool]) -> bool:
    """Whether nobody has come to rely on ``server``, which is about to leave; it is silent from then on.

    Whoever comes joins the stack before asking for a server: so those that were still answered are seen here, and the
    rest find none and start another, instead of waiting for one that folds nothing any more.
    """
    if server is None:
        return True
    await server.responder.close()
    if not await asyncio.to_thread(others):
        return True
    await server.responder.open()
    return False


def _nobody() -> bool:
    return False
