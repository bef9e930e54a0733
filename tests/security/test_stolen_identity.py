"""The NATS identity of the workers of pool ``a`` is stolen: what its holder can say and hear with any client.

What it can make of a command of its own is in ``test_taken_over_worker.py`` (PROTOCOL §7 *Roles on the wire*).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from nats_client import flush
from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import inbox_prefix
from noetl_testkit.waiting import until, until_it_is

SEEDS = {identity: new_seed() for identity in ("admin", "server", "gateway", "worker-a", "worker-b")}
EXECUTION = "execution-1"
EVENTS = f"noetl.events.{partition_of(EXECUTION)}.{EXECUTION}"


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    folder: Path = tmp_path_factory.mktemp("stolen")
    server = NatsServer(folder, nats_accounts({identity: public_nkey(seed) for identity, seed in SEEDS.items()}))
    server.start()
    yield server
    server.end()


@asynccontextmanager
async def connected(server: NatsServer, identity: str) -> AsyncIterator[NatsConnection]:
    connection = await NatsConnection.open(server.url, name="test", nkey=SEEDS[identity], identity=identity)
    yield connection
    await connection.close()


@pytest.fixture
async def server(nats_server: NatsServer) -> AsyncIterator[NatsConnection]:
    """The connection of a server, once there are streams, with a command for pool ``b`` in the queue."""
    async with connected(nats_server, "admin") as admin:
        await ensure_streams(admin)
    async with connected(nats_server, "server") as connection:
        queue = await NatsCommandQueue.open(connection)
        await queue.issue([QueuedCommand("b", EXECUTION, "command-b", 1, b"{}")], {})
        yield connection
        await queue.close()


@pytest.fixture
async def thief(nats_server: NatsServer, server: NatsConnection) -> AsyncIterator[Client]:
    """Any client, with the stolen seed."""

    async def ignore(_error: Exception) -> None:
        """The server's word on what is not allowed."""

    client = await nats.connect(
        nats_server.url, nkeys_seed_str=SEEDS["worker-a"], inbox_prefix=inbox_prefix("worker-a"), error_cb=ignore
    )
    yield client
    await client.close()


async def test_a_stolen_identity_writes_only_reports_of_its_pool(server: NatsConnection, thief: Client) -> None:
    log, queue = await NatsEventLog.open(server, SystemClock()), await NatsCommandQueue.open(server)
    before, queued = await log.last_sequence(), await queue.present()
    for subject in (
        f"{EVENTS}.requested",
        f"{EVENTS}.requeued",
        f"{EVENTS}.decided",
        f"{EVENTS}.reported",
        f"{EVENTS}.reported.b",
        f"noetl.commands.a.5.{EXECUTION}.command",
        f"noetl.commands.b.5.{EXECUTION}.command",
    ):
        await thief.publish(subject, b"{}")
    await flush(thief)
    assert (await log.last_sequence(), await queue.present()) == (before, queued)
    await thief.publish(f"{EVENTS}.reported.a", b"{}")
    await until_it_is(before + 1, log.last_sequence)
    await log.close()
    await queue.close()


async def test_servers_hear_no_question_of_another_pool(server: NatsConnection, thief: Client) -> None:
    heard: list[str] = []

    async def hear(subject: str, _body: bytes, _reply: str) -> None:
        heard.append(subject)

    bus = NatsBus(server)
    names = ("secret", "playbook", "result", "catalog")
    listening = [await bus.listen(f"noetl.ask.{name}.*", hear) for name in names]
    listening += [await bus.listen(subject, hear) for subject in ("noetl.inbox", "noetl.servers", "noetl.ask.ping")]
    for subject in ("noetl.inbox", "noetl.servers", "noetl.ask.ping", *(f"noetl.ask.{name}.b" for name in names)):
        await thief.publish(subject, b"{}", thief.new_inbox())
    await thief.publish("noetl.ask.secret.a", b"{}", thief.new_inbox())
    await until(lambda: bool(heard))
    assert heard == ["noetl.ask.secret.a"]
    for subscription in listening:
        await subscription.close()


async def test_a_stolen_identity_hears_nothing_of_others(
    nats_server: NatsServer, server: NatsConnection, thief: Client
) -> None:
    stolen: list[str] = []
    rightful: list[str] = []

    async def steal(message: Msg) -> None:
        stolen.append(message.subject)

    async def hear(subject: str, _body: bytes, _reply: str) -> None:
        rightful.append(subject)

    for subject in ("noetl.claim.b.>", "noetl.claim.>", "noetl.events.>", "noetl.commands.>", "_INBOX_worker-b.>", ">"):
        await thief.subscribe(subject, cb=steal)
    await flush(thief)
    async with connected(nats_server, "worker-b") as worker:
        subscription = await NatsBus(worker).listen("noetl.claim.b.*.*", hear)
        for subject in (f"{EVENTS}.decided", "noetl.claim.b.command.nonce"):
            NatsBus(server).send(subject, b"{}")
        await until(lambda: bool(rightful))
        await flush(thief)
        await subscription.close()
    assert stolen == []


async def test_a_stolen_identity_takes_no_command_of_another_pool_and_empties_no_stream(
    server: NatsConnection, thief: Client
) -> None:
    log, queue = await NatsEventLog.open(server, SystemClock()), await NatsCommandQueue.open(server)
    answers: list[bytes] = []

    async def take(message: Msg) -> None:
        answers.append(message.data)

    inbox = thief.new_inbox()
    await thief.subscribe(inbox, cb=take)
    before = await log.first_sequence(), await log.last_sequence()
    for prefix in ("$JS.API", server.jetstream, "noetl.api"):
        for call in (
            "STREAM.PURGE.EVENTS",
            "STREAM.PURGE.COMMANDS",
            "STREAM.DELETE.COMMANDS",
            "STREAM.MSG.GET.EVENTS",
            "STREAM.MSG.GET.COMMANDS",
            "CONSUMER.MSG.NEXT.COMMANDS.pool-b",
            "CONSUMER.DELETE.COMMANDS.pool-b",
            "CONSUMER.CREATE.COMMANDS.mine.noetl.commands.b.>",
        ):
            await thief.publish(f"{prefix}.{call}", b'{"last_by_subj":">"}', inbox)
            # An answer to an acknowledgement would go wherever it names.
            await thief.publish("$JS.ACK.COMMANDS.pool-a.1.1.1.1.0", b"+NXT", f"{prefix}.{call}")
    await flush(thief)
    assert answers == []
    assert (await log.first_sequence(), await log.last_sequence()) == before
    assert set(await queue.present()) == {"command-b"}
    await log.close()
    await queue.close()
