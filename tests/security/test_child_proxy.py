"""Programs of tasks reach what tools may connect to, by the proxy of their child, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.egress import EgressRules, egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.children.measures import confinement_of
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.proxy.egress_proxy import MAX_CONNECTIONS, MAX_HEAD_BYTES, EgressProxy
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

needs_namespaces = pytest.mark.skipif(
    confinement_of(ChildSettings()).level != "full", reason="the kernel gives children no network of their own"
)


class Server:
    """A server of this machine that keeps what it is sent, and answers the first of it."""

    def __init__(self, answer: bytes) -> None:
        self.received: list[bytes] = []
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            self.received.append(await reader.read(65536))
            writer.write(self._answer)
            await reader.read()
        writer.close()


@contextlib.asynccontextmanager
async def served(
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(answer)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        yield server, listening.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def proxied(
    rules: EgressRules | None = None, proxy: EgressProxy | None = None
) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """Yields what connects to the proxy of a child, which this process stands for."""
    own = (proxy or EgressProxy(Egress(rules))).open()
    with socket.create_server(("127.0.0.1", 0)) as listener, own.child_end as channel:
        socket.send_fds(channel, [b"."], [listener.fileno()])
        address = listener.getsockname()
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        reader, writer = await asyncio.open_connection(*address)
        opened.append(writer)
        return reader, writer

    yield connect
    own.close()
    for writer in opened:
        writer.close()


async def said(connecting: Callable[[], Awaitable[Streams]], request: bytes) -> bytes:
    """Returns all that is answered to a request."""
    reader, writer = await connecting()
    writer.write(request)
    return await asyncio.wait_for(reader.read(), 60)


def tunnel(place: str) -> bytes:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()


@pytest.mark.parametrize("request_line", ["CONNECT {} HTTP/1.1", "GET http://{}/ HTTP/1.1"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "[::ffff:127.0.0.1]", "169.254.169.254"])
async def test_a_forbidden_server_is_refused_and_the_answer_says_which_rule(host: str, request_line: str) -> None:
    async with served() as (server, port), proxied() as connect:
        answer = await said(connect, f"{request_line.format(f'{host}:{port}')}\r\n\r\n".encode())
    first, body = answer.split(b"\r\n", 1)
    assert first.startswith(b"HTTP/1.1 403 Forbidden: " + f"{host.strip('[]')}:{port}: ".encode())
    assert b"NOETL_EGRESS_ALLOW" in first
    assert b"NOETL_EGRESS_ALLOW" in body
    assert server.received == []


async def test_a_denied_address_is_refused_though_it_is_public() -> None:
    rules = EgressRules(denied=egress_rules("8.8.8.0/24:25").allowed)
    async with proxied(rules) as connect:
        answer = await said(connect, tunnel("8.8.8.8:25"))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"port 25 is closed to tasks by the worker's operator (NOETL_EGRESS_DENY)" in answer


async def test_a_name_that_changes_its_address_after_the_check_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is allowed, the second is not. There is no second question."""
    asked: list[str] = []

    async def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        address = "127.0.0.2" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async with served() as (server, port), proxied(egress_rules("127.0.0.2")) as connect:
        streams = await connect()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
        streams[1].write(tunnel(f"rebinding.example:{port}"))
        answer = await asyncio.wait_for(streams[0].read(), 60)
    assert asked == ["rebinding.example"]
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert server.received == []


async def test_a_connection_carries_what_both_sides_send_and_the_end_of_either() -> None:
    async with served(b"pong") as (server, port), proxied(egress_rules("loopback")) as connect:
        reader, writer = await connect()
        writer.write(tunnel(f"localhost:{port}") + b"ping")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.readexactly(4) == b"pong"
        writer.write_eof()
        assert await reader.read() == b""
    assert server.received == [b"ping"]


async def test_a_request_is_answered_once_for_each_connection() -> None:
    """The next one may be for another server."""
    async with served() as (server, port), proxied(egress_rules("loopback")) as connect:
        reader, writer = await connect()
        writer.write(f"GET http://127.0.0.1:{port}/a HTTP/1.1\r\nProxy-Connection: keep-alive\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(2) == b"ok"
        writer.write_eof()
        assert await reader.read() == b""
    assert b"Connection: close" in head
    assert server.received == [f"GET /a HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [(b"hello\r\n\r\n", 400), (b"GET http://a/ HTTP/1.1\r\nA: " + b"a" * 2 * MAX_HEAD_BYTES, 400)],
)
async def test_a_request_that_is_no_http_or_too_long_is_refused(request_text: bytes, status: int) -> None:
    async with proxied() as connect:
        assert (await said(connect, request_text)).startswith(b"HTTP/1.1 %d " % status)


async def test_a_server_that_does_not_speak_http_or_does_not_listen_is_a_bad_gateway() -> None:
    async with served(b"+OK POP3 ready\r\n" * 5000) as (_, port), proxied(egress_rules("loopback")) as connect:
        answer = await said(connect, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway: the server did not answer in HTTP/1.1")
    async with proxied(egress_rules("loopback")) as connect:
        answer = await said(connect, tunnel(f"127.0.0.1:{port}"))
        assert answer.startswith(f"HTTP/1.1 502 Bad Gateway: 127.0.0.1:{port}: ".encode())


async def test_a_child_with_too_many_connections_is_told_why_and_gets_one_when_another_ends() -> None:
    async with served(b"pong") as (_, port), proxied(egress_rules("loopback")) as connect:
        held = [await connect() for _ in range(MAX_CONNECTIONS)]
        for reader, writer in held:
            writer.write(tunnel(f"127.0.0.1:{port}"))
            await reader.readuntil(b"\r\n\r\n")
        answer = await said(connect, tunnel(f"127.0.0.1:{port}"))
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable: this task and its processes have 64 connections")
        reader, writer = held.pop()
        writer.write_eof()
        await reader.read()
        reader, writer = await connect()
        writer.write(tunnel(f"127.0.0.1:{port}"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_the_bound_for_all_children_together_is_reported() -> None:
    proxy = EgressProxy(Egress())
    proxy.connections = proxy.most
    async with proxied(proxy=proxy) as connect:
        assert b" 503 Service Unavailable: all tasks of this kind have " in await said(connect, b"")


async def test_a_connection_on_which_nobody_sends_ends() -> None:
    proxy = EgressProxy(Egress(egress_rules("loopback")), idle_s=0.05)
    async with served() as (_, port), proxied(proxy=proxy) as connect:
        assert await said(connect, tunnel(f"127.0.0.1:{port}")) == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_the_operators_own_proxy_leads_to_the_internet_but_not_where_tasks_may_not_go() -> None:
    async with served(b"HTTP/1.1 200 OK\r\n\r\n") as (further, port):
        url = f"http://me:s%20p@127.0.0.1:{port}"
        async with proxied(proxy=EgressProxy(Egress(egress_rules("none")), url)) as connect:
            reader, writer = await connect()
            writer.write(tunnel("8.8.8.8:443"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\n\r\n"
            reader, writer = await connect()
            writer.write(b"GET http://8.8.8.8/a HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            assert (await said(connect, tunnel("169.254.169.254:80"))).startswith(b"HTTP/1.1 403 ")
    login = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:s p") + b"\r\n"
    assert further.received == [
        b"CONNECT 8.8.8.8:443 HTTP/1.1\r\n" + login + b"Host: 8.8.8.8:443\r\n\r\n",
        b"GET http://8.8.8.8/a HTTP/1.1\r\n" + login + b"Host: 8.8.8.8\r\nConnection: close\r\n\r\n",
    ]


def test_an_operators_proxy_that_children_cannot_use_is_refused_when_a_worker_starts() -> None:
    settings = ToolSettings(children=ChildSettings(network="proxy"), http_proxy="https://proxy.example.com")
    for tool in (PythonTool, ShellTool):
        with pytest.raises(UsageError, match="cannot use an https:// NOETL_HTTP_PROXY"):
            tool.configured(settings)


DIRECTLY = "import socket; socket.create_connection(('127.0.0.2', {port}), 60)"
BY_PROXY = "import urllib.request; text = urllib.request.urlopen('http://127.0.0.2:{port}/').read().decode()"


@needs_namespaces
@pytest.mark.parametrize(("allow", "reached"), [("127.0.0.2", True), ("none", False)])
async def test_python_and_shell_reach_what_is_allowed_by_their_proxy_alone(allow: str, reached: bool) -> None:
    settings = ToolSettings(egress_rules(allow), children=ChildSettings(network="proxy"))
    python, shell = PythonTool.configured(settings), ShellTool.configured(settings)
    server = Server(OK)
    async with await asyncio.start_server(server.serve, "127.0.0.2", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        directly, by_proxy = DIRECTLY.format(port=port), BY_PROXY.format(port=port)
        program = [sys.executable, "-I", "-c", f"{by_proxy}; print(text, end='')"]
        found = [
            await result_of(python, {"code": directly}),
            await result_of(python, {"code": f"{by_proxy}\nreturn text"}),
            await result_of(shell, {"command": program}),
        ]
        await python.close()
        await shell.close()
    assert "ConnectionRefusedError" in found[0]
    if reached:
        assert found[1:] == ["ok", "ok"]
    else:
        assert all("HTTP Error 403: Forbidden: 127.0.0.2" in text for text in found[1:]), found
    assert len(server.received) == (2 if reached else 0)


async def result_of(tool: PythonTool | ShellTool, inputs: dict[str, Any]) -> Any:
    """What a task returns or prints, or why it fails."""
    try:
        result = (await tool.run(tool_call(inputs))).result
    except ToolFailure as failed:
        return failed.error.message
    return result["stdout"] if isinstance(result, dict) else result
