"""The bus between two connections, and without a server."""

from __future__ import annotations

import asyncio

import pytest

from nats_process import NatsServer
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import Unreachable
from noetl_testkit.conformance.bus import RecordingHandler
from noetl_testkit.waiting import TIMEOUT_S
from slow_line import slow_line


async def test_a_subscription_is_active_when_listen_returns(
    connection: NatsConnection, shared_nats: NatsServer
) -> None:
    other = await NatsConnection.open(shared_nats.url, name="other")
    here, there = NatsBus(connection), NatsBus(other)
    for number in range(50):
        ear = RecordingHandler()
        here.send("noetl.nudge.nobody", b"")
        subscription = await here.listen(f"noetl.live.{number}", ear)
        there.send(f"noetl.live.{number}", b"at once")
        assert (await ear.next())[1] == b"at once"
        await subscription.close()
    await other.close()


async def test_a_subscription_receives_again_after_a_restart_of_the_server(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    bus, ear = NatsBus(own_connection), RecordingHandler()
    await bus.listen("noetl.live", ear)
    restored = asyncio.Event()
    own_connection.on_restored(restored.set)
    own_nats.kill()
    bus.send("noetl.live", b"lost")
    own_nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        await restored.wait()
    bus.send("noetl.live", b"heard")
    assert (await ear.next())[1] == b"heard"


async def test_a_handler_may_end_its_own_subscription(connection: NatsConnection) -> None:
    bus, ended = NatsBus(connection), asyncio.Event()

    async def hear_once(subject: str, body: bytes, reply: str) -> None:
        await subscription.close()
        await asyncio.sleep(0)
        ended.set()

    subscription = await bus.listen("noetl.live.once", hear_once)
    bus.send("noetl.live.once", b"last")
    assert await asyncio.wait_for(ended.wait(), TIMEOUT_S)


async def test_listening_to_a_hung_server_ends_in_time(own_nats: NatsServer, own_connection: NatsConnection) -> None:
    own_nats.pause()
    with pytest.raises(Unreachable, match="no answer within"):
        await own_connection.flush(1)
    own_nats.resume()


@pytest.mark.verify
async def test_answers_of_all_come_from_far_away(connection: NatsConnection, shared_nats: NatsServer) -> None:
    """Their way takes four times as long as there is patience for each."""
    near = NatsBus(connection)

    async def answer(_subject: str, body: bytes, reply: str) -> None:
        near.send(reply, body)

    await near.listen("noetl.ask.workers", answer)
    async with slow_line(shared_nats.url, 0.6) as url:
        far = await NatsConnection.open(url, name="far")
        try:
            assert await NatsBus(far).ask_all("noetl.ask.workers", b"who", 0.3) == [b"who"]
        finally:
            await far.close()
