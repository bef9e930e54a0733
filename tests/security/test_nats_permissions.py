"""What each identity can do on a real nats-server: its own subjects, nothing else (PROTOCOL §7 *Roles on the wire*)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from nats.aio.client import Client

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.connections.refusals import NotPermitted
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import delete_stream, ensure_streams
from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
from noetl_stream.errors import LoginRefused, Unreachable
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.protocol import subjects
from noetl_stream.protocol.nats_accounts import CORE_ACCOUNT, UNNAMED_ACCOUNT, nats_accounts
from noetl_stream.protocol.nats_permissions import (
    ADMIN,
    GATEWAY,
    JETSTREAM,
    POOL,
    SERVER,
    TABLE,
    WORKER,
    SubjectRights,
    named_in,
    permissions_of,
    pool_of,
    role_of,
)
from noetl_testkit.conformance.task_logs import stored
from noetl_testkit.waiting import TIMEOUT_S, until_it_is

IDENTITIES: Final = (ADMIN, SERVER, GATEWAY, "worker-a", "worker-b")
SOURCE: Final = Path(__file__).parents[2] / "src" / "noetl_stream"

FORBIDDEN_TO_ALL: Final = (
    "$JS.API.STREAM.DELETE.ORDERS",
    "$JS.API.STREAM.MSG.DELETE.EVENTS",
    "$JS.API.STREAM.MSG.DELETE.COMMANDS",
    "$JS.API.STREAM.SNAPSHOT.EVENTS",
    "$JS.API.CONSUMER.DELETE.COMMANDS.pool-a",
    "$JS.API.STREAM.NAMES",
    "$SYS.REQ.SERVER.PING",
    "noetl.events.1.e.reported",
    "noetl.anything",
)


class Wire:
    """A nats-server with the accounts of all identities, and a connection of each."""

    def __init__(self, server: NatsServer, seeds: dict[str, str]) -> None:
        self.server = server
        self.seeds = seeds
        self.connections: dict[str, NatsConnection] = {}

    async def connection(self, identity: str) -> NatsConnection:
        if identity not in self.connections:
            seed = self.seeds[identity]
            opened = await NatsConnection.open(self.server.url, name=identity, nkey=seed, identity=identity)
            self.connections[identity] = opened
        return self.connections[identity]

    async def close(self) -> None:
        for connection in self.connections.values():
            await connection.close()
        self.connections.clear()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, dict[str, str]]]:
    seeds = {identity: new_seed() for identity in IDENTITIES}
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()})
    server = NatsServer(tmp_path_factory.mktemp("permissions"), accounts)
    server.start()
    yield server, seeds
    server.end()


@pytest.fixture
async def wire(served: tuple[NatsServer, dict[str, str]]) -> AsyncIterator[Wire]:
    wire = Wire(*served)
    await ensure_streams(await wire.connection(ADMIN))
    yield wire
    await wire.close()


def concrete(row: SubjectRights, pool: str) -> str:
    """A subject that the row allows, for this pool."""
    subject = row.subject.replace(POOL, pool)
    return ".".join("x" if token in ("*", ">") else token for token in subject.split("."))


def may(identity: str, pool: str, row: SubjectRights, roles: Any) -> bool:
    return role_of(identity) in roles and (POOL not in row.subject or pool_of(identity) in ("", pool))


async def refused(connection: NatsConnection, verb: str, subjects: set[str]) -> set[str]:
    """Which of the subjects NATS refuses."""
    client: Client = connection.client
    with ExitStack() as stack:
        heard = {one: stack.enter_context(connection.refusals.until_refused(verb, one)) for one in sorted(subjects)}
        for subject in heard:
            if verb == "publish":
                await client.publish(subject, b"")
            else:
                await client.subscribe(subject)
        await connection.flush()
        return {subject for subject, refusal in heard.items() if refusal.done()}


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_publishes_only_what_the_table_allows(wire: Wire, identity: str) -> None:
    connection = await wire.connection(identity)
    # What is allowed would be done.
    done = {SERVER: "PURGE", ADMIN: "DELETE"}.get(identity, "nothing")
    rows = [(row, pool) for row in TABLE for pool in ("a", "b") if done not in row.subject]
    expected = {named_in(identity, concrete(row, pool)): False for row, pool in rows}
    for row, pool in rows:
        expected[named_in(identity, concrete(row, pool))] |= may(identity, pool, row, row.publish)
    if identity == SERVER:  # of any consumer of COMMANDS, those of workers included
        expected |= {one: True for one in expected if one.startswith("$JS.API.CONSUMER.INFO.COMMANDS.")}
    expected |= dict.fromkeys(FORBIDDEN_TO_ALL, False)
    expected |= {named_in(identity, subject): False for subject in FORBIDDEN_TO_ALL}
    expected |= {f"_INBOX_{other}.x": False for other in IDENTITIES}
    found = await refused(connection, "publish", set(expected))
    assert found == {subject for subject, allowed in expected.items() if not allowed}


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_hears_only_what_the_table_allows(wire: Wire, identity: str) -> None:
    connection = await wire.connection(identity)
    expected = {concrete(row, pool): False for row in TABLE for pool in ("a", "b")}
    for row in TABLE:
        for pool in ("a", "b"):
            expected[concrete(row, pool)] |= may(identity, pool, row, row.subscribe)
    expected |= {f"_INBOX_{other}.x": other == identity for other in IDENTITIES}
    expected |= dict.fromkeys(("_INBOX.x", ">", "noetl.>", "noetl.ask.>", "noetl.commands.>", "$JS.>", "_R_.>"), False)
    found = await refused(connection, "subscribe", set(expected))
    assert found == {subject for subject, allowed in expected.items() if not allowed}


DEPUTIES: Final = {
    "a pull": ("noetl.api.CONSUMER.MSG.NEXT.COMMANDS.pool-a", b'{"batch": 1, "no_wait": true}'),
    "an acknowledgement": ("$JS.ACK.COMMANDS.pool-a.1.1.1.1700000000000000000.0", b"+WPI"),
    "a read object": ("noetl.api.STREAM.MSG.GET.OBJ_noetl-results", b'{"last_by_subj": "$O.noetl-results.M.evil"}'),
    "a stored object": ("$O.noetl-results.M.evil", b"evil"),
    "a report": ("noetl.events.1.e.reported.a", b"{}"),
    "a question": ("noetl.ask.queue.a", b""),
}


@pytest.mark.parametrize("target", [
    "$JS.API.STREAM.PURGE.EVENTS",
    "$JS.API.STREAM.PURGE.COMMANDS",
    "$JS.API.STREAM.DELETE.EVENTS",
    "noetl.events.1.e.requested",
    "noetl.commands.b.5.e.evil",
    "_INBOX_gateway.x",
])  # fmt: skip
async def test_no_answer_goes_where_the_one_who_asked_may_not_publish(wire: Wire, target: str) -> None:
    """Before there were accounts, each of these emptied a stream, or stored what the worker may not store."""
    server, worker = await wire.connection(SERVER), await wire.connection("worker-a")
    queue, log = await NatsCommandQueue.open(server), await NatsEventLog.open(server, SystemClock())
    bus, ears, mine = NatsBus(server), [], SystemClock().random_bytes(8).hex()

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        bus.send(reply, b"")

    async def hear(subject: str, _body: bytes, _reply: str) -> None:
        ears.append(subject)

    await bus.listen("noetl.ask.queue.*", answer)
    await NatsBus(await wire.connection(GATEWAY)).listen("_INBOX_gateway.x", hear)
    await queue.add_pool("a")
    await queue.issue([QueuedCommand("a", "e", mine, 1, b"{}")], {})
    await worker.request("noetl.events.1.e.reported.a", b"{}", TIMEOUT_S)
    for subject, body in DEPUTIES.values():
        worker.wire.send(subject, body, target)
    await worker.flush()
    # An answer to the worker itself, asked last: those to the others have been sent by then.
    await worker.request("noetl.events.1.e.reported.a", b"{}", TIMEOUT_S)
    left = await queue.present()
    assert mine in left and "evil" not in left
    assert await log.first_sequence() <= await log.last_sequence() - 1
    gateway = await wire.connection(GATEWAY)
    info = json.loads(await gateway.api("STREAM.INFO.EVENTS", {"subjects_filter": "noetl.events.1.e.requested"}))
    assert not info["state"].get("subjects")
    assert ears == []
    await queue.withdraw([("e", mine)])


async def test_a_server_trims_events_and_writes_checkpoints_under_its_rights(wire: Wire) -> None:
    log = await NatsEventLog.open(await wire.connection(SERVER), SystemClock())
    await log.publish_checkpoints([DecidedMessage(1, "e", "checkpoint", b"{}")])
    first = await log.first_sequence()
    await log.trim(first)
    assert await log.first_sequence() == first + 1
    await log.close()


@pytest.mark.parametrize("identity", [SERVER, GATEWAY, "worker-a"])
async def test_only_an_admin_deletes_a_stream_and_others_hear_so_at_once(wire: Wire, identity: str) -> None:
    with pytest.raises(NotPermitted, match=f"does not let the identity '{identity}' publish") as caught:
        await delete_stream(await wire.connection(identity), subjects.EVENTS)
    assert "may still delete" not in str(caught.value)


async def test_an_admin_sees_that_no_command_waits_before_it_changes_the_partitions(wire: Wire) -> None:
    seen = [await NatsCommandQueue.open(await wire.connection(identity)) for identity in (ADMIN, SERVER)]
    assert await seen[0].present() == await seen[1].present()


async def test_a_refused_subject_is_an_error_that_says_who_what_and_what_to_do(wire: Wire) -> None:
    worker = await wire.connection("worker-a")
    log, bus = await NatsEventLog.open(worker, SystemClock()), NatsBus(worker)
    for attempt in (
        bus.ask("noetl.ask.secret.b", b"", TIMEOUT_S),
        bus.listen("noetl.ask.workers.b", _ignore),
        worker.api("STREAM.PURGE.EVENTS"),
    ):
        with pytest.raises(NotPermitted, match="does not let the identity 'worker-a'") as caught:
            await attempt
        assert "noetl-stream nats accounts" in str(caught.value)
    with pytest.raises(Unreachable, match=r"NATS refused noetl\.events.*reported\.b: this user may not publish there"):
        await log.publish_report("e", "b", "m", b"{}")


@pytest.mark.parametrize(
    ("identity", "holds"), [("worker-b", "worker-a"), ("worker-night", "worker-a"), (SERVER, GATEWAY)]
)
async def test_a_process_with_the_seed_of_another_identity_ends_and_says_which_it_needs(
    wire: Wire, identity: str, holds: str
) -> None:
    """It would wait for answers in vain: a pool without an account of its own has no queue that its workers find."""
    with pytest.raises(LoginRefused, match=f"as another identity than '{identity}'") as caught:
        await NatsConnection.open(wire.server.url, name="test", nkey=wire.seeds[holds], identity=identity)
    pool = f" --pool {pool_of(identity)}" if pool_of(identity) else ""
    assert f"the seed of {identity}, which `noetl-stream nats accounts{pool}` makes" in str(caught.value)


async def test_a_seed_that_nats_does_not_know_yet_is_refused_with_what_makes_it_known(wire: Wire) -> None:
    with pytest.raises(LoginRefused, match="Authorization Violation") as caught:
        await NatsConnection.open(wire.server.url, name="test", nkey=new_seed(), identity="worker-night")
    assert "the accounts that `noetl-stream nats accounts --pool night` prints, and reload it twice" in str(
        caught.value
    )


async def test_work_goes_from_a_server_to_a_worker_and_back_under_exactly_these_rights(wire: Wire) -> None:
    server, gateway, worker = [await wire.connection(one) for one in (SERVER, GATEWAY, "worker-b")]
    queue, clock = await NatsCommandQueue.open(server), SystemClock()

    async def make(subject: str, _body: bytes, reply: str) -> None:
        await queue.add_pool(subject.rpartition(".")[2])
        NatsBus(server).send(reply, b"")

    async def present(_subject: str, _body: bytes, reply: str) -> None:
        NatsBus(worker).send(reply, b"here")

    async def is_queued() -> bool:
        return "work" in await queue.present()

    await NatsBus(server).listen("noetl.ask.queue.*", make)
    source = await (await NatsCommandQueue.open(worker)).open_source("b")
    source.request(1)
    log = await NatsEventLog.open(server, clock)
    reader = await log.open_reader(range(32), await log.last_sequence())
    await (await NatsEventLog.open(gateway, clock)).publish_request("e", "request", b"request")
    fences = await queue.fence("server-1", {partition_of("fenced"): 1})
    await queue.issue([QueuedCommand("b", "fenced", "work", 1, b"command")], fences)
    async with asyncio.timeout(TIMEOUT_S):
        delivery = await source.next()
    assert delivery.subject == subjects.command_subject("b", "fenced", "work")
    for priority in (9, 0):
        await queue.issue([QueuedCommand("b", "fenced", f"at-{priority}", 1, b"", priority)], fences)
        source.request(1)
        async with asyncio.timeout(TIMEOUT_S):
            (await source.next()).ack()
    await (await NatsBlobs.open(worker, clock)).put("e/result", b"result")
    await (await NatsEventLog.open(worker, clock)).publish_report("e", "b", "report", b"report")
    delivery.ack()
    await worker.flush()
    read: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(read) < 2:
            read += [message.body for message in await reader.next_batch(2)]
    assert read == [b"request", b"report"]
    await until_it_is(False, is_queued)
    assert await (await NatsBlobs.open(gateway, clock)).get("e/result") == b"result"
    await NatsBus(worker).listen("noetl.ask.workers.b", present)
    assert await NatsBus(gateway).ask_all("noetl.ask.workers.b", b"", 0.3) == [b"here"]
    assert [pool.pool for pool in await (await NatsCommandQueue.open(gateway)).pools() if pool.pool == "b"] == ["b"]
    await source.close()


async def test_logs_go_from_a_worker_to_a_gateway_and_a_server_deletes_them(wire: Wire) -> None:
    of = {one: await NatsTaskLogs.open(await wire.connection(one)) for one in (SERVER, GATEWAY, "worker-a", "worker-b")}
    mine = subjects.task_logs("a", "execution-1", "run-1")
    for number in range(3):
        assert await stored(of["worker-a"], mine, f"worker.{number}", b"%d" % number * 60_000) == ""
    read = await of[GATEWAY].read("execution-1", 0)
    assert [(batch.pool, batch.body[:1]) for batch in read] == [("a", b"0"), ("a", b"1"), ("a", b"2")]
    for identity in (GATEWAY, "worker-b"):
        assert "may not publish" in await stored(of[identity], mine, f"{identity}.1", b"forged")
    for identity in ("worker-a", "worker-b"):
        with pytest.raises(NotPermitted):
            await of[identity].read("execution-1", 0)
    await of[SERVER].delete("execution-1")
    assert await of[GATEWAY].read("execution-1", 0) == []
    for logs in of.values():
        await logs.close()


async def test_streams_of_a_server_without_accounts_are_kept_when_their_folder_is_moved(tmp_path: Path) -> None:
    open_to_all = NatsServer(tmp_path)
    open_to_all.start()
    connection = await NatsConnection.open(open_to_all.url, name="before")
    await ensure_streams(connection)
    for old in ("noetl.events.1.e.reported", "noetl.commands.a.e.c"):  # the subjects of version 0.2
        assert await connection.request(old, b"kept", TIMEOUT_S) is not None
    await connection.close()
    open_to_all.kill()
    streams = tmp_path / "nats-data" / "jetstream"
    (streams / UNNAMED_ACCOUNT).rename(streams / CORE_ACCOUNT)
    seeds = {identity: new_seed() for identity in IDENTITIES}
    wire = Wire(NatsServer(tmp_path, nats_accounts({one: public_nkey(seed) for one, seed in seeds.items()})), seeds)
    wire.server.start()
    try:
        assert await ensure_streams(await wire.connection(ADMIN)) == []
        server = await wire.connection(SERVER)
        reader = await (await NatsEventLog.open(server, SystemClock())).open_reader(range(32), 0)
        async with asyncio.timeout(TIMEOUT_S):
            (message,) = await reader.next_batch(1)
        assert (message.body, subjects.sender_of(message.subject)) == (b"kept", subjects.Sender("reported"))
        queue = await NatsCommandQueue.open(server)
        await queue.add_pool("a")
        source = await (await NatsCommandQueue.open(await wire.connection("worker-a"))).open_source("a")
        source.request(1)
        async with asyncio.timeout(TIMEOUT_S):
            assert (await source.next()).body == b"kept"
        await source.close()
        await queue.withdraw([("e", "c")])
        assert await queue.present() == {}
    finally:
        await wire.close()
        wire.server.end()


async def test_a_pool_that_is_added_works_after_two_reloads(tmp_path: Path) -> None:
    """After one, nats-server 2.15 has the account of the pool, but none of its imports."""
    seeds = {identity: new_seed() for identity in IDENTITIES}
    keys = {identity: public_nkey(seed) for identity, seed in seeds.items()}
    wire = Wire(NatsServer(tmp_path, nats_accounts({one: keys[one] for one in IDENTITIES[:-1]})), seeds)
    wire.server.start()
    try:
        await ensure_streams(await wire.connection(ADMIN))
        queue = await NatsCommandQueue.open(await wire.connection(SERVER))
        await queue.add_pool("b")
        shipped = wire.server.conf.read_text()
        wire.server.conf.write_text(shipped[: shipped.index("accounts {")] + nats_accounts(keys))
        for reloads in (1, 2):
            await asyncio.to_thread(wire.server.reload, reloads)
        worker = await NatsCommandQueue.open(await wire.connection("worker-b"))
        assert (await worker.open_source("b")).connected_ms > 0
    finally:
        await wire.close()
        wire.server.end()


def test_every_subject_in_the_code_is_in_the_table() -> None:
    """Subjects are written in few places; what begins like one of ours is looked up, up to its first variable part."""
    known = [row.subject.replace(POOL, "*") for row in TABLE]
    written = set()
    folders = ("adapters/nats", "protocol", "ports", "server")
    for file in (file for folder in folders for file in (SOURCE / folder).rglob("*.py")):
        if file.name in ("nats_permissions.py", "nats_accounts.py", "traces.py"):  # the last has names of attributes
            continue
        text = file.read_text()
        written |= set(re.findall(r'"(noetl\.[a-z]+(?:\.[a-z]+)*)', text))
        written |= {f"{JETSTREAM}.{one}" for one in re.findall(r'"((?:STREAM|CONSUMER|DIRECT)\.[A-Z.]+)\.\{', text)}
    missing = {one for one in written if not any(f"{subject}.".startswith(f"{one}.") for subject in known)}
    assert missing == set()
    assert len(written) > 25


@pytest.mark.parametrize("identity", IDENTITIES)
def test_nobody_may_send_itself_what_it_hears_and_answer_it(identity: str) -> None:
    """An answer to a message of one's own would go wherever that message says."""
    rights = permissions_of(identity)
    both = set(rights.publish) & set(rights.subscribe)
    assert both == ({"noetl.servers", "noetl.inbox"} if role_of(identity) == SERVER else set()), WORKER


async def _ignore(_subject: str, _body: bytes, _reply: str) -> None:
    """Nothing."""
