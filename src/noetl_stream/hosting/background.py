"""The background process that ``run`` starts if no server answers: a server and a worker, until both are idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING

from noetl_stream.concurrency import end_tasks, result_when_ended
from noetl_stream.errors import Unreachable
from noetl_stream.hosting.processes import Forked, Supervised
from noetl_stream.hosting.role_processes import load, run_server
from noetl_stream.local.background import DEBUGGER
from noetl_stream.local.home import FileLock, prepare_home
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.model.ids import partition_count
from noetl_stream.protocol.nats_permissions import SERVER, worker_identity
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.endpoint import process_prefix
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.role_assembly import make_server
from noetl_stream.wiring.stack import StackAccess, connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected

if TYPE_CHECKING:
    from noetl_stream.server.server import Server

log = logging.getLogger(__name__)

IDLE_POLL_S = 0.5
EXTERNAL_LINGER_S = 5.0
STALLED_LINGER_S = 60.0
"""The time without progress of living executions after which a background process exits; the next one continues them.
"""

BACKGROUND_LOCK = "background.lock"
BACKGROUND_WAIT_S = 3.0
"""The wait for an exiting background process: longer than it takes to end."""


@contextmanager
def background_lock(settings: Settings) -> Iterator[bool]:
    """Yields whether this is the only background process of its home. Two would keep each other running."""
    if settings.nats_url is not None:
        yield True
        return
    with system_errors_explained(settings.home):
        lock = FileLock(prepare_home(settings.home).root / BACKGROUND_LOCK)
    try:
        yield lock.try_exclusive_within(BACKGROUND_WAIT_S)
    finally:
        lock.close()


async def host_in_background(settings: Settings, forked: Forked | None = None, debugger: int | None = None) -> None:
    """Runs a server and a worker for commands that found none, until they are no longer needed.

    Both load while the stack starts, the worker in a process of its own; ``forked`` is that process, if it is already
    loaded. ``debugger`` is the descriptor on which the worker has Python code debugged.
    """
    opened: asyncio.Future[StackAccess] = asyncio.get_running_loop().create_future()
    arguments = ["worker", "--pool", settings.pool, "--slots", str(settings.slots)]
    inherited = () if debugger is None else (debugger,)
    arguments += [] if debugger is None else [DEBUGGER, str(debugger)]
    identity = worker_identity(settings.pool)
    worker = Supervised("worker", arguments, opened, identity, inherited=inherited, forked=forked)
    with ExitStack() as closing:
        running = asyncio.create_task(worker.run())
        try:
            joining = asyncio.create_task(asyncio.to_thread(closing.enter_context, open_stack(settings)))
            await asyncio.sleep(0)  # the worker and the stack first
            load("server")
            stack = await result_when_ended(joining)
            opened.set_result(stack)
            await _serve(stack, worker)
        finally:
            await worker.stop()
            await end_tasks([running])


async def _serve(stack: StackAccess, worker: Supervised) -> None:
    """Prepares the stack, and runs the server until it and the worker are no longer needed."""
    async with AsyncExitStack() as closing:
        connecting = closing.enter_async_context(connected_to(stack, "noetl-background", SERVER))
        connected, _ = await asyncio.gather(connecting, prepare_embedded(stack))  # connecting needs no schema
        server = make_server(connected, stack.endpoint_of(SERVER))
        ending = asyncio.Event()
        watch = asyncio.create_task(_Watch(server, worker, connected, stack).until_idle())
        watch.add_done_callback(lambda _: ending.set())
        await run_server(server, connected.nats, ending)
        if watch.done():
            watch.result()
        watch.cancel()


class _Watch:
    """Finds out when the background process is no longer needed."""

    def __init__(self, server: Server, worker: Supervised, connected: Connected, stack: StackAccess) -> None:
        self._server = server
        self._worker = worker
        self._connected = connected
        self._stack = stack

    async def until_idle(self) -> None:
        """Waits until no command needs this stack and no execution moves, or other servers have taken over."""
        clock, embedded = self._connected.clock, self._stack.embedded
        moved_s, seen = clock.monotonic_s(), -1
        while True:
            await clock.sleep(IDLE_POLL_S)
            if self._server.committer.ticks != seen:
                seen, moved_s = self._server.committer.ticks, clock.monotonic_s()
            if embedded is not None:
                for name in await asyncio.to_thread(embedded.revive):
                    log.warning("%s had stopped: restarted", name)
                if self._others_serve() and not await self._is_busy():
                    log.info("other servers are running: exiting")
                    return
                if await asyncio.to_thread(embedded.has_other_users):
                    continue
            try:
                live = await self._connected.store.live_executions(range(partition_count()))
            except Unreachable as error:
                log.warning("%s: waiting", error)
                continue
            linger_s = STALLED_LINGER_S if live else EXTERNAL_LINGER_S if embedded is None else 0.0
            if clock.monotonic_s() - moved_s < linger_s:
                continue
            if live and await self._is_busy():
                moved_s = clock.monotonic_s()
                continue
            if await can_exit(self._server, embedded.has_other_users if embedded else lambda: False):
                return

    def _others_serve(self) -> bool:
        """Returns whether other servers share the partitions with this one."""
        return self._server.ownership.fair_share(self._connected.clock.monotonic_s()) < partition_count()

    async def _is_busy(self) -> bool:
        """Returns whether our worker runs a command."""
        if self._worker.pid is None:
            return False
        own = process_prefix("worker", self._worker.pid)
        async with connected_to(self._stack, "noetl-background") as operator:  # servers ask workers nothing
            workers = await DirectOperations(operator, self._stack.endpoint).cluster.workers()
        return any(worker.busy for worker in workers if worker.name.startswith(own))


async def can_exit(server: Server, has_users: Callable[[], bool]) -> bool:
    """Returns whether ``server`` can exit because no other command uses it; then it no longer answers.

    A command joins the stack before it asks for a server. Any command that still got an answer is therefore seen here,
    and later ones find no server and start another, instead of waiting for one that has stopped folding.
    """
    await server.responder.close()
    if not await asyncio.to_thread(has_users):
        return True
    await server.responder.open()
    return False
