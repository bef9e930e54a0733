"""The processes that benchmarks of the whole stack start, and waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from noetl_stream.hosting.processes import Supervised
from noetl_stream.hosting.role_processes import local_token
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER, worker_identity
from noetl_stream.wiring.stack import StackAccess, connected_to

POLL_S = 0.02
PATIENCE_S = 900.0


@asynccontextmanager
async def running(place: StackAccess, *commands: list[str]) -> AsyncIterator[list[Supervised]]:
    """One process of this program for each of these command lines, such as ``["worker", "--slots", "8"]``."""
    workers = worker_identity(place.settings.pool)
    identities = {"server": SERVER, "worker": workers, "gateway": GATEWAY}
    children = [Supervised(command[0], command, place, identities[command[0]]) for command in commands]
    async with AsyncExitStack() as ending:
        for child in children:
            ending.callback(asyncio.create_task(child.run()).cancel)
            ending.push_async_callback(child.stop)
        yield children


async def access_to(place: StackAccess) -> dict[str, str]:
    """The header with which gateways of this stack let their caller in, as an admin."""
    async with connected_to(place, "noetl-bench") as connected:
        return {"Authorization": f"Bearer {await local_token(place, connected)}"}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Polls until the condition holds.

    Raises:
        TimeoutError: it did not within :data:`PATIENCE_S`.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  what is polled is another process
            await asyncio.sleep(POLL_S)
