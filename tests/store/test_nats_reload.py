"""A nats-server that reads changed accounts while servers and workers are at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_stack import RealStack

from nats_process import NatsServer
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, worker_identity
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.role_assembly import make_server, make_worker
from noetl_stream.wiring.stores import Connected, NatsPorts, connect, connect_to_nats
from noetl_testkit.waiting import TIMEOUT_S, until

IDENTITIES = (ADMIN, SERVER, GATEWAY, worker_identity("default"))


class Guarded(RealStack):
    """A stack whose NATS has accounts, which the test changes. Each role has its own identity."""

    def __init__(self, postgres: object, dsn: str, folder: Path) -> None:
        self.seeds = {identity: new_seed() for identity in IDENTITIES}
        self._folder = folder
        self._reloads = 0
        super().__init__(NatsServer(folder, self._accounts(self.seeds)), postgres, dsn)

    def _accounts(self, seeds: Mapping[str, str]) -> str:
        return nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()})

    def change(self, **seeds: str) -> None:
        """Reloads the accounts with these seeds in place of their own, or besides."""
        plain = self.nats.conf.read_text().partition("accounts {")[0]
        self.nats.conf.write_text(plain + self._accounts(self.seeds | seeds))
        self._reloads += 1
        self.nats.reload(self._reloads)

    @property
    def refusals(self) -> int:
        """How many connections were refused."""
        return (self._folder / "nats.log").read_text().count("authentication error")

    def endpoint_of(self, identity: str) -> Endpoint:
        return replace(self.endpoint, nats_nkey=self.seeds[identity]).only_for(identity)

    @asynccontextmanager
    async def at_work(self, worker: str) -> AsyncIterator[tuple[Connected, Connected, NatsPorts]]:
        """What a client, a server and a worker with this identity are connected by, while these two are at work."""
        async with AsyncExitStack() as leaving:
            client = await connect(self.endpoint_of(GATEWAY), name="test-client", nats_wait_s=TIMEOUT_S)
            leaving.push_async_callback(client.close)
            connected = await connect(self.endpoint_of(SERVER), name="test-server", nats_wait_s=TIMEOUT_S)
            leaving.push_async_callback(connected.close)
            ports = await connect_to_nats(self.endpoint_of(worker), name="test-worker", nats_wait_s=TIMEOUT_S)
            leaving.push_async_callback(ports.close)
            server = make_server(connected, self.endpoint_of(SERVER))
            hosted = make_worker(ports, self.endpoint_of(worker), pool="default", slots=4)
            leaving.push_async_callback(hosted.close)
            serving, working = asyncio.create_task(server.run()), asyncio.create_task(hosted.worker.run())
            yield client, connected, ports
            assert not serving.done() and not working.done()
            hosted.worker.drain()
            await working
            server.stop()
            await serving


@pytest.fixture
async def guarded(postgres_server: object, dsn: str, tmp_path: Path) -> AsyncIterator[Guarded]:
    stack = Guarded(postgres_server, dsn, tmp_path)
    stack.nats.start()
    try:
        url, seed = stack.nats.url, stack.seeds[ADMIN]
        admin = await NatsConnection.open(url, name="test", nkey=seed, identity=ADMIN, connect_timeout_s=10)
        await ensure_streams(admin)
        await admin.close()
        yield stack
    finally:
        stack.nats.end()


@pytest.mark.verify
async def test_accounts_that_change_under_load_lose_nothing(guarded: Guarded) -> None:
    worker = worker_identity("default")
    async with guarded.at_work(worker) as (client, connected, ports):
        begun: list[str] = []
        enough = asyncio.Event()

        async def begin() -> None:
            while not enough.is_set():
                begun.append(await guarded.submit(client))

        async def begin_more(count: int) -> None:
            wanted = len(begun) + count
            await until(lambda: len(begun) >= wanted)

        load = [asyncio.create_task(begin()) for _ in range(3)]
        await begin_more(5)
        guarded.change(**{worker_identity("other"): new_seed()})  # another pool
        await begin_more(5)
        for identity, connection in ((worker, ports.nats), (SERVER, connected.nats), (GATEWAY, client.nats)):
            line = connection.line
            guarded.change(**{identity: new_seed()})  # somebody's mistake: the role that runs is unknown now
            refused = guarded.refusals + 3
            await until(lambda refused=refused: guarded.refusals >= refused)
            assert not connection.is_connected
            guarded.change()
            await until(lambda connection=connection, line=line: connection.is_connected and connection.line > line)
            await begin_more(5)
        enough.set()
        await asyncio.gather(*load)
        for execution_id in begun:
            await guarded.ended(client, execution_id)
        assert await client.store.dead_letters.page(10, None) == []
