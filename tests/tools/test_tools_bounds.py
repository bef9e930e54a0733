"""Whatever a task's source sends, the worker's memory grows by no more than the bound of the kind asks for."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from noetl_testkit.waiting import TIMEOUT_S

MiB: Final = 1024 * 1024
KNOB: Final = 8 * MiB
"""What the tasks here may receive."""
GROWTH: Final = 8 * KNOB
"""What the worker may take for that: what arrived, parsed values, and JSON."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """Serves connections until the client has gone, and yields the port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def endless(writer: asyncio.StreamWriter, part: bytes) -> None:
    while True:
        writer.write(part)
        await writer.drain()


async def endless_json(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_HEAD + b"\r\n[")
    await endless(writer, b"1," * 32_768)


async def packed_zeros(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = gzip.compress(b"0" * 500 * MiB)
    writer.write(_HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def endless_chunk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n")
    await endless(writer, b"x" * 65_536)


async def endless_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_HEAD + b"X: ")
    await endless(writer, b"x" * 65_536)


async def endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_HEAD)
    await endless(writer, b"X: y\r\n" * 10_000)


async def endless_trailer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    await endless(writer, b"X: y\r\n" * 10_000)


async def endless_interim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await endless(writer, b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 2_000)


async def greet_as_nats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    info = {"server_id": "x", "version": "2.10.0", "max_payload": 2**40, "proto": 1, "headers": True}
    writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
    while not (line := await reader.readline()).startswith((b"PUB", b"HPUB")):
        if line.startswith(b"PING"):
            writer.write(b"PONG\r\n")


async def endless_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet_as_nats(reader, writer)
    writer.write(b"MSG x 1 9000000000\r\n")
    await endless(writer, b"x" * 65_536)


async def endless_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet_as_nats(reader, writer)
    await endless(writer, (b"MSG x 1 10000\r\n" + b"x" * 10_000 + b"\r\n") * 5)


async def endless_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet_as_nats(reader, writer)
    await endless(writer, b"INFO " + b"x" * 65_536)


async def growth_of(kind: str, inputs: dict[str, Any], *, timeout_s: float = TIMEOUT_S, **given: Any) -> dict[str, Any]:
    """How a task ended in a process of its own, and how much that grew."""
    task = {"kind": kind, "inputs": inputs, "timeout_s": timeout_s, "egress": "loopback"}
    task = {"knobs": {}, "credentials": {}, "first": None, **task, **given}
    program = Path(__file__).with_name("bounded_call.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), stdin=PIPE, stdout=PIPE)
    out, _ = await process.communicate(json.dumps(task).encode())
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    ("serve", "end"),
    [
        (endless_json, "output_too_large"),
        pytest.param(packed_zeros, "output_too_large", marks=pytest.mark.verify),
        (endless_chunk, "output_too_large"),
        (endless_header, "output_too_large"),
        (endless_headers, "output_too_large"),
        (endless_trailer, "output_too_large"),
        pytest.param(endless_interim, "timeout of the task", marks=pytest.mark.verify),
    ],
)
async def test_a_response_takes_no_more_than_its_bound(serve: Serve, end: str) -> None:
    async with listening(serve) as port:
        inputs = {"url": f"http://127.0.0.1:{port}/"}
        timeout_s = 5.0 if end.startswith("timeout") else TIMEOUT_S
        found = await growth_of("http", inputs, knobs={"max_response_bytes": KNOB}, timeout_s=timeout_s)
    assert found["end"] == end
    assert found["grown_bytes"] < GROWTH


@pytest.mark.parametrize(
    ("serve", "end"),
    [
        (endless_message, "output_too_large"),
        (endless_line, "output_too_large"),
        pytest.param(endless_messages, "timeout of the task", marks=pytest.mark.verify),
    ],
)
async def test_a_message_of_nats_takes_no_more_than_its_bound(serve: Serve, end: str) -> None:
    async with listening(serve) as port:
        inputs = {"action": "request", "subject": "a", "auth": "nats"}
        timeout_s = 5.0 if end.startswith("timeout") else TIMEOUT_S
        credentials = {"nats": f"nats://127.0.0.1:{port}"}
        found = await growth_of("nats", inputs, credentials=credentials, timeout_s=timeout_s)
    assert found["end"] == end
    assert found["grown_bytes"] < 3 * 64 * MiB


@pytest.mark.parametrize(
    "command",
    [
        "select repeat('x', 500000000) as a",
        pytest.param("select repeat('x', 10000000) as a from generate_series(1, 60)", marks=pytest.mark.verify),
        pytest.param("select repeat('x', 1000) as a from generate_series(1, 1000000)", marks=pytest.mark.verify),
        "select array_agg(n) as a from generate_series(1, 10000000) as n",
    ],
)
async def test_a_statement_of_postgres_takes_no_more_than_its_bound(postgres_dsn: str, command: str) -> None:
    inputs, folder = {"auth": "db"}, postgres_dsn.partition("host=")[2]
    found = await growth_of(
        "postgres",
        {**inputs, "command": command},
        first={**inputs, "command": "select 1"},
        knobs={"max_result_bytes": KNOB},
        credentials={"db": postgres_dsn},
        egress=folder,
    )
    assert found["end"] == "result_too_large"
    assert found["grown_bytes"] < GROWTH


async def endless_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A false Postgres: no TLS, and an answer to the start that never ends."""
    request = await reader.readexactly(8)
    if int.from_bytes(request[4:]) == 80877103:
        writer.write(b"N")
        request = await reader.readexactly(8)
    await reader.readexactly(int.from_bytes(request[:4]) - 8)
    writer.write(b"R" + (2**31 - 1).to_bytes(4))
    await endless(writer, b"x" * 65_536)


@pytest.mark.parametrize("sslmode", ["disable", "prefer"])
async def test_a_false_postgres_takes_no_more_before_it_is_connected(sslmode: str) -> None:
    async with listening(endless_greeting) as port:
        credentials = {"db": f"postgresql://u:p@127.0.0.1:{port}/d?sslmode={sslmode}"}
        found = await growth_of("postgres", {"auth": "db", "command": "select 1"}, credentials=credentials)
    assert found["end"] == "connection"
    assert found["grown_bytes"] < GROWTH


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("select repeat('x', 10000000) as a from range(20)", "result_too_large"),
        ("select repeat('x', 1000) as a from range(1000000)", "result_too_large"),
        pytest.param("select repeat('x', 500000000) as a", "sql", marks=pytest.mark.verify),
        ("select " + ", ".join(f"lpad('a', 500000000, '{n}') as c{n}" for n in range(4)), "timeout of the task"),
    ],
)
async def test_a_statement_of_duckdb_takes_no_more_than_its_bound(command: str, end: str) -> None:
    timeout_s = 5.0 if end.startswith("timeout") else TIMEOUT_S
    knobs, first = {"max_result_bytes": KNOB}, {"command": "select 1"}
    found = await growth_of("duckdb", {"command": command}, first=first, knobs=knobs, timeout_s=timeout_s)
    assert found["end"] == end
    assert found["grown_bytes"] < GROWTH


@pytest.mark.parametrize(
    ("kind", "inputs", "knobs", "end"),
    [
        ("python", {"code": "return 'x' * 500_000_000"}, {"max_result_bytes": KNOB}, "result_too_large"),
        ("python", {"code": "while True: print('x' * 100_000)"}, {}, "timeout of the task"),
        pytest.param(
            "shell", {"command": "yes"}, {"max_output_bytes": KNOB}, "timeout of the task", marks=pytest.mark.verify
        ),
    ],
)
async def test_code_takes_no_more_than_its_bound(kind: str, inputs: Any, knobs: Any, end: str) -> None:
    timeout_s = 5.0 if end.startswith("timeout") else TIMEOUT_S
    found = await growth_of(kind, inputs, knobs=knobs, timeout_s=timeout_s)
    assert found["end"] == end
    assert found["grown_bytes"] < GROWTH
