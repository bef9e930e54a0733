"""With nothing allowed, no kind of task reaches this machine, a private network or a metadata service."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.oidc import ProviderKeys
from noetl_stream.errors import Unreachable
from noetl_stream.playbook.kinds.keychain import OauthSettings
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools import egress
from noetl_stream.tools.contract import Tool, ToolCall, ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http import tool as http_tool
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.nats.tool import NatsTool
from noetl_stream.tools.oauth2 import fetch_token
from noetl_stream.tools.postgres.tool import PostgresTool

METADATA = "169.254.169.254"

Run = Callable[..., Awaitable[Any]]


class Listener:
    """A server on loopback that counts connections, and greets each, at once or after its first words."""

    def __init__(self, greeting: bytes = b"", *, asks_back: bool = False) -> None:
        self.connections = 0
        self.received = b""
        self._greeting = greeting
        self._asks_back = asks_back
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self) -> Listener:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._asks_back:
            self.received += await reader.read(65536)
        writer.write(self._greeting)
        self.received += await reader.read(65536)
        writer.close()


@pytest.fixture
async def inside() -> AsyncIterator[Listener]:
    """A service of this machine that no task may reach."""
    listener = await Listener(b"-ERR 'who are you?'\r\n").open()
    yield listener
    await listener.close()


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    """Runs a task of a kind under the operator's rules, and returns its result."""
    tools: list[Tool] = []
    classes: dict[str, Any] = {"http": HttpTool, "postgres": PostgresTool, "nats": NatsTool, "duckdb": DuckdbTool}

    async def run(
        kind: str, inputs: dict[str, Any], *, allow: str = "none", own: str | None = None, **more: Any
    ) -> Any:
        tool = classes[kind].configured(ToolSettings(egress_rules(allow)))
        tools.append(tool)
        return (await tool.run(call_of(inputs, own))).result

    yield run
    for tool in tools:
        await tool.close()


def call_of(inputs: dict[str, Any], own: str | None) -> ToolCall:
    """The call of a task; ``own`` is a credential ``mine`` that the operator configured."""

    async def credential(name: str) -> str:
        assert (name, own is not None) == ("mine", True)
        return own or ""

    async def is_operators(name: str) -> bool:
        return name == "mine"

    return ToolCall(
        inputs=inputs,
        knobs={},
        timeouts=Timeouts(connect=5, read=5),
        idempotency_key="key",
        execution_id="execution",
        step="step",
        task="task",
        attempt=1,
        trust_domain="digest ann",
        scope={},
        credential=credential,
        is_operators=is_operators,
    )


def reaching(kind: str, host: str, port: int) -> dict[str, Any]:
    """The inputs of a task of this kind that goes there."""
    dsn = f"postgresql://u:p@{host}:{port}/d"
    return {
        "http": {"url": f"http://{host}:{port}/"},
        "postgres": {"auth": {"dsn": dsn}, "command": "select 1"},
        "nats": {"auth": {"url": f"nats://u:p@{host}:{port}"}, "action": "publish", "subject": "a"},
        "duckdb": {"attach": {"pg": {"auth": {"dsn": dsn}, "tables": ["t"]}}, "command": "select 1"},
    }[kind]


async def refused(running: Awaitable[Any]) -> str:
    """The message of the task that was refused an address."""
    with pytest.raises(ToolFailure) as failed:
        await running
    assert (failed.value.error.kind, failed.value.error.retryable) == ("forbidden_address", False)
    return failed.value.error.message


KINDS = ("http", "postgres", "nats", "duckdb")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_no_kind_reaches_this_machine(run: Run, inside: Listener, kind: str, host: str) -> None:
    await refused(run(kind, reaching(kind, host, inside.port)))
    assert inside.connections == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", [METADATA, "[fd00:ec2::254]", "[fe80::1]", "100.100.100.200", "168.63.129.16"])
async def test_no_network_that_is_allowed_opens_a_metadata_service(run: Run, kind: str, address: str) -> None:
    message = await refused(run(kind, reaching(kind, address, 80), allow="0.0.0.0/0, ::/0"))
    assert "only NOETL_EGRESS_ALLOW with this very address" in message


@pytest.mark.parametrize("kind", KINDS)
async def test_addresses_that_the_operator_allows_are_reached(run: Run, inside: Listener, kind: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(kind, reaching(kind, "127.0.0.1", inside.port), allow=f"127.0.0.1:{inside.port}")
    assert failed.value.error.kind in ("connection", "timeout")
    assert inside.connections > 0


@pytest.mark.parametrize("kind", ["postgres", "nats"])
async def test_a_credential_of_the_operator_reaches_the_host_it_names_and_opens_it_for_nobody(
    run: Run, inside: Listener, kind: str
) -> None:
    scheme = "postgresql" if kind == "postgres" else "nats"
    own = f"{scheme}://u:p@127.0.0.1:{inside.port}"
    inputs = {**reaching(kind, "127.0.0.1", inside.port), "auth": "mine"}
    with pytest.raises(ToolFailure) as failed:
        await run(kind, inputs, own=own)
    assert failed.value.error.kind in ("connection", "timeout")
    reached = inside.connections
    assert reached > 0
    await refused(run(kind, reaching(kind, "127.0.0.1", inside.port), own=own))
    assert inside.connections == reached
    metadata = own.replace("127.0.0.1", METADATA)
    await refused(run(kind, inputs, own=metadata))


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u@10.1.2.3,127.0.0.1:{port}/d",
        "postgresql://u@/d?host=127.0.0.1&port={port}",
        "postgresql://u@/d?host=127.0.0.1,localhost&port={port},{port}",
        "postgresql://u@%31%32%37.0.0.1:{port}/d",
    ],
)
async def test_each_host_of_a_database_address_is_checked(run: Run, inside: Listener, dsn: str) -> None:
    await refused(run("postgres", {"auth": {"dsn": dsn.format(port=inside.port)}, "command": "select 1"}))
    assert inside.connections == 0


@pytest.mark.parametrize("folder", ["/var/run/postgresql", "/tmp", "/var/run/../run/postgresql"])
async def test_a_unix_socket_is_a_door_to_this_machine(run: Run, folder: str) -> None:
    for dsn in (f"postgresql://u@/d?host={folder}", f"postgresql://u@{folder.replace('/', '%2F')}/d"):
        message = await refused(run("postgres", {"auth": {"dsn": dsn}, "command": "select 1"}, allow="loopback"))
        assert "is a Unix socket" in message


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("hostaddr=127.0.0.1", "hostaddr cannot be used here"),
        ("passfile=/etc/passwd", "passfile cannot be used here"),
        ("service=prod", "service cannot be used here"),
        ("servicefile=/etc/passwd", "servicefile cannot be used here"),
        ("sslmode=verify-ca&sslrootcert=/etc/passwd", "sslrootcert names a file of the worker"),
        ("sslmode=require&sslkey=/etc/ssl/private/key.pem", "sslkey names a file of the worker"),
    ],
)
async def test_a_database_address_of_an_author_names_no_file_of_the_worker(run: Run, query: str, reason: str) -> None:
    with pytest.raises(ToolFailure, match=reason) as failed:
        await run("postgres", {"auth": {"dsn": f"postgresql://u@8.8.8.8/d?{query}"}, "command": "select 1"})
    assert failed.value.error.kind == "credential"


async def test_the_driver_sends_no_password_of_the_workers_environment(
    run: Run, inside: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host asks for a password in plain text; the author's credential has none."""
    asks_for_password = b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big")
    evil = await Listener(asks_for_password, asks_back=True).open()
    for name, value in (
        ("PGPASSWORD", "s3cret"),
        ("PGUSER", "s3cret"),
        ("PGHOST", "127.0.0.1"),
        ("PGSSLMODE", "disable"),
    ):
        monkeypatch.setenv(name, value)
    dsn = f"postgresql://u@127.0.0.1:{evil.port}/d?sslmode=disable"
    with pytest.raises(ToolFailure):
        await run("postgres", {"auth": {"dsn": dsn}, "command": "select 1"}, allow="loopback")
    await evil.close()
    assert evil.connections > 0
    assert b"s3cret" not in evil.received


async def test_a_nats_server_cannot_send_a_task_to_another(run: Run, inside: Listener) -> None:
    """A server may name others of its cluster; after its failure the library would try them, with the credentials."""
    info = {"server_id": "x", "version": "2.10.0", "max_payload": 1024, "connect_urls": [f"127.0.0.1:{inside.port}"]}
    greeting = b"INFO " + json.dumps(info).encode() + b"\r\n-ERR 'maximum connections exceeded'\r\n"
    evil = await Listener(greeting).open()
    with pytest.raises(ToolFailure):
        await run("nats", reaching("nats", "127.0.0.1", evil.port), allow=f"loopback:{evil.port}")
    await evil.close()
    assert evil.connections > 0
    assert inside.connections == 0


async def test_every_nats_server_of_a_list_is_checked(run: Run, inside: Listener) -> None:
    url = f"nats://10.1.2.3:4222,nats://127.0.0.1:{inside.port}"
    await refused(run("nats", {"auth": {"url": url}, "action": "publish", "subject": "a"}))
    for scheme in ("ws", "wss"):
        with pytest.raises(ToolFailure) as failed:
            await run(
                "nats", {"auth": {"url": f"{scheme}://127.0.0.1:{inside.port}"}, "action": "publish", "subject": "a"}
            )
        assert failed.value.error.kind == "credential"
    assert inside.connections == 0


async def test_a_name_that_changes_its_address_after_the_check_changes_nothing(
    inside: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first answer is public, the second is this machine. There is no second question."""
    answers = ["8.8.8.8", "127.0.0.1"]
    loop = asyncio.get_running_loop()

    async def rebinding(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(loop, "getaddrinfo", rebinding)
    assert await Egress().addresses("rebinding.example", inside.port) == ["8.8.8.8"]
    assert answers == ["127.0.0.1"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_from_the_internet_does_not_lead_inside(
    run: Run, inside: Listener, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Also where tasks may reach this machine themselves. 127.0.0.2 stands for a public address."""
    for module in (egress, http_tool):
        monkeypatch.setattr(module, "is_public", lambda text: text == "127.0.0.2")
    there = f"http://127.0.0.1:{inside.port}/admin"

    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": there})

    application = web.Application()
    application.router.add_get("/", redirect)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    for host in ("127.0.0.1", "127.0.0.2"):
        await web.TCPSite(runner, host, 0).start()
    private, public = (f"http://{host}:{port}/" for host, port in runner.addresses)
    message = await refused(run("http", {"url": public}, allow="loopback"))
    assert f"{there}: 127.0.0.1 is not public, and a public address redirected to it" in message
    assert inside.connections == 0
    with pytest.raises(ToolFailure):
        await run("http", {"url": private}, allow="loopback")
    assert inside.connections > 0
    await runner.cleanup()


async def test_a_token_is_fetched_through_the_same_guard(inside: Listener) -> None:
    settings = OauthSettings(token_url=f"http://127.0.0.1:{inside.port}/token", client_id="me", client_secret="s3cret")
    tool = HttpTool()
    with pytest.raises(ToolFailure, match="NOETL_EGRESS_ALLOW") as failed:
        await fetch_token(tool, settings, "me", "s3cret")
    await tool.close()
    assert failed.value.error.kind == "credential"
    assert inside.connections == 0


async def test_a_discovery_document_does_not_send_the_gateway_inside(inside: Listener) -> None:
    """The issuer is the operator's choice and may be on this machine; what it names is not."""

    async def discovery(_: web.Request) -> web.Response:
        return web.json_response({"issuer": issuer, "jwks_uri": f"http://localhost:{inside.port}/keys"})

    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", discovery)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    keys = ProviderKeys(issuer, None, SystemClock())
    with pytest.raises(Unreachable, match="is not public"):
        await keys.find("any")
    await keys.close()
    await runner.cleanup()
    assert inside.connections == 0


async def test_tasks_do_not_reach_the_engines_own_nats(run: Run, inside: Listener) -> None:
    """On the embedded stack tasks reach this machine, and still not the engine."""
    settings = Settings.from_environment({}).tools(f"nats://worker:pw@127.0.0.1:{inside.port}", embedded=True)
    for kind, tool in (("http", HttpTool), ("nats", NatsTool)):
        made = tool.configured(settings)
        message = await refused(made.run(call_of(reaching(kind, "localhost", inside.port), None)))
        assert f"port {inside.port} is closed to tasks" in message
        await made.close()
    assert inside.connections == 0


@pytest.mark.parametrize(
    "statement",
    [
        "from read_csv('http://127.0.0.1:{port}/a.csv')",
        "from 'http://127.0.0.1:{port}/a.parquet'",
        "copy (select 1) to 'http://127.0.0.1:{port}/a.csv'",
        "attach 'http://127.0.0.1:{port}/a.duckdb' as a",
        "attach 'postgresql://u@127.0.0.1:{port}/d' as a (type postgres)",
        "install httpfs from 'http://127.0.0.1:{port}'",
        "load httpfs",
        "load postgres",
        "select * from postgres_scan('host=127.0.0.1 port={port}', 'public', 't')",
        "set custom_extension_repository = 'http://127.0.0.1:{port}'",
        "set http_proxy = '127.0.0.1:{port}'",
        "set enable_external_access = true",
    ],
)
async def test_the_sql_of_duckdb_opens_no_connection(run: Run, inside: Listener, statement: str) -> None:
    """Not even where ``http`` and ``postgres`` tasks may: DuckDB itself uses no network."""
    with pytest.raises(ToolFailure) as failed:
        await run("duckdb", {"command": statement.format(port=inside.port)}, allow="loopback")
    assert failed.value.error.kind in ("not_allowed", "sql", "syntax")
    assert inside.connections == 0


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"memory_limit": "512MB"},
            r"memory_limit: 512MB is more than .* \(NOETL_DUCKDB_MAX_MEMORY: 200,000,000 bytes\)",
        ),
        ({"threads": 64}, r"threads: 64 is more than .* \(NOETL_DUCKDB_MAX_THREADS: 1\)"),
    ],
)
async def test_a_duckdb_task_gets_no_more_than_the_operator_allows(knobs: dict[str, Any], message: str) -> None:
    tool = DuckdbTool(ToolSettings(duckdb_max_memory_bytes=200_000_000, duckdb_max_threads=1))
    with pytest.raises(ToolFailure, match=message) as failed:
        await tool.run(replace(call_of({"command": "select 1"}, None), knobs=knobs))
    assert failed.value.error.kind == "not_allowed"
    limits = "select current_setting('memory_limit') as memory, current_setting('threads') as threads"
    shown = (await tool.run(call_of({"command": limits}, None))).result["rows"]
    assert shown == [{"memory": "190.7 MiB", "threads": 1}]
    for statement in ("set memory_limit = '100GB'", "set threads = 64", "reset memory_limit", "pragma threads = 64"):
        with pytest.raises(ToolFailure):
            await tool.run(call_of({"command": statement}, None))
    await tool.close()
