"""The full stack in the foreground: ``noetl-stream dev``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from noetl_stream.concurrency import end_tasks, result_until
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.hosting import (
    StackAccess,
    connected_to,
    on_termination,
    open_stack,
    prepare_embedded,
)
from noetl_stream.local.processes import LOOPBACK, choose_port, is_free
from noetl_stream.ports.permissions import GATEWAY, SERVER, worker_identity
from noetl_stream.processes import Supervised
from noetl_stream.settings.environment import Settings
from noetl_stream.wiring import make_client

log = logging.getLogger(__name__)

WATCH_S = 1.0
ANSWER_POLL_S = 0.05
GATEWAY_PORT: Final = 8080
GATEWAY_WAIT_S = 10.0
"""How long to wait for the gateway before reporting the addresses without it; see its log for the reason."""


async def develop(
    settings: Settings,
    *,
    servers: int,
    workers: int,
    slots: int,
    gateway_port: int | None,
    echo: Callable[[str], object],
) -> None:
    """Runs everything until SIGINT or SIGTERM, then shuts it down in order.

    Args:
        gateway_port: ``None`` for no gateway; 0 for :data:`GATEWAY_PORT` or, if that is in use, a free port.
    """
    if gateway_port and not is_free(gateway_port):
        raise UsageError(f"port {gateway_port} is already in use", hint="choose another --gateway-port")
    ending = asyncio.Event()
    on_termination(ending.set)
    with open_stack(settings) as stack:
        await prepare_embedded(stack)
        children = [Supervised(f"server {n}", ["server"], stack, SERVER) for n in range(1, servers + 1)]
        worker, pool = ["worker", "--pool", settings.pool, "--slots", str(slots)], worker_identity(settings.pool)
        port = gateway_port or (GATEWAY_PORT if is_free(GATEWAY_PORT) else choose_port())
        children += [
            Supervised(f"worker {n}", worker, stack, pool, gateway_port=None if gateway_port is None else port)
            for n in range(1, workers + 1)
        ]
        if gateway_port is not None:
            children.append(Supervised("gateway", ["gateway", "--host", LOOPBACK, "--port", str(port)], stack, GATEWAY))
        tasks = [asyncio.create_task(child.run()) for child in children]
        tasks.append(asyncio.create_task(_watch(stack, children)))
        try:
            if servers:
                await result_until(_wait_for_server(stack), ending.wait())
            has_gateway = gateway_port is not None and await _wait_for_port(port, ending)
            for line in _address(stack):
                echo(line)
            if has_gateway:
                echo(f"  gateway   http://{LOOPBACK}:{port}")
            await ending.wait()
            log.info("stopping")
        finally:
            await asyncio.gather(*(child.stop() for child in reversed(children)))
            await end_tasks(tasks)


async def _wait_for_server(stack: StackAccess) -> None:
    """Waits until a server answers, so that the addresses are not printed too early."""
    async with connected_to(stack, "noetl-dev") as connected:
        client = make_client(connected)
        while not await client.alive():
            await connected.clock.sleep(ANSWER_POLL_S)


async def _wait_for_port(port: int, ending: asyncio.Event) -> bool:
    """Whether the port accepts connections before :data:`GATEWAY_WAIT_S` or shutdown."""
    until_s = asyncio.get_running_loop().time() + GATEWAY_WAIT_S
    while not ending.is_set() and asyncio.get_running_loop().time() < until_s:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(ANSWER_POLL_S)
            continue
        writer.close()
        return True
    return False


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


def _address(stack: StackAccess) -> list[str]:
    lines = ["noetl-stream is running. Press Ctrl-C to stop."]
    if stack.embedded is not None:
        lines.append(f"  home      {stack.embedded.address.home}")
    lines.append(f"  NATS      {stack.endpoint.nats_url}")
    lines.append(f"  Postgres  {stack.endpoint.postgres_dsn}")
    home = f" --home {stack.embedded.address.home}" if stack.embedded is not None else ""
    lines.append(f"  run a playbook: noetl-stream run FILE{home}")
    return lines
