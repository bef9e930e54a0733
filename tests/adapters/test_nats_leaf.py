"""A worker at an edge, whose NATS is a leaf node as docs/how-to/run-on-clusters.md configures it."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

from nats_process import ROOT, NatsServer, free_port
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import NoetlError
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.ids import partition_of
from noetl_stream.protocol import subjects
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_testkit.conformance.command_queue import command
from noetl_testkit.waiting import until_it_is

WORKER = "worker-default"


def leaf_configuration(port: int, seed: str) -> str:
    """That of the guide, for a hub on loopback."""
    page = (ROOT / "docs/how-to/run-on-clusters.md").read_text()
    found = re.search(r'```text title="leaf.conf"\n(.*?)```', page, re.DOTALL)
    assert found is not None
    values = {"nats-1:7422": f"127.0.0.1:{port}", "SEED": seed, "PUBLIC_KEY": public_nkey(seed)}
    text = found[1]
    for name, value in values.items():
        assert name in text
        text = text.replace(name, value)
    return text


async def test_a_worker_beside_a_leaf_node_takes_commands_and_stores_results(tmp_path: Path) -> None:
    seeds = {identity: new_seed() for identity in (ADMIN, SERVER, GATEWAY, WORKER)}
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()})
    port = free_port()
    folders = [tmp_path / name for name in ("hub", "leaf")]
    for folder in folders:
        folder.mkdir()
    hub = NatsServer(folders[0], accounts + f'leafnodes {{ listen: "127.0.0.1:{port}" }}\n')
    leaf = NatsServer(folders[1])
    leaf.conf.write_text(leaf_configuration(port, seeds[WORKER]))
    async with AsyncExitStack() as closing:
        for one in (hub, leaf):
            closing.callback(one.end)
            one.start()

        async def opened(identity: str, nats: NatsServer) -> NatsConnection:
            connection = await NatsConnection.open(nats.url, name=identity, nkey=seeds[identity], identity=identity)
            closing.push_async_callback(connection.close)
            return connection

        admin, server, worker = await opened(ADMIN, hub), await opened(SERVER, hub), await opened(WORKER, leaf)
        await ensure_streams(admin)
        issuing, taking = await NatsCommandQueue.open(server), await NatsCommandQueue.open(worker)
        await issuing.add_pool("default")

        async def reaches() -> bool:
            """The leaf node connects to the hub when that is there."""
            try:
                await taking.reach("default")
            except NoetlError:
                return False
            return True

        await until_it_is(True, reaches)
        source = await taking.open_source("default")
        source.request(2)
        fences = await issuing.fence("one", {partition_of("run-1"): 1})
        assert await issuing.issue([command("c1"), command("c2")], fences) == set()
        for _ in range(2):
            (await source.next()).ack()

        async def present() -> set[str]:
            return set(await issuing.present())

        await until_it_is(set(), present)
        blobs = await NatsBlobs.open(worker, SystemClock())
        await blobs.put("key", b"value")
        assert await blobs.get("key") == b"value"

        async def answer(_subject: str, _body: bytes, reply: str) -> None:
            NatsBus(server).send(reply, b"the playbook")

        await NatsBus(server).listen(f"{subjects.ASK_PLAYBOOK}.default", answer)
        assert await NatsBus(worker).ask(f"{subjects.ASK_PLAYBOOK}.default", b"", 5) == b"the playbook"
        for closable in (blobs, source, taking, issuing):
            await closable.close()
