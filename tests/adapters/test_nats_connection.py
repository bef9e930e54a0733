"""Opening, losing and ending a connection, and the errors people see."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nats_process import NatsServer
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.connections.fast_path import FastWire
from noetl_stream.adapters.nats.connections.wire import PlainWire
from noetl_stream.errors import NotReady, Unreachable, UsageError
from noetl_stream.protocol.subjects import EVENTS
from noetl_testkit.waiting import TIMEOUT_S, until


async def test_an_unreachable_server_is_one_clear_line() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Unreachable) as raised:
            await NatsConnection.open(url, name="test", connect_timeout_s=0.3)
    assert str(raised.value) == f"cannot reach NATS at {url}: connection refused"


async def test_a_silent_peer_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="does not greet"):
            await NatsConnection.open(url, name="test", connect_timeout_s=0.3)


async def test_an_invalid_url_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="is not a NATS url"):
        await NatsConnection.open("nats://host:port", name="test", connect_timeout_s=5)


async def test_closing_ends_a_reconnection_that_swallows_its_cancellation(
    own_nats: NatsServer, own_connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_connecting = asyncio.Event()

    async def refused(_: object) -> None:
        is_first = not is_connecting.is_set()
        is_connecting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not is_first:
                raise
            raise ConnectionRefusedError("refused at this very moment") from None

    monkeypatch.setattr(own_connection.client, "_connect_to_server", refused)
    own_nats.kill()
    await is_connecting.wait()
    await own_connection.close()
    reconnecting = own_connection.client._reconnection_task  # noqa: SLF001
    assert reconnecting is not None
    assert reconnecting.done()


async def test_a_pong_that_comes_after_its_flush_was_given_up_ends_nothing(
    own_nats: NatsServer, own_nats_connection: NatsConnection, caplog: pytest.LogCaptureFixture
) -> None:
    own_nats.pause()
    flushing = asyncio.create_task(own_nats_connection.flush())
    await until(lambda: bool(own_nats_connection.client._pongs))  # noqa: SLF001  the ping is sent
    flushing.cancel()
    await asyncio.wait([flushing])
    own_nats.resume()
    await own_nats_connection.flush()
    assert not caplog.records


async def test_flushes_and_requests_of_a_lost_connection_are_sent_again_on_the_next(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    own_nats.pause()
    flushing = asyncio.create_task(own_connection.flush(TIMEOUT_S))
    asking = asyncio.create_task(own_connection.api(f"STREAM.INFO.{EVENTS}", timeout_s=TIMEOUT_S))
    await until(lambda: bool(own_connection.client._pongs))  # noqa: SLF001
    own_nats.kill()
    own_nats.start()
    await flushing
    assert EVENTS in (await asking).decode()


async def test_a_websocket_url_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="is a WebSocket url"):
        await NatsConnection.open("nats://127.0.0.1,wss://host", name="test")


async def test_a_refused_login_is_reported_at_once_and_without_the_password(
    own_nats: NatsServer, tmp_path: Path
) -> None:
    own_nats.kill()
    own_nats.start("--user", "noetl", "--pass", "right")
    right = await NatsConnection.open(f"nats://noetl:right@127.0.0.1:{own_nats.port}", name="test")
    await right.close()
    with pytest.raises(Unreachable) as raised:
        async with asyncio.timeout(TIMEOUT_S):
            await NatsConnection.open(
                f"nats://noetl:wrong@127.0.0.1:{own_nats.port}", name="test", connect_timeout_s=10 * TIMEOUT_S
            )
    assert "uthorization" in str(raised.value)
    assert "noetl:***@" in str(raised.value)
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize("url", ["nats://ann:s3cr/et@127.0.0.1:4222", "nats://ann:s3cr:et@127.0.0.1:port"])
async def test_an_invalid_url_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="is not a NATS url") as refused:
        await NatsConnection.open(url, name="test")
    assert "s3cr" not in str(refused.value)


async def test_the_fast_path_is_used_where_it_fits(shared_nats: NatsServer) -> None:
    fast = await NatsConnection.open(shared_nats.url, name="test")
    plain = await NatsConnection.open(shared_nats.url, name="test", fast=False)
    assert type(fast.wire) is FastWire
    assert type(plain.wire) is PlainWire
    await fast.close()
    await plain.close()


async def test_a_server_without_jetstream_is_not_ready(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.conf = tmp_path / "empty.conf"
    server.conf.write_text("")
    server.start()
    try:
        opened = await NatsConnection.open(server.url, name="test")
        with pytest.raises(NotReady, match="has no JetStream"):
            await opened.api("STREAM.INFO.EVENTS")
        await opened.close()
    finally:
        server.end()


async def test_a_jetstream_that_has_answered_is_waited_for_whatever_the_next_server_reports(
    own_nats: NatsServer, own_nats_connection: NatsConnection
) -> None:
    """A leaf node without JetStream of its own loses that of its hub for a while: no role must end for it."""
    await own_nats_connection.api("STREAM.NAMES")
    restored = asyncio.Event()
    own_nats_connection.on_restored(restored.set)
    own_nats.kill()
    own_nats.conf.write_text("")
    own_nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        await restored.wait()
    with pytest.raises(Unreachable):
        await own_nats_connection.api("STREAM.NAMES", timeout_s=0.1)


async def test_jetstream_of_another_server_of_a_cluster_is_waited_for(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.conf.write_text("cluster { name: one, listen: '127.0.0.1:-1' }\n")
    server.start()
    try:
        opened = await NatsConnection.open(server.url, name="test")
        with pytest.raises(Unreachable):
            await opened.api("STREAM.NAMES", timeout_s=0.1)
        await opened.close()
    finally:
        server.end()


ACCOUNTS = "accounts { A { %susers: [ { user: a, password: a } ] } }\nno_auth_user: a\n"


async def test_jetstream_that_comes_after_the_greeting_is_waited_for(tmp_path: Path) -> None:
    """A server greets while its JetStream starts: a role must not end for what the next moment mends."""
    server = NatsServer(tmp_path, ACCOUNTS % "")
    settings = server.conf.read_text()
    server.start()
    try:
        opened = await NatsConnection.open(server.url, name="test")
        asking = asyncio.create_task(opened.api("STREAM.NAMES", timeout_s=TIMEOUT_S))
        await opened.flush()
        assert not asking.done()
        server.conf.write_text(settings.replace(ACCOUNTS % "", ACCOUNTS % "jetstream: enabled, "))
        server.reload(1)
        assert b"stream_names_response" in await asking
        await opened.close()
    finally:
        server.end()


async def test_jetstream_that_does_not_come_is_waited_for_like_a_server_that_is_away(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, ACCOUNTS % "")
    server.start()
    try:
        opened = await NatsConnection.open(server.url, name="test")
        with pytest.raises(Unreachable, match=r"10039.*is JetStream starting"):
            await opened.api("STREAM.NAMES", timeout_s=0.1)
        await opened.close()
    finally:
        server.end()


async def test_a_refused_request_says_why(shared_nats: NatsServer) -> None:
    opened = await NatsConnection.open(shared_nats.url, name="test")
    with pytest.raises(ApiRefused, match="stream not found"):
        await opened.api("STREAM.INFO.NO-SUCH-STREAM")
    await opened.close()


async def test_a_request_to_a_hung_server_ends_in_time(own_nats: NatsServer) -> None:
    opened = await NatsConnection.open(own_nats.url, name="test")
    own_nats.pause()
    with pytest.raises(Unreachable, match=r"within 0\.3 s"):
        await opened.api("STREAM.INFO.EVENTS", timeout_s=0.3)
    own_nats.resume()
    await opened.close()


async def test_losing_and_restoring_the_line_calls_the_hooks(own_nats: NatsServer) -> None:
    opened = await NatsConnection.open(own_nats.url, name="test")
    lost, restored = asyncio.Event(), asyncio.Event()
    opened.on_lost(lost.set)
    opened.on_restored(restored.set)
    own_nats.kill()
    async with asyncio.timeout(TIMEOUT_S):
        await lost.wait()
    assert not opened.is_connected
    with pytest.raises(Unreachable, match="no connection for"):
        await opened.api("STREAM.INFO.EVENTS", timeout_s=0.1)
    own_nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        await restored.wait()
    assert opened.is_connected
    assert opened.line == 2
    await opened.close()


async def test_the_end_of_a_connection_calls_its_hooks(own_nats: NatsServer) -> None:
    opened = await NatsConnection.open(own_nats.url, name="test")
    ended = asyncio.Event()
    opened.on_ended(ended.set)
    # The server cuts off a client that sends more than it takes, and nats-py then closes for good.
    opened.wire.send("too.large", b"x" * (opened.max_payload + 1))
    async with asyncio.timeout(TIMEOUT_S):
        await ended.wait()
    assert opened.client.is_closed
    await opened.close()


async def test_closing_is_not_reported_as_an_end(shared_nats: NatsServer) -> None:
    opened = await NatsConnection.open(shared_nats.url, name="test")
    calls: list[str] = []
    opened.on_lost(lambda: calls.append("lost"))
    opened.on_ended(lambda: calls.append("ended"))
    await opened.close()
    await opened.close()
    assert calls == []


def test_a_program_that_cannot_connect_leaves_no_traceback_behind() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        program = (
            "import asyncio\n"
            "from noetl_stream.adapters.nats.connections.connection import NatsConnection\n"
            "from noetl_stream.errors import Unreachable\n"
            "try:\n"
            f"    asyncio.run(NatsConnection.open('nats://127.0.0.1:{bound.getsockname()[1]}', name='t',"
            " connect_timeout_s=0.2))\n"
            "except Unreachable as error:\n"
            "    print(error)\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.startswith("cannot reach NATS")
    assert ran.stderr == ""


def test_a_status_in_headers_is_read_without_the_librarys_own_jetstream() -> None:
    program = (
        "import asyncio, sys\n"
        "import noetl_stream.adapters.nats\n"
        "from noetl_stream.nats_client import PatientClient\n"
        "async def read(): return await PatientClient()._process_headers(b'NATS/1.0 404 No Messages\\r\\n\\r\\n')\n"
        "read = asyncio.run(read())\n"
        "print(read['Status'], read['Description'], *(name for name in sys.modules if name.startswith('nats.js')))\n"
        "from nats.js import api\n"
        "print(all(api.Header[one.name].value == one for one in noetl_stream.adapters.nats.Header))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["404 No Messages", "True"]
