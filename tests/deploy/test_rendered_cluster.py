"""A cluster without Kubernetes: the rendered objects as processes, changed and broken under load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from contention import Contention
from helm import CHART, render
from rendered_cluster import RenderedCluster
from rendered_pod import Site
from rolling_load import EFFECTS, PATIENCE_S, Ledger, playbook
from timed_load import MORE, Table, TimedLoad

from kubernetes_api import KubernetesApi
from nats_process import NatsCluster
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import stream_api
from noetl_stream.errors import NoetlError
from noetl_stream.protocol.nats_permissions import ADMIN
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.worker.worker_limits import ACK_WAIT_S
from noetl_testkit.waiting import until_it_is
from postgres_pair import PostgresPair, postgres_pair

pytestmark = [pytest.mark.xdist_group("own_stacks"), pytest.mark.verify]

PROGRAM = Path(sys.executable).with_name("noetl-stream")

ELECTION_S = PROMOTION_S = 10.0
"""The slowest request, and the slowest execution besides its own work, after NATS or Postgres has a leader again."""

TAKEOVER_S = ServerTimes().lease_s + 1.0
"""The slowest request while nobody has the partitions of a server that was killed."""

KILLED_S = TAKEOVER_S + ACK_WAIT_S
"""The slowest execution besides its own work: what a killed worker had is delivered again when its lease ends."""


MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 * 1024**3


class Clustered(NatsCluster):
    """Three nats-servers with the accounts of an installation. One can be killed and started again."""

    def __init__(self, folder: Path, accounts: str) -> None:
        super().__init__(folder)
        for server in self.servers.values():
            server.conf.write_text(server.conf.read_text() + accounts)

    def restart(self, name: str) -> None:
        self.servers[name].start("--name", name)


@pytest.fixture
def seeds(tmp_path: Path) -> dict[str, str]:
    """What `nats accounts` writes: the files with seeds, and ``accounts``."""
    words = [str(PROGRAM), "nats", "accounts", "--pool", "default"]
    printed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    files = {file.name: file.read_text().strip() for file in (tmp_path / "nats-seeds").iterdir()}
    return {"accounts": printed, **files}


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where NATS and Postgres are: in memory if there is room, since others may keep the disk busy for seconds."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > NEEDED_BYTES:
        monkeypatch.setattr(tempfile, "tempdir", str(MEMORY))
    with tempfile.TemporaryDirectory(prefix="noetl-stores-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def nats(stores: Path, seeds: dict[str, str]) -> Iterator[Clustered]:
    cluster = Clustered(stores, seeds["accounts"])
    cluster.start()
    yield cluster
    cluster.end()


@pytest.fixture
def pair(stores: Path) -> Iterator[PostgresPair]:
    """Two Postgres, below the folder that ``stores`` has chosen."""
    users = [f"create role {user} login" for user in ("noetl", "noetl_server", "noetl_gateway", "noetl_reader")]
    with postgres_pair(*users, "create database noetl owner noetl") as found:
        yield found


def site_of(tmp_path: Path, dsns: Mapping[str, str], seeds: dict[str, str]) -> Site:
    """The Secrets that docs/how-to/run-on-kubernetes.md has the operator make."""
    users = {"owner": "noetl", "server": "noetl_server", "gateway": "noetl_gateway"}
    values = {
        **{("noetl-nats-seeds", name): seed for name, seed in seeds.items()},
        **{("noetl-postgres", key): dsns[user] for key, user in users.items()},
        **{
            ("noetl-keys", key): b64encode(secrets.token_bytes(32)).decode()
            for key in ("server", "access", "credential")
        },
    }
    folder = tmp_path / "pods"
    folder.mkdir()
    return Site(PROGRAM, values, folder)


@pytest.fixture
def contention() -> Iterator[Contention]:
    with Contention().measured() as measured:
        yield measured


async def leader_of(nats: Clustered, stream: str, seed: str) -> str:
    """The name of the nats-server that leads a stream."""
    connection = await NatsConnection.open(nats.url, name="tests", nkey=seed, identity=ADMIN)
    try:
        answer = await stream_api(connection, stream, f"STREAM.INFO.{stream}")
    finally:
        await connection.close()
    return str(msgspec.json.decode(answer)["cluster"]["leader"])


async def until_led(nats: Clustered, stream: str, seed: str) -> None:
    """Returns when a stream has a leader that answers."""

    async def is_led() -> bool:
        with contextlib.suppress(NoetlError, TimeoutError):
            async with asyncio.timeout(1):
                return bool(await leader_of(nats, stream, seed))
        return False

    await until_it_is(True, is_led, PATIENCE_S)


@asynccontextmanager
async def under_load(cluster: RenderedCluster) -> AsyncIterator[TimedLoad]:
    """A new installation that clients use. At the end, everything that was started has ended as it should."""
    await cluster.migrate()
    async with cluster.installed(), Ledger().open() as ledger:
        token = await cluster.exec("noetl-gateway", "token", "create", "load", "--role", "admin")
        await cluster.until_ready()
        load = TimedLoad(cluster.service.url, token.strip(), playbook(ledger))
        async with load.running():
            yield load
    assert Counter(load.ended.values()) == {"completed": len(load.ended)}
    assert ledger.effects == {(execution, effect): 1 for execution in load.ended for effect in EFFECTS}


@pytest.fixture
def cluster(nats: Clustered, tmp_path: Path, pair: PostgresPair, seeds: dict[str, str]) -> RenderedCluster:
    """Three servers, two gateways and four workers."""
    dsns = {user: pair.dsn("noetl", user) for user in ("noetl", "noetl_server", "noetl_gateway")}
    settings = (
        f'nats.url="{nats.url}"',
        'trust.configMap=""',
        'poolDefaults.settings={"NOETL_EGRESS_ALLOW": "127.0.0.0/8"}',
        "bootstrap.enabled=false",  # there is no Kubernetes
        "poolDefaults.replicas=4",
        "server.replicas=3",
    )
    return RenderedCluster(render(CHART / "values" / "small.yaml", settings=settings), site_of(tmp_path, dsns, seeds))


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(tmp_path, may="noetl-bootstrap").running() as running:
        yield running


async def test_a_first_install_becomes_ready_without_anyones_hand_and_its_token_is_good_for_one_of_an_admin(
    nats: Clustered, tmp_path: Path, pair: PostgresPair, seeds: dict[str, str], kubernetes: KubernetesApi
) -> None:
    dsns = {user: pair.dsn("noetl", user) for user in ("noetl", "noetl_server", "noetl_gateway")}
    found = render(CHART / "values" / "kind.yaml", settings=(f'nats.url="{nats.url}"',))
    cluster = RenderedCluster(found, site_of(tmp_path, dsns, seeds)._replace(kubernetes=kubernetes))
    await cluster.migrate()
    async with cluster.installed():
        await cluster.until_ready()
        create = (str(PROGRAM), "token", "create", "ann", "--role", "admin", "--url", cluster.service.url)
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        environment = own | {"NOETL_TOKEN": kubernetes.secrets["noetl-bootstrap"]["token"]}
        made = await asyncio.to_thread(subprocess.run, create, env=environment, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        listed = (str(PROGRAM), "token", "list", "-o", "json", "--url", cluster.service.url)
        environment = own | {"NOETL_TOKEN": made.stdout.strip()}
        shown = await asyncio.to_thread(subprocess.run, listed, env=environment, capture_output=True, text=True)
        first, second = json.loads(shown.stdout)
        assert (first["name"], first["revoked_by"]) == ("@bootstrap", "token:@bootstrap")
        assert (second["name"], second["revoked"]) == ("ann", None)
        await cluster.migrate()
        assert len(kubernetes.patches) == 1, "an upgrade makes no other"


async def test_a_postgres_that_fails_over_loses_no_execution_and_answers_no_request_with_an_error(
    cluster: RenderedCluster, pair: PostgresPair, contention: Contention
) -> None:
    async with under_load(cluster) as load:
        await load.more(MORE)
        table = Table(load, contention)
        async with table.change("nothing"):
            pass
        async with table.change("Postgres killed, its standby promoted", within_s=PROMOTION_S) as away:
            with away.measured():
                await asyncio.to_thread(pair.fail_over)
        async with table.change("the former primary made a standby"):
            await asyncio.to_thread(pair.repair)
        async with table.change("Postgres silent, its standby promoted", within_s=PROMOTION_S) as away:
            with away.measured():
                await asyncio.to_thread(pair.fail_over, silently=True)
        async with table.change("upgrade of workers"):
            await cluster.deployments["noetl-worker-default"].roll()
    assert not table.late, "\n".join(table.late)
    assert [ended for ended in cluster.ended if ended.code != 0 or ended.killed] == []
    assert cluster.unlive == []


async def test_a_rendered_cluster_is_changed_and_broken_under_load(
    cluster: RenderedCluster, nats: Clustered, seeds: dict[str, str], contention: Contention
) -> None:
    servers, gateways = cluster.deployments["noetl-server"], cluster.deployments["noetl-gateway"]
    workers = cluster.deployments["noetl-worker-default"]
    async with under_load(cluster) as load:
        await load.more(MORE)
        table = Table(load, contention)
        async with table.change("nothing"):
            pass
        for what, deployment in {"servers": servers, "workers": workers, "gateways": gateways}.items():
            async with table.change(f"upgrade of {what}"):
                await deployment.roll()
        async with table.change("migration, and upgrade of all at the same time"):
            await cluster.migrate()
            await asyncio.gather(*(one.roll() for one in cluster.deployments.values()))
        async with table.change("one more server, gateway and two workers"):
            await asyncio.gather(
                *(one.scale(one.wanted + 1) for one in (servers, gateways)), workers.scale(workers.wanted + 2)
            )
        async with table.change("as before, and one server less"):
            await asyncio.gather(servers.scale(servers.wanted - 2), gateways.scale(2), workers.scale(4))
        async with table.change("drain of a machine"):
            await servers.scale(3)
            await cluster.drain("node-a")
        async with table.change("kill of the NATS leader of EVENTS", within_s=ELECTION_S) as away:
            leader = await leader_of(nats, EVENTS, seeds["admin.nk"])
            with away.measured():
                await asyncio.to_thread(nats.servers[leader].kill)
                for stream in (EVENTS, COMMANDS):
                    await until_led(nats, stream, seeds["admin.nk"])
            await load.more(MORE)
            await asyncio.to_thread(nats.restart, leader)
        async with table.change("kill of a server and a worker", within_s=TAKEOVER_S, executions_within_s=KILLED_S):
            for deployment in (servers, workers):
                lost = deployment.running.pop()
                await lost.kill()
                await deployment.add()
    assert not table.late, "\n".join(table.late)
    assert [ended for ended in cluster.ended if ended.code != 0 or ended.killed] == []
    assert cluster.unlive == []
