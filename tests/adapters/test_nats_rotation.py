"""The NATS user of a process is replaced as docs/how-to/rotate.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_process import ROOT, NatsServer
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import NoetlError
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_testkit.waiting import until

WORKER = "worker-gpu"


def configuration(seeds: dict[str, str]) -> str:
    return (ROOT / "nats.conf").read_text() + nats_accounts({name: public_nkey(seed) for name, seed in seeds.items()})


async def test_a_new_seed_takes_the_place_of_an_old_one_while_others_work_on(tmp_path: Path) -> None:
    seeds = {identity: new_seed() for identity in (ADMIN, SERVER, GATEWAY, WORKER)}
    server = NatsServer(tmp_path)
    server.conf.write_text(configuration(seeds))
    server.start()

    async def opened(identity: str, seed: str) -> NatsConnection:
        return await NatsConnection.open(server.url, name=identity, nkey=seed, identity=identity)

    connections = [await opened(identity, seeds[identity]) for identity in (ADMIN, SERVER, WORKER)]
    try:
        admin, serving, before = connections
        await ensure_streams(admin)
        queue = await NatsCommandQueue.open(serving)
        await queue.add_pool("gpu")
        old, seeds[WORKER] = seeds[WORKER], new_seed()
        server.conf.write_text(configuration(seeds))
        for times in (1, 2):
            server.reload(times)
        await until(lambda: not before.is_connected)
        with pytest.raises(NoetlError, match="Authorization Violation"):
            await opened(WORKER, old)
        connections.append(await opened(WORKER, seeds[WORKER]))
        await (await NatsCommandQueue.open(connections[-1])).reach("gpu")
        assert await queue.present() == {}
        assert serving.is_connected
    finally:
        for connection in connections:
            await connection.close()
        server.end()
