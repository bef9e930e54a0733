"""What servers can do on a real nats-server with streams of the user's own: read those that the operator names, and
nothing else (ADR 28).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Final

import pytest
from nats.aio.msg import Msg

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.api_errors import STREAM_NOT_FOUND
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.connections.refusals import NotPermitted
from noetl_stream.adapters.nats.streams import ensure_streams, stream_info
from noetl_stream.adapters.nats.trigger_streams import NatsTriggerStreams
from noetl_stream.errors import ReaderBroken, UsageError
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.aggregates import StreamFilter
from noetl_stream.ports.streams.trigger_streams import StreamWanted
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import (
    ADMIN,
    GATEWAY,
    IMPORTED_STREAMS,
    PUBLISHER,
    SERVER,
    STREAM_TABLE,
    named_by_server,
    permissions_of,
    stream_rights,
)
from noetl_stream.protocol.subjects import EVENTS

OURS: Final = (ADMIN, SERVER, GATEWAY, "worker-a")
WANTED: Final = StreamWanted(
    filter=StreamFilter(stream="ORDERS", subject="orders.>"), consumer="noetl-a", trigger="shop/a", from_ms=0
)
VERBS: Final = (
    *("STREAM.INFO", "STREAM.PURGE", "STREAM.DELETE", "STREAM.UPDATE", "STREAM.CREATE", "STREAM.MSG.GET"),
    *("STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "DIRECT.GET", "CONSUMER.NAMES", "CONSUMER.LIST"),
)
OF_CONSUMERS: Final = ("INFO", "CREATE", "DELETE", "MSG.NEXT", "DURABLE.CREATE", "PAUSE", "LEADER.STEPDOWN")


class Accounts:
    def __init__(self, server: NatsServer, seeds: dict[str, str]) -> None:
        self._server = server
        self._seeds = seeds
        self._opened: list[NatsConnection] = []

    async def connection(self, identity: str) -> NatsConnection:
        found = await NatsConnection.open(
            self._server.url,
            name=identity,
            nkey=self._seeds[identity],
            identity="" if identity == PUBLISHER else identity,
        )
        self._opened.append(found)
        return found

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, dict[str, str]]]:
    seeds = {identity: new_seed() for identity in (*OURS, PUBLISHER)}
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()}, ["ORDERS"])
    server = NatsServer(tmp_path_factory.mktemp("streams"), accounts)
    server.start()
    yield server, seeds
    server.end()


@pytest.fixture
async def accounts(served: tuple[NatsServer, dict[str, str]]) -> AsyncIterator[Accounts]:
    accounts = Accounts(*served)
    await ensure_streams(await accounts.connection(ADMIN))
    publisher = await accounts.connection(PUBLISHER)
    for name, subject in (("ORDERS", "orders.>"), ("PRIVATE", "private.>")):
        await publisher.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
        await publisher.api(f"STREAM.PURGE.{name}")
    yield accounts
    await accounts.close()


async def refused(connection: NatsConnection, subjects: set[str]) -> set[str]:
    """Those that this user may not publish."""
    with ExitStack() as stack:
        heard = {
            one: stack.enter_context(connection.refusals.until_refused("publish", one)) for one in sorted(subjects)
        }
        for subject in heard:
            await connection.client.publish(subject, b"")
        await connection.flush()
        return {subject for subject, refusal in heard.items() if refusal.done()}


async def test_a_server_reads_a_stream_that_is_named_and_acknowledges_it_across_accounts(accounts: Accounts) -> None:
    publisher = (await accounts.connection(PUBLISHER)).client.jetstream()
    streams = NatsTriggerStreams(await accounts.connection(SERVER), SystemClock())
    await publisher.publish("orders.paid", b"1", headers={"Kind": "a"})
    consumer = await streams.open(WANTED)
    [one] = await consumer.next_batch(10, 30.0)
    assert (one.message.subject, one.message.body, one.message.headers) == ("orders.paid", b"1", {"Kind": "a"})
    await consumer.acknowledge([one])
    await publisher.publish("orders.paid", b"2")
    [two] = await consumer.next_batch(10, 30.0)
    assert await consumer.pending() == 1, "the first is acknowledged"
    await consumer.acknowledge([two])
    await consumer.close()
    assert await streams.consumers("ORDERS") == ["noetl-a"]
    await streams.remove("ORDERS", "noetl-a")
    assert await streams.consumers("ORDERS") == []


@pytest.mark.parametrize("identity", OURS)
async def test_nobody_can_do_more_with_any_stream_of_a_publisher(accounts: Accounts, identity: str) -> None:
    connection = await accounts.connection(identity)
    tried = {"orders.paid", "private.x"}
    for stream in ("ORDERS", "PRIVATE", EVENTS, "*"):
        for prefix in (IMPORTED_STREAMS, "$JS.API", "noetl.api"):
            tried |= {f"{prefix}.{verb}.{stream}" for verb in VERBS}
            tried |= {f"{prefix}.CONSUMER.{verb}.{stream}.c" for verb in OF_CONSUMERS}
            tried |= {f"{prefix}.CONSUMER.CREATE.{stream}.c.{stream.lower()}.>"}
        tried |= {f"$JS.ACK.{stream}.c.1.1.1.1.1"}
    tried = {one for one in tried if "*" not in one and ">" not in one and not one.endswith(EVENTS)}
    allowed = set()
    if identity == SERVER:
        named = {
            named_by_server(row.subject).replace("*", "c").replace(">", "1.1.1.1.1")
            for row in stream_rights(["ORDERS"])
        }
        assert named <= tried and len(named) == len(STREAM_TABLE)
        allowed = named
    # What servers may do with the engine's own streams is told by test_nats_permissions.
    tried = {one for one in tried if f".{EVENTS}." not in one}
    assert tried - await refused(connection, tried) == allowed


async def test_a_stream_that_is_not_named_cannot_be_read(accounts: Accounts) -> None:
    streams = NatsTriggerStreams(await accounts.connection(SERVER), SystemClock())
    with pytest.raises(NotPermitted, match=r"does not let the identity 'server' publish .*PRIVATE"):
        await streams.open(
            StreamWanted(filter=StreamFilter(stream="PRIVATE"), consumer="noetl-a", trigger="a", from_ms=0)
        )


async def test_a_publisher_reaches_nothing_of_the_engine(accounts: Accounts) -> None:
    publisher, server = await accounts.connection(PUBLISHER), await accounts.connection(SERVER)
    before = (await stream_info(server, EVENTS)).state.last_seq
    for subject in ("noetl.events.1.e.requested", "noetl.events.1.e.reported.a", "noetl.stop", "noetl.ask.webhook"):
        await publisher.client.publish(subject, b"{}")
    await publisher.flush()
    with pytest.raises(ApiRefused) as found:
        await publisher.api(f"STREAM.INFO.{EVENTS}")
    assert found.value.err_code == STREAM_NOT_FOUND
    assert (await stream_info(server, EVENTS)).state.last_seq == before


async def test_a_publisher_cannot_have_a_server_publish_where_it_likes(accounts: Accounts) -> None:
    """A receipt is published where its message says: one that is forged would empty EVENTS."""
    publisher, server = await accounts.connection(PUBLISHER), await accounts.connection(SERVER)
    await (await accounts.connection(GATEWAY)).client.publish("noetl.events.1.e.requested", b"{}")
    asked = asyncio.Event()

    async def forge(message: Msg) -> None:
        if message.reply:
            asked.set()
            await publisher.client.publish(message.reply, b"{}", reply=f"$JS.API.STREAM.PURGE.{EVENTS}")

    await publisher.client.subscribe("$JS.API.CONSUMER.MSG.NEXT.ORDERS.*", cb=forge)
    await publisher.flush()
    streams = NatsTriggerStreams(server, SystemClock())
    consumer = await streams.open(WANTED)
    try:
        batch = await consumer.next_batch(10, 1.0)
    except ReaderBroken:
        batch = []
    await consumer.acknowledge(batch)
    await consumer.close()
    await server.flush()
    state = (await stream_info(server, EVENTS)).state
    assert batch == [] and state.messages == state.last_seq > 0
    assert asked.is_set(), "NATS hands the question to whoever listens there"


async def test_a_publisher_cannot_fill_the_disk_that_it_shares_with_the_engine(accounts: Accounts) -> None:
    publisher = await accounts.connection(PUBLISHER)
    tier = json.loads(await publisher.api("INFO"))
    assert 0 < tier["limits"]["max_storage"] <= 1 << 30
    with pytest.raises(ApiRefused, match="insufficient storage"):
        await publisher.api("STREAM.CREATE.LARGE", {"name": "LARGE", "subjects": ["large.>"], "max_bytes": 1 << 30})
    with pytest.raises(ApiRefused, match="insufficient memory"):
        await publisher.api(
            "STREAM.CREATE.LARGE",
            {"name": "LARGE", "subjects": ["large.>"], "storage": "memory", "max_bytes": 1 << 30},
        )


@pytest.mark.parametrize("stream", [EVENTS, "COMMANDS", "LOGS", "OBJ_noetl-results", "A.B", "*", ">", ""])
def test_the_streams_of_the_engine_are_never_open_to_triggers(stream: str) -> None:
    with pytest.raises(UsageError, match="triggers cannot read it"):
        permissions_of(SERVER, [stream])
