"""A value that goes through any two tools comes out equal, or is refused: never silently another one."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from aiohttp import web
from msgspec.structs import replace

from effort import in_gate, times
from nats_process import NatsServer
from noetl_stream.model.json import codec
from noetl_stream.settings.egress import EgressRules, egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.template import Scope, compile_template, render
from noetl_stream.tools.contract import Tool, ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.nats.tool import NatsTool
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.tools.postgres.pool import ConnectionPools
from noetl_stream.tools.postgres.tool import PostgresTool
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool

Route = Callable[[Any], Awaitable[Any]]

REFUSALS: Final = [("invalid_input", False), ("result_not_json", False), ("sql", False)]
TEXTS: Final = [
    "", " ", "null", "true", "NaN", "5", "1e400", "9999-12-31", "0001-01-01", "2026-01-31T10:00:00Z", "\\N", '"',
    "'", "\\",
    "a\nb\r\n", "\t", "\x01\x7f", "é", "\u2028", "\U0001f600", "{{ ctx.a }}", "{a}", "[1", "$1", "%s", "$$", "\ufeffx",
    "ß" * 300,
]  # fmt: skip
EDGES: Final = [0, 2**31, 2**53, 2**63, 2**64, 2**127, 2**128, 10**38, 10**60]
NUMBERS: Final = [
    0.1, 1.0, -0.0, 1e22, 1e23, 1e300, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 123456789.12345678, 0.3,
    1e-7, 100000000000000000000.0, 4.35, 9007199254740993.0,
]  # fmt: skip
KEYS: Final = ["a", "A", "a b", "", '"', "é", "key", "value", "entries", "1", "a.b", "$x", "\\"]
TEMPLATE: Final = compile_template("{{ ctx.v }}", namespaces=frozenset({"ctx"}), bindings={})


def number(source: random.Random) -> Any:
    if source.random() < 0.5:
        return source.choice([-1, 1]) * (source.choice(EDGES) + source.randint(-1, 1))
    return source.choice([-1, 1]) * source.choice(
        [*NUMBERS, source.random(), source.random() * 10.0 ** source.randint(-30, 30)]
    )


def value(source: random.Random, depth: int = 3) -> Any:
    """A random JSON value, made of what tools have trouble with."""
    kind = source.random()
    if depth and kind < 0.2:
        return [value(source, depth - 1) for _ in range(source.randint(0, 3))]
    if depth and kind < 0.4:
        return {source.choice(KEYS): value(source, depth - 1) for _ in range(source.randint(0, 3))}
    if kind < 0.7:
        return number(source)
    return source.choice([None, True, False]) if kind < 0.75 else source.choice(TEXTS)


def is_equal(given: Any, received: Any) -> bool:
    """Whether two values are the same JSON: numbers by their digits, so that 1 is 1.0 and 2^53 + 1 is not 2^53."""
    match given:
        case dict():
            same_keys = isinstance(received, dict) and received.keys() == given.keys()
            return same_keys and all(is_equal(item, received[key]) for key, item in given.items())
        case list():
            same_length = isinstance(received, list) and len(received) == len(given)
            return same_length and all(map(is_equal, given, received))
        case int() | float() if not isinstance(given, bool):
            is_number = isinstance(received, int | float) and not isinstance(received, bool)
            return is_number and Decimal(repr(given)) == Decimal(repr(received))
    return type(given) is type(received) and bool(given == received)


class Tools:
    """Calls of real tools."""

    def __init__(self, make_call: Any, egress: EgressRules, dsn: str, bus: str, api_url: str) -> None:
        self._make_call = make_call
        self._credentials = {"db": dsn, "bus": bus}
        self._api_url = api_url
        self._numbers = itertools.count()
        self.noop = NoopTool()
        self.python = PythonTool(max_children=1)
        self.postgres = PostgresTool(ConnectionPools(Egress(egress)))
        self.duckdb = DuckdbTool(ToolSettings(egress))
        self.nats = NatsTool(Egress(egress_rules("loopback")))
        self.http = HttpTool(Egress(egress_rules("loopback")))
        self.shell = ShellTool()

    async def call(self, tool: Tool, **inputs: Any) -> Any:
        """The result, as the engine records it and the next task gets it."""
        call = self._make_call(inputs, credentials=self._credentials)
        done = await tool.run(replace(call, idempotency_key=f"key-{next(self._numbers)}"))
        return codec.decode_json(codec.encode(done.result))

    async def close(self) -> None:
        for tool in (self.python, self.postgres, self.duckdb, self.nats, self.http, self.shell):
            await tool.close()

    # --- routes: each returns what has become of its value ---

    async def noop_args(self, given: Any) -> Any:
        return (await self.call(self.noop, args={"v": given}))["v"]

    async def template(self, given: Any) -> Any:
        return render(TEMPLATE, Scope({"ctx": {"v": given}}))

    async def python_args(self, given: Any) -> Any:
        return (await self.call(self.python, code="return {'v': v}", args={"v": given}))["v"]

    async def postgres_jsonb(self, given: Any) -> Any:
        return await self._selected(self.postgres, "select $v::jsonb as v", {"v": given}, auth="db")

    async def postgres_json(self, given: Any) -> Any:
        return await self._selected(self.postgres, "select array[$v::json] as v", {"v": given}, auth="db", place=0)

    async def postgres_typed(self, given: Any) -> Any:
        kinds = {bool: "bool", int: "numeric", float: "float8", str: "text", list: "jsonb[]"}
        cast = kinds.get(type(given), "jsonb")
        return await self._selected(self.postgres, f"select $v::{cast} as v", {"v": given}, auth="db")

    async def duckdb_param(self, given: Any) -> Any:
        return await self._selected(self.duckdb, "select $v as v", {"v": given})

    async def duckdb_table(self, given: Any) -> Any:
        done = await self.call(self.duckdb, command="select v from t", tables={"t": [{"v": given}, {"v": None}]})
        return done["rows"][0]["v"]

    async def duckdb_attach(self, given: Any) -> Any:
        table = "drop table if exists attached_values; create table attached_values (v jsonb)"
        insert = "insert into attached_values values ($v::jsonb)"
        await self.call(self.postgres, auth="db", command=f"{table}; {insert}", params={"v": given})
        attach = {"pg": {"auth": "db", "tables": ["attached_values"]}}
        done = await self.call(self.duckdb, command="from pg.attached_values", attach=attach)
        return done["rows"][0]["v"]

    async def nats_kv(self, given: Any) -> Any:
        await self.call(self.nats, auth="bus", action="kv_put", bucket="values", key="v", value={"v": given})
        return (await self.call(self.nats, auth="bus", action="kv_get", bucket="values", key="v"))["value"]["v"]

    async def http_body(self, given: Any) -> Any:
        return (await self.call(self.http, method="POST", url=self._api_url, json={"v": given}))["data"]["v"]

    async def shell_stdin(self, given: Any) -> Any:
        done = await self.call(self.shell, command=["cat"], stdin=json.dumps(given))
        return json.loads(done["stdout"])

    async def shell_word(self, given: Any) -> Any:
        done = await self.call(self.shell, command=["printf", "%s", json.dumps(given, ensure_ascii=False)])
        return json.loads(done["stdout"])

    @property
    def routes(self) -> list[Route]:
        return [
            self.noop_args, self.template, self.python_args, self.postgres_jsonb, self.postgres_json,
            self.postgres_typed,
            self.duckdb_param, self.duckdb_table, self.duckdb_attach, self.nats_kv, self.http_body, self.shell_stdin,
            self.shell_word,
        ]  # fmt: skip

    async def _selected(self, tool: Tool, sql: str, params: Any, place: int | None = None, **inputs: Any) -> Any:
        found = (await self.call(tool, command=sql, params=params, **inputs))["rows"][0]["v"]
        return found if place is None else found[place]


async def _ignore(_: Exception) -> None:
    """The server may not answer yet."""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a NATS with the bucket ``values``."""
    server = NatsServer(tmp_path)
    server.start()
    client = await nats.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.02, error_cb=_ignore)
    await client.jetstream().create_key_value(bucket="values")
    await client.close()
    yield server.url
    server.end()


@pytest.fixture
async def api_url() -> AsyncIterator[str]:
    """A server that answers with the JSON that it gets."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    app = web.Application()
    app.router.add_post("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest.fixture
async def tools(make_call: Any, egress: EgressRules, postgres_dsn: str, bus: str, api_url: str) -> AsyncIterator[Tools]:
    tools = Tools(make_call, egress, postgres_dsn, bus, api_url)
    yield tools
    await tools.close()


async def refused(running: Awaitable[Any]) -> tuple[bool, Any]:
    """Whether a tool refuses the value, and else what it makes of it."""
    try:
        return False, await running
    except ToolFailure as failure:
        assert (failure.error.kind, failure.error.retryable) in REFUSALS, failure.error
        return True, None


async def test_a_value_through_tools_in_any_order_is_equal_or_refused(tools: Tools) -> None:
    """What refuses it is left out. No tool refuses everything."""
    source = random.Random(7)
    accepted: Counter[str] = Counter()
    for _ in range(times(12)):
        given = received = value(source)
        for route in source.sample(tools.routes, len(tools.routes)):
            is_refused, found = await refused(route(received))
            if not is_refused:
                assert is_equal(given, found), f"{route.__name__} makes {found!r} of {given!r}"
                accepted[route.__name__] += 1
                received = found
    assert len(accepted) == len(tools.routes)


def day(source: random.Random) -> str:
    edges = ["0001-01-01", "9999-12-31", "0044-03-15 BC", "infinity", "-infinity", "10000-01-01", "2000-02-29"]
    known = f"{source.randint(1, 9999):04}-{source.randint(1, 12):02}-{source.randint(1, 28):02}"
    return source.choice([known, known, *edges])


def time(source: random.Random) -> str:
    edges = ["00:00:00", "23:59:59.999999", "24:00:00", "12:00:00.5"]
    known = f"{source.randint(0, 23):02}:{source.randint(0, 59):02}:{source.randint(0, 59):02}"
    return source.choice([f"{known}.{source.randint(0, 999999):06}", known, *edges])


def moment(source: random.Random) -> str:
    date = day(source)
    return (
        date if "infinity" in date else date.replace(" BC", "") + " " + time(source) + (" BC" if "BC" in date else "")
    )


def digits(source: random.Random) -> str:
    whole, places = source.randint(1, 12), source.randint(0, 8)
    text = "".join(source.choices("0123456789", k=whole + places))
    return source.choice(["", "-"]) + (f"{text[:whole]}.{text[whole:]}" if places else text)


def span(source: random.Random) -> str:
    units = ["months", "days", "hours", "minutes", "seconds", "microseconds"]
    parts = [f"{source.randint(-100, 100)} {unit}" for unit in source.sample(units, source.randint(1, 4))]
    return " ".join(parts)


LITERALS: Final[dict[str, Callable[[random.Random], str]]] = {
    "int8": lambda source: str(source.choice([-(2**63), 2**63 - 1, 2**53 + 1, source.randint(-(2**63), 2**63 - 1)])),
    "numeric": digits,
    "numeric(30,10)": lambda source: str(source.randint(-(10**18), 10**18)),
    "float8": lambda source: repr(source.choice(NUMBERS)),
    "float4": lambda source: repr(source.uniform(-1, 1) * 10.0 ** source.randint(-30, 30)),
    "bool": lambda source: source.choice(["true", "false"]),
    "text": lambda source: source.choice(TEXTS),
    "bytea": lambda source: "\\x" + source.randbytes(source.randint(0, 5)).hex(),
    "uuid": lambda source: source.randbytes(16).hex(),
    "date": day,
    "time": time,
    "timetz": lambda source: time(source) + source.choice(["+00", "-12:30", "+02:30:15"]),
    "timestamp": moment,
    "timestamptz": moment,
    "interval": span,
    "jsonb": lambda source: json.dumps(value(source)),
}
"""Text of a random value, by type of Postgres."""


@pytest.mark.parametrize("kind", in_gate(LITERALS, one_of=3))
async def test_a_value_of_postgres_is_read_as_it_is_or_refused(tools: Tools, kind: str) -> None:
    """A value that was read is the same as a parameter, and the same in an attached table."""
    source = random.Random(kind)
    known: list[str] = []
    for _ in range(times(8)):
        text = LITERALS[kind](source)
        is_refused, found = await refused(tools.call(
            tools.postgres, auth="db", command=f"select $t::text::{kind} as v, array[$t::text::{kind}] as list",
            params={"t": text},
        ))  # fmt: skip
        if is_refused:
            continue
        [row] = found["rows"]
        assert is_equal([row["v"]], row["list"])
        compared = f"select $v::{kind} = $t::text::{kind} as v, $list::{kind}[] = array[$t::text::{kind}] as list"
        params = {"t": text, **row}
        is_refused, same = await refused(tools.call(tools.postgres, auth="db", command=compared, params=params))
        assert is_refused or same["rows"] == [{"v": True, "list": True}], text
        known.append(text)
    fill = f"create table typed_values as select t::{kind} as v, array[t::{kind}] as list from unnest($t::text[]) t"
    stored = await tools.call(
        tools.postgres, auth="db", command=f"drop table if exists typed_values; {fill}; select * from typed_values",
        params={"t": known},
    )  # fmt: skip
    attach = {"pg": {"auth": "db", "tables": ["typed_values"]}}
    is_refused, attached = await refused(tools.call(tools.duckdb, command="from pg.typed_values", attach=attach))
    for given, arrived in zip(stored["rows"], [] if is_refused else attached["rows"], strict=not is_refused):
        assert is_equal(given, arrived), f"{given} became {arrived}"
    assert known
