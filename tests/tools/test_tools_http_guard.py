"""``kind: http`` reaches the public internet and what the operator allows, nothing else."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import HttpTool

Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a local server that sends ``answer`` to every request; returns its port and the requested paths."""
    runners: list[web.AppRunner] = []

    async def start(answer: web.Response, tls: ssl.SSLContext | None = None) -> tuple[int, list[str]]:
        seen: list[str] = []

        async def handle(request: web.Request) -> web.StreamResponse:
            seen.append(request.path)
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return runner.addresses[0][1], seen

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def get(make_call: Any) -> AsyncIterator[Callable[..., Any]]:
    """Requests an address with a tool that allows ``allow``."""
    tools: list[HttpTool] = []

    async def get(url: str, allow: str = "none", **knobs: Any) -> ToolResult:
        tool = HttpTool(Egress(egress_rules(allow)))
        tools.append(tool)
        return await tool.run(make_call({"url": url}, knobs=knobs))

    yield get
    for tool in tools:
        await tool.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "0.0.0.0",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:7f00:1]",
    ],
)
async def test_no_spelling_of_this_machines_address_reaches_it(start: Start, get: Any, host: str) -> None:
    port, seen = await start(web.Response(text="secret"))
    with pytest.raises(ToolFailure) as failed:
        await get(f"http://{host}:{port}/admin?key=s3cret")
    assert failed.value.error.kind == "forbidden_address"
    assert not failed.value.error.retryable
    assert "s3cret" not in failed.value.error.message
    assert seen == []


@pytest.mark.parametrize("host", ["127.1", "2130706433", "017700000001", "0177.0.0.1", "0", "①②⑦.0.0.1"])
async def test_an_address_in_an_odd_notation_is_invalid(start: Start, get: Any, host: str) -> None:
    port, seen = await start(web.Response(text="secret"))
    with pytest.raises(ToolFailure) as failed:
        await get(f"http://{host}:{port}/")
    assert failed.value.error.kind in ("invalid_input", "forbidden_address")
    assert seen == []


@pytest.mark.parametrize("allow", ["loopback", "localhost", "127.0.0.0/8", "private, LocalHost"])
async def test_allowed_addresses_are_reached(start: Start, get: Any, allow: str) -> None:
    port, _ = await start(web.Response(text="hello"))
    assert (await get(f"http://localhost:{port}/", allow)).result["data"] == "hello"


async def test_a_redirect_cannot_leave_for_a_closed_address(start: Start, get: Any) -> None:
    inner, seen = await start(web.Response(text="secret"))
    outer, _ = await start(web.Response(status=302, headers={"Location": f"http://127.0.0.1:{inner}/admin"}))
    with pytest.raises(ToolFailure) as failed:
        await get(f"http://localhost:{outer}/", "localhost")
    assert failed.value.error.kind == "forbidden_address"
    assert f"GET http://127.0.0.1:{inner}/admin: 127.0.0.1 is not public" in failed.value.error.message
    assert seen == []


async def test_an_allowed_name_allows_no_other_name_of_the_same_machine(start: Start, get: Any) -> None:
    port, _ = await start(web.Response(text="hello"))
    with pytest.raises(ToolFailure) as failed:
        await get(f"http://127.0.0.1:{port}/", "localhost")
    assert failed.value.error.kind == "forbidden_address"


async def test_a_tool_is_guarded_by_default(start: Start, make_call: Any) -> None:
    port, seen = await start(web.Response(text="secret"))
    tool = HttpTool()
    with pytest.raises(ToolFailure) as failed:
        await tool.run(make_call({"url": f"http://127.0.0.1:{port}/"}))
    await tool.close()
    assert failed.value.error.kind == "forbidden_address"
    assert seen == []


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("certificate")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


async def test_an_untrusted_certificate_is_rejected_unless_the_task_allows_it(
    start: Start, get: Any, own_certificate: ssl.SSLContext
) -> None:
    port, seen = await start(web.Response(text="hello"), own_certificate)
    with pytest.raises(ToolFailure) as failed:
        await get(f"https://localhost:{port}/", "loopback")
    assert (failed.value.error.kind, failed.value.error.retryable) == ("connection", False)
    assert seen == []
    assert (await get(f"https://localhost:{port}/", "loopback", verify_tls=False)).result["data"] == "hello"
