"""Servers that are far from NATS and Postgres, and one that stands still in the middle of a tick."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest
from journey_chain import chain, submit_and_end
from msgspec.structs import replace

from cli_program import NOETL, environment
from homes import copy_home, folder_for_home
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.protocol.nats_permissions import GATEWAY, SERVER, worker_identity
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import identity_environment
from noetl_stream.wiring.stack import POSTGRES_USER, StackAccess, embedded_endpoint, prepare_embedded
from noetl_stream.wiring.stores import Connected, connect
from noetl_testkit.waiting import until_it_is
from slow_line import slow_line

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

PATIENCE_S = 120.0


class FarStack:
    """Processes that reach their NATS and Postgres over lines that take their time."""

    def __init__(self, embedded: EmbeddedStack, lines: AsyncExitStack) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.connected: Connected
        self._embedded = embedded
        self._lines = lines

    async def start(self, role: str, *, nats_s: float = 0.0, postgres_s: float = 0.0) -> subprocess.Popen[bytes]:
        """Starts a server or a worker; the seconds are its round trips."""
        held = embedded_endpoint(self._embedded, Settings(), SERVER if role == "server" else worker_identity("default"))
        dsn = held.postgres_dsn and await self._lines.enter_async_context(slow_line(held.postgres_dsn, postgres_s / 2))
        settings = identity_environment(
            nats_url=await self._lines.enter_async_context(slow_line(held.nats_url, nats_s / 2)),
            nats_nkey=held.nats_nkey,
            postgres_dsn=dsn,
            server_keys=held.server_keys,
            access_keys=held.access_keys,
        )
        process = _launched(role, environment(HOME=str(self._embedded.address.home), **settings))
        self.processes.append(process)
        return process

    async def connect(self, nats_s: float = 0.0) -> Connected:
        """A client as far from NATS, and near to Postgres."""
        held = embedded_endpoint(self._embedded, Settings(), GATEWAY)
        url = await self._lines.enter_async_context(slow_line(held.nats_url, nats_s / 2))
        connected = await connect(replace(held, nats_url=url), name="journey")
        self._lines.push_async_callback(connected.close)
        return connected

    @property
    def server_dsn(self) -> str:
        """As a server: Postgres shows what others do to their own user alone."""
        return self._embedded.address.dsns[POSTGRES_USER[SERVER]]


def _launched(role: str, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen([*NOETL, role], env=variables, stdin=nowhere, stdout=nowhere, stderr=nowhere)


@pytest.fixture
async def far_stack(used_home: Path) -> AsyncIterator[FarStack]:
    """Without any process."""
    with folder_for_home("far") as folder:
        embedded = await asyncio.to_thread(EmbeddedStack.join, copy_home(used_home, folder / "home"))
        async with AsyncExitStack() as lines:
            await prepare_embedded(StackAccess(Settings(), embedded))
            stack = FarStack(embedded, lines)
            yield stack
            for process in stack.processes:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            for process in stack.processes:
                await asyncio.to_thread(process.wait, 60)
        await asyncio.to_thread(embedded.leave)


async def shares(connected: Connected) -> list[int]:
    """How many partitions each owner has."""
    views = await connected.store.read_partitions()
    return sorted(Counter(view.owner for view in views if view.live).values())


async def epochs(connected: Connected) -> int:
    return sum(view.epoch for view in await connected.store.read_partitions())


async def until_shared_out(connected: Connected, *wanted: int) -> None:
    await until_it_is(list(wanted), lambda: shares(connected), PATIENCE_S)


async def expect_all_to_end(connected: Connected, count: int, steps: int) -> None:
    source = chain(steps)
    ids = await asyncio.gather(*(submit_and_end(connected, source) for _ in range(count)))
    rows = await connected.store.executions(ids)
    assert Counter(row.status for row in rows.values()) == {"completed": count}


@pytest.mark.parametrize(
    ("nats_s", "postgres_s", "count"),
    [
        pytest.param(0.1, 0.1, 12, id="both 100 ms"),
        pytest.param(0.4, 0.0, 60, id="NATS 400 ms"),
        pytest.param(0.0, 0.4, 60, id="Postgres 400 ms"),
        pytest.param(0.4, 0.4, 60, id="both 400 ms"),
    ],
)
async def test_two_servers_far_from_their_stores_keep_their_partitions_and_all_ends(
    far_stack: FarStack, nats_s: float, postgres_s: float, count: int
) -> None:
    connected = await far_stack.connect(nats_s)
    for _ in range(2):
        await far_stack.start("server", nats_s=nats_s, postgres_s=postgres_s)
    await far_stack.start("worker", nats_s=nats_s)
    await until_shared_out(connected, 16, 16)
    before, began_s = await epochs(connected), time.monotonic()
    await expect_all_to_end(connected, count, steps=1)
    took_s = time.monotonic() - began_s
    assert await epochs(connected) == before
    print(f"{count} executions ended in {took_s:.1f} s")


async def backend_in_a_tick(watcher: asyncpg.Connection[asyncpg.Record]) -> int:
    """The backend of a transaction that has locked partitions and waits for its server."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await watcher.fetchval(
                "select l.pid from pg_locks l join pg_stat_activity a using (pid)"
                " where l.relation = 'noetl.partition'::regclass and l.mode = 'RowExclusiveLock'"
                " and a.wait_event = 'ClientRead' limit 1"
            )
            if found is not None:
                return int(found)


async def test_a_server_that_stands_still_in_the_middle_of_a_tick_holds_nobody_up(far_stack: FarStack) -> None:
    connected = await far_stack.connect()
    frozen = await far_stack.start("server", postgres_s=0.4)
    await far_stack.start("worker")
    await until_shared_out(connected, 32)
    watcher = await asyncpg.connect(far_stack.server_dsn)
    running = asyncio.create_task(expect_all_to_end(connected, 100, steps=2))
    try:
        await backend_in_a_tick(watcher)
        os.kill(frozen.pid, signal.SIGSTOP)
        await far_stack.start("server")
        await until_shared_out(connected, 32)
        await running
        os.kill(frozen.pid, signal.SIGCONT)
        await until_shared_out(connected, 16, 16)
        await expect_all_to_end(connected, 8, steps=2)
    finally:
        running.cancel()
        await watcher.close()
