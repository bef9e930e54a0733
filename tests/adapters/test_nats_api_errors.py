"""Every error of JetStream that has a rule, given by a NATS that answers as these tests say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec
import pytest

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats import outbox as outbox_module
from noetl_stream.adapters.nats.api_errors import RULES
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.commands.fences import raise_fences
from noetl_stream.adapters.nats.commands.pool_consumer import find_consumer, make_consumer
from noetl_stream.adapters.nats.connections import connection as connection_module
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.outbox import HeldBatch, Outbox, publish_once
from noetl_stream.adapters.nats.streams import ensure_streams, stored_message
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.errors import NotReady, OutcomeUnknown
from noetl_stream.protocol.subjects import COMMANDS
from noetl_stream.storage import availability
from noetl_testkit.conformance.command_queue import command
from noetl_testkit.waiting import TIMEOUT_S

AGAIN = {503, 10008, 10013, 10039, 10076, 10096, 10158, 10167}
WAITED = {
    *(403, 10002, 10023, 10026, 10028, 10047, 10054, 10059, 10077, 10099, 10109, 10110, 10111),
    *(10118, 10119, 10121, 10153, 10194, 10195),
}
STOPS = {10005, 10027, 10052, 10058, 10065, 10074, 10113, 10120, 10122, 10123, 10124, 10226}

SUBJECT = "noetl.test"
ACK = b'{"stream":"TEST","seq":7}'
API = "FAKE.API"


def refusal(code: int) -> bytes:
    numbers = {"err_code": code} if code >= 10_000 else {"code": code}
    return msgspec.json.encode({"error": {"description": f"words of {code}", **numbers}})


class FakeJetStream:
    """Answers messages by a part of their subject: with each of its answers in turn, and with the last for ever."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self.answers: dict[str, list[bytes]] = {}
        self.heard: list[tuple[str, bytes]] = []

    def receive(self, subject: bytes, reply: bytes, _headers: bytes, body: bytes) -> None:
        self.heard.append((subject.decode(), body))
        answers = next(answers for part, answers in self.answers.items() if part in subject.decode())
        self._connection.wire.send(reply.decode(), answers.pop(0) if len(answers) > 1 else answers[0])

    def bodies(self, part: str) -> list[bytes]:
        return [body for subject, body in self.heard if part in subject]


@pytest.fixture(scope="module")
def empty_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server without streams."""
    server = NatsServer(tmp_path_factory.mktemp("empty"))
    server.start()
    yield server
    server.end()


@pytest.fixture
async def fake(empty_nats: NatsServer) -> AsyncIterator[FakeJetStream]:
    connection = await NatsConnection.open(empty_nats.url, name="fake")
    answering = FakeJetStream(connection)
    for pattern in (f"{API}.>", "noetl.>", "$O.>"):
        await connection.wire.subscribe(pattern, answering.receive)
    await connection.flush()
    yield answering
    await connection.close()


@pytest.fixture
async def role(
    empty_nats: NatsServer, fake: FakeJetStream, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NatsConnection]:
    """A connection that takes the fake for JetStream, and retries at once."""
    monkeypatch.setattr(connection_module, "LEADER_POLL_S", 0.0)
    monkeypatch.setattr(outbox_module, "RETRY_AFTER_S", 0.0)
    monkeypatch.setattr(outbox_module, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(availability, "FIRST_PAUSE_S", 0.0)
    connection = await NatsConnection.open(empty_nats.url, name="role")
    connection.jetstream = API
    async with asyncio.timeout(TIMEOUT_S):
        yield connection
    await connection.close()


def test_every_rule_is_expected_by_these_tests() -> None:
    found = {code: rule.treatment for code, rule in RULES.items()}
    assert found == {
        **dict.fromkeys(HANDLED, Treatment.HANDLED),
        **dict.fromkeys(AGAIN, Treatment.AGAIN),
        **dict.fromkeys(WAITED, Treatment.WAITED),
        **dict.fromkeys(STOPS, Treatment.STOPS),
    }


@pytest.mark.parametrize("code", sorted(AGAIN))
async def test_a_passing_error_is_retried(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {API: [refusal(code), b"{}"], SUBJECT: [refusal(code), ACK]}
    assert await role.api("STREAM.INFO.TEST") == b"{}"
    outbox = await Outbox.open(role)
    assert (await publish_once(outbox, SUBJECT, b"", {})).seq == 7
    await outbox.close()


@pytest.mark.parametrize("code", sorted(AGAIN))
async def test_an_error_that_does_not_pass_in_time_is_reported(
    role: NatsConnection, fake: FakeJetStream, code: int
) -> None:
    fake.answers = {SUBJECT: [refusal(code)]}
    outbox = await Outbox.open(role, leader_wait_s=0.0)
    with pytest.raises((ApiRefused, OutcomeUnknown), match=f"words of {code}"):
        await publish_once(outbox, SUBJECT, b"", {})
    await outbox.close()


@pytest.mark.parametrize("code", sorted(WAITED | {10_999}))
async def test_an_error_for_an_operator_is_reported_once_and_waited_for(
    role: NatsConnection, fake: FakeJetStream, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A role that opens something, and one that publishes. The last code has no rule."""
    fake.answers = {API: [refusal(code), refusal(code), b"{}"], SUBJECT: [refusal(code), refusal(code), ACK]}
    hint = RULES[code].hint if code in RULES else ""
    assert hint is not None, "somebody must be told what to do"
    said: list[str] = []
    with caplog.at_level(logging.WARNING):
        await availability.until_reached(SystemClock(), lambda: role.api("STREAM.INFO.TEST"), said.append)
        outbox = await Outbox.open(role)
        batch = HeldBatch(outbox, True)
        batch.put(SUBJECT, b"", "id")
        assert await batch.seal()
    assert said == [f"NATS refused STREAM.INFO.TEST: words of {code} (error {code if code >= 10_000 else 0})"]
    assert [record.message.split(":")[0] for record in caplog.records] == ["waiting", "will retry"]
    assert all(f"words of {code}" in record.message and hint in record.message for record in caplog.records)
    await outbox.close()


@pytest.mark.parametrize("code", sorted(STOPS))
async def test_a_lasting_error_ends_with_advice(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {"STREAM.INFO": [refusal(10059)], "STREAM.CREATE": [refusal(code)]}
    with pytest.raises(NotReady, match=f"EVENTS.*words of {code}") as raised:
        await ensure_streams(role)
    assert raised.value.hint == RULES[code].hint is not None


async def finds_no_consumer(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {"CONSUMER.INFO": [refusal(code)]}
    assert await find_consumer(role, "default") is None


async def finds_no_message(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {"STREAM.MSG.GET": [refusal(code)]}
    assert await stored_message(role, COMMANDS, {"seq": 1}) is None


async def makes_the_consumer_in_memory(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {"CONSUMER.INFO": [refusal(10014)], "CONSUMER.CREATE": [refusal(code), b"{}"]}
    await make_consumer(role, "default", 1.0)
    first, second = fake.bodies("CONSUMER.CREATE")
    assert b'"mem_storage":true' not in first and b'"mem_storage":true' in second


async def leaves_other_priorities_their_consumers(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {
        "CONSUMER.INFO": [refusal(10014)],
        "CONSUMER.CREATE": [refusal(code), b"{}"],
        "STREAM.INFO": [b'{"config":{},"state":{}}'],
    }
    await make_consumer(role, "default", 1.0)
    filters = [msgspec.json.decode(body)["config"]["filter_subject"] for body in fake.bodies("CONSUMER.CREATE")]
    assert filters == ["noetl.commands.default.>", "noetl.commands.default.5.*.*"]


async def raises_the_fence_again(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    fake.answers = {"STREAM.MSG.GET": [refusal(10037)], "noetl.fence": [refusal(code), ACK]}
    outbox = await Outbox.open(role)
    assert await raise_fences(role, outbox, "server", {3: 1}) == {3: 7}
    await outbox.close()


async def orders_messages(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    await raises_the_fence_again(role, fake, code)
    fake.answers = {
        "STREAM.MSG.GET": [refusal(10037)],
        "noetl.commands": [refusal(code), ACK],
        ".C.": [ACK],
        ".M.": [refusal(code), ACK],
    }
    queue = await NatsCommandQueue.open(role)
    assert not await queue.issue([command("one")], {})
    await queue.close()
    blobs = await NatsBlobs.open(role, SystemClock())
    await blobs.put("key", b"data")
    await blobs.close()
    assert len(fake.bodies(".M.")) == len(fake.bodies("noetl.commands")) == 2


async def learns_that_another_came_first(role: NatsConnection, fake: FakeJetStream, code: int) -> None:
    await raises_the_fence_again(role, fake, code)
    fake.answers = {
        "STREAM.MSG.GET": [refusal(10037)],
        "noetl.commands": [refusal(code)],
        ".C.": [ACK],
        ".M.": [refusal(code)],
    }
    queue = await NatsCommandQueue.open(role)
    assert len(await queue.issue([command("one")], {})) == 1, "the partition is another's"
    await queue.close()
    blobs = await NatsBlobs.open(role, SystemClock())
    await blobs.put("key", b"data")
    await blobs.close()
    assert len(fake.bodies(".M.")) == 1


HANDLED: dict[int, Callable[[NatsConnection, FakeJetStream, int], Awaitable[None]]] = {
    10012: makes_the_consumer_in_memory,
    10014: finds_no_consumer,
    10037: finds_no_message,
    10071: learns_that_another_came_first,
    10100: leaves_other_priorities_their_consumers,
    10104: makes_the_consumer_in_memory,
    10163: orders_messages,
    10164: orders_messages,
}


@pytest.mark.parametrize("code", sorted(HANDLED))
async def test_an_error_that_a_caller_expects_is_left_to_it(
    role: NatsConnection, fake: FakeJetStream, code: int
) -> None:
    await HANDLED[code](role, fake, code)
    assert fake.heard, "the scenario has asked"
