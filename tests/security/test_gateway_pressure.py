"""Nobody holds a gateway: not without a token, not with one, not by saying nothing."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from gateway_playbooks import HELD
from gateway_stage import AS_ADMIN, GatewayStage
from msgspec.structs import replace
from pydantic import BaseModel, FailFast
from yarl import URL

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import TooBusy
from noetl_stream.gateway.access.authentication import Network
from noetl_stream.gateway.access.guard import MOST_AT_ONCE
from noetl_stream.gateway.gateway import BY_ADDRESS, RESOURCES
from noetl_stream.gateway.http import connections
from noetl_stream.gateway.http.connections import address_group
from noetl_stream.gateway.http.inputs import (
    INLINE_BYTES,
    LARGE_BYTES,
    MAX_BODY_PARTS,
    MAX_BODY_VALUES,
    Body,
    BodyReader,
    validated,
)
from noetl_stream.gateway.http.pressure import (
    EVENTS_AT_ONCE,
    EVENTS_PER_S,
    LIGHT_AT_ONCE,
    LIGHT_PER_S,
    HeldBytes,
    Pressure,
)
from noetl_stream.gateway.http.problems import MAX_FAULTS, HttpProblem
from noetl_stream.gateway.metrics import Metrics
from noetl_stream.gateway.resources.executions import StartRequest
from noetl_stream.model.json import codec
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import ResultDocument
from noetl_stream.ports.operations.playbooks import CheckedDocument
from noetl_stream.ports.stores.identities import AuditedAnswer, AuditedCall, AuditEntry, Caller
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.storage.refusal_audit import CALLERS_COUNTED, ENTRIES_IN_ALL, ENTRIES_OF_ONE, Refusal, RefusalSample

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]

BEHIND_A_PROXY = Network(proxies=(ip_network("127.0.0.0/8"),))
ANN, BOB = Caller("token:ann", "viewer"), Caller("token:bob", "viewer")
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


@asynccontextmanager
async def closed_gateway(network: Network = BY_ADDRESS, **limits: int) -> AsyncIterator[GatewayStage]:
    """A gateway that asks for tokens, with a client that has no bound of its own."""
    stage = GatewayStage(GatewayLimits(**limits), signed_in=False, network=network)
    async with stage.open(), ClientSession(stage.url, connector=TCPConnector(limit=0)) as stage.client:
        yield stage


async def token(stage: GatewayStage, name: str, role: Role) -> dict[str, str]:
    made = await stage.operations.access.create_token(NewToken(name, role), "test")
    return {"Authorization": f"Bearer {made.secret}"}


async def held_execution(stage: GatewayStage, headers: dict[str, str]) -> str:
    async with stage.client.post("/api/v1/executions", json={"playbook": HELD}, headers=headers) as answer:
        assert answer.status == 202, await answer.text()
        return str((await answer.json())["execution_id"])


async def connection(stage: GatewayStage, text: bytes) -> Connected:
    """A connection on which this was sent."""
    url = URL(stage.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(text)
    await writer.drain()
    return reader, writer


async def metric(stage: GatewayStage, name: str) -> float:
    """The sum over all labels."""
    async with stage.client.get("/metrics", headers=AS_ADMIN) as answer:
        found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", await answer.text(), re.MULTILINE)
    return sum(map(float, found))


def closed(stage: GatewayStage) -> int:
    """Connections that the gateway has closed or refused."""
    return stage.gateway.connections.closed


async def audited(stage: GatewayStage) -> list[AuditEntry]:
    return await stage.audit.page(100_000, None, None)


# Growth without a token


@pytest.mark.parametrize("guessing", [False, True])
async def test_a_flood_of_unauthenticated_calls_leaves_a_few_entries_and_their_number(guessing: bool) -> None:
    calls = 500
    async with closed_gateway() as stage:
        assert await metric(stage, "noetl_gateway_refusals_left_out_total") == 0, (
            "a token that was right before stays so"
        )
        for number in range(calls):
            guess = {"Authorization": f"Bearer noetl_{number:016x}_{number:064x}"}
            async with stage.client.get("/api/v1/executions", headers=guess if guessing else {}) as answer:
                assert answer.status in (401, 429)
        assert len(await audited(stage)) == ENTRIES_OF_ONE
        assert await metric(stage, "noetl_gateway_refusals_left_out_total") == calls - ENTRIES_OF_ONE
    entries = await audited(stage)  # what was left out is recorded at the latest when the gateway stops
    assert len(entries) == ENTRIES_OF_ONE + 1
    assert sum(1 + entry.answer.left_out for entry in entries if entry.answer) == calls


async def test_bad_requests_of_somebody_with_a_token_are_a_few_entries_too() -> None:
    async with closed_gateway() as stage:
        operator = await token(stage, "ann", "operator")
        for _ in range(ENTRIES_OF_ONE + 20):
            async with stage.client.post("/api/v1/executions", data="{", headers=JSON | operator) as answer:
                assert answer.status == 400
        assert len(await audited(stage)) == ENTRIES_OF_ONE
    assert sum(1 + entry.answer.left_out for entry in await audited(stage) if entry.answer) == ENTRIES_OF_ONE + 20


def test_refusals_of_any_number_of_callers_are_a_bounded_number_of_entries() -> None:
    sample, entered = RefusalSample(), 0
    callers = [f"10.0.{number // 256}.{number % 256}" for number in range(2_000)]
    for caller in callers:
        for _ in range(3):
            attempt = AuditedCall(1, "", "", "GET", "listExecutions", "", "", caller, "")
            entered += sample.takes(Refusal(caller, attempt, AuditedAnswer(401)))
    rest = sample.rest()
    assert (entered, len(rest)) == (ENTRIES_IN_ALL, CALLERS_COUNTED + 1)
    assert entered + sum(1 + refusal.answer.left_out for refusal in rest) == 3 * len(callers)
    assert rest[-1].attempt.remote == "", "an entry for many is of none of them"


async def test_a_call_that_changes_nothing_leaves_no_answer_behind() -> None:
    async with closed_gateway() as stage:
        viewer = await token(stage, "ann", "viewer")
        for _ in range(2):
            again = YAML | viewer | {"Idempotency-Key": "the same"}
            async with stage.client.post("/api/v1/playbooks/check", data="a: b", headers=again) as answer:
                assert answer.status == 200
                assert "Idempotency-Replayed" not in answer.headers


async def test_guesses_of_sign_in_codes_are_few_and_keep_nobody_else_out() -> None:
    async with closed_gateway(BEHIND_A_PROXY) as stage:

        async def guess(address: str, code: str = "0" * 64) -> int:
            headers = JSON | {"X-Forwarded-For": address, "Sec-Fetch-Site": "same-origin"}
            async with stage.client.post("/api/v1/session", json={"code": code}, headers=headers) as answer:
                return answer.status

        assert [await guess("10.0.0.1") for _ in range(MOST_AT_ONCE + 2)] == [401] * MOST_AT_ONCE + [429] * 2
        assert len(await audited(stage)) == ENTRIES_OF_ONE
        assert await guess("10.0.0.2") == 401
        async with stage.client.post("/api/v1/session/codes", headers=await token(stage, "ann", "viewer")) as answer:
            code = (await answer.json())["code"]
        assert await guess("10.0.0.2", code) == 201


async def test_a_viewer_that_signs_out_all_the_time_does_not_fill_the_audit() -> None:
    async with closed_gateway() as stage:
        viewer = await token(stage, "ann", "viewer")
        statuses = []
        for _ in range(200):
            async with stage.client.delete("/api/v1/session", headers=viewer) as answer:
                statuses.append(answer.status)
        assert set(statuses) == {204, 429} and statuses.count(204) < 150
        assert len(await audited(stage)) == statuses.count(204) + ENTRIES_OF_ONE


async def test_events_from_one_address_are_bounded_and_keep_no_other_out() -> None:
    clock = ManualClock()
    async with closed_gateway() as stage:
        pressure = Pressure(GatewayLimits(), stage.operations.cluster, clock, Metrics())

    def admitted(address: str, count: int) -> int:
        found = 0
        for _ in range(count):
            with suppress(TooBusy):
                pressure.admit_event(address)
                found += 1
        return found

    assert admitted("10.0.0.1", 2 * EVENTS_AT_ONCE) == EVENTS_AT_ONCE
    assert admitted("10.0.0.2", 1) == 1
    clock.advance(1)
    assert admitted("10.0.0.1", EVENTS_AT_ONCE) == EVENTS_PER_S


async def test_while_servers_are_behind_the_flood_of_one_caller_is_refused_and_one_start_of_another_is_not() -> None:
    clock = ManualClock()
    async with closed_gateway() as stage:
        pressure = Pressure(GatewayLimits(max_behind=100), stage.operations.cluster, clock, Metrics())

    def admitted(asker: str, count: int) -> int:
        found = 0
        for _ in range(count):
            with suppress(TooBusy):
                pressure.admit_work(asker)
                found += 1
        return found

    assert admitted("token:loud", 1000) == 1000
    pressure.behind = 101
    assert admitted("token:loud", 1000) == 0
    assert admitted("token:quiet", 1) == 1
    assert admitted("token:eager", 1000) == LIGHT_AT_ONCE
    clock.advance(3)
    assert admitted("token:loud", 1000) == admitted("token:eager", 1000) == 3 * LIGHT_PER_S
    pressure.behind = 201
    assert admitted("token:other", 1) == 0


# One viewer holds everyone


async def test_waits_of_one_viewer_leave_room_for_everybody_else() -> None:
    async with closed_gateway(max_waits=100) as stage:
        admin = await token(stage, "boss", "admin")
        viewers = [await token(stage, f"viewer-{number}", "viewer") for number in range(10)]
        address = f"/api/v1/executions/{await held_execution(stage, admin)}"

        async def wait(headers: dict[str, str]) -> int:
            async with stage.client.get(f"{address}?wait=5m", headers=headers) as answer:
                return answer.status

        first = [asyncio.create_task(wait(viewers[0])) for _ in range(200)]
        await stage.until(lambda: sum(task.done() for task in first) == 190)
        assert stage.gateway.pressure.waits.under_way == 10
        assert {task.result() for task in first if task.done()} == {429}

        # From one address, viewers fill 80 % of its half; the others still come in.
        more = [asyncio.create_task(wait(viewer)) for viewer in viewers[1:] for _ in range(10)]
        await stage.until(lambda: sum(task.done() for task in more) == 60)
        assert stage.gateway.pressure.waits.under_way == 40
        boss = asyncio.create_task(wait(admin))
        await stage.until(lambda: stage.gateway.pressure.waits.under_way == 41)
        async with stage.client.get(address, headers=viewers[0]) as answer:
            assert answer.status == 200, "a request that does not wait"

        # Whoever hangs up holds nothing any more.
        for task in (*first, *more, boss):
            task.cancel()
        await stage.until(lambda: stage.gateway.pressure.waits.under_way == 0)


async def test_checks_of_one_viewer_leave_room_for_those_of_an_author() -> None:
    stage = GatewayStage(GatewayLimits(max_checks=20), signed_in=False)
    release = asyncio.Event()

    class Slow:
        async def check(self, source: bytes, name: str, graph: bool = False) -> CheckedDocument:
            await release.wait()
            return CheckedDocument(ok=True, path=None, version=None, digest=None, diagnostics=[])

    slow: Any = Slow()
    stage.operations = replace(stage.operations, playbooks=slow)
    async with stage.open():
        viewer, author = await token(stage, "ann", "viewer"), await token(stage, "bob", "author")

        async def check(headers: dict[str, str]) -> int:
            async with stage.client.post("/api/v1/playbooks/check", data="a: b", headers=YAML | headers) as answer:
                return answer.status

        checks = [asyncio.create_task(check(viewer)) for _ in range(20)]
        await stage.until(lambda: sum(task.done() for task in checks) == 18)
        assert stage.gateway.pressure.checks.under_way == 2
        checks.append(asyncio.create_task(check(author)))
        await stage.until(lambda: stage.gateway.pressure.checks.under_way == 3)
        release.set()
        assert sorted(await asyncio.gather(*checks)) == [200] * 3 + [429] * 18


@pytest.mark.parametrize("length", [LARGE_BYTES + 1, None])
async def test_large_bodies_of_one_operator_do_not_fill_the_memory(length: int | None) -> None:
    async with closed_gateway(max_large_bodies=8) as stage:
        operators = [await token(stage, name, "operator") for name in ("ann", "bob")]

        async def coming() -> AsyncIterator[bytes]:
            yield b"{"
            await end.wait()

        async def send(headers: dict[str, str]) -> int:
            more = {} if length is None else {"Content-Length": str(length)}
            async with stage.client.post("/api/v1/executions", data=coming(), headers=JSON | headers | more) as answer:
                return answer.status

        end = asyncio.Event()
        sending = [asyncio.create_task(send(operators[0])) for _ in range(20)]
        await stage.until(lambda: sum(task.done() for task in sending) == 18)
        assert {task.result() for task in sending if task.done()} == {429}
        sending.append(asyncio.create_task(send(operators[1])))
        await stage.until(lambda: stage.gateway.pressure.large_bodies.under_way == 3)
        async with stage.client.post("/api/v1/executions", data="{}", headers=JSON | operators[0]) as answer:
            assert answer.status == 422, "a small one"
        for task in sending:
            task.cancel()


async def test_all_requests_together_hold_no_more_than_the_gateway_may() -> None:
    """Those of different callers too, each of whom may hold what it does."""
    mebibyte = 1024 * 1024
    async with closed_gateway(max_held_bytes=2 * mebibyte) as stage:
        callers = [await token(stage, name, "operator") for name in ("ann", "bob", "eve")]
        end = asyncio.Event()

        async def coming() -> AsyncIterator[bytes]:
            yield b"{"
            await end.wait()

        async def send(headers: dict[str, str]) -> tuple[int, str | None, str]:
            length = {"Content-Length": str(mebibyte)}
            async with stage.client.post(
                "/api/v1/executions", data=coming(), headers=JSON | headers | length
            ) as answer:
                return answer.status, answer.headers.get("Retry-After"), (await answer.json())["type"]

        held = stage.gateway.pressure.held
        sending = [asyncio.create_task(send(caller)) for caller in callers[:2]]
        await stage.until(lambda: held.now == 2 * mebibyte)
        assert await send(callers[2]) == (503, "1", "/problems/overloaded")
        async with stage.client.get("/api/v1/executions", headers=callers[2]) as answer:
            assert answer.status == 200, "it has no body"
        async with stage.client.get("/metrics", headers=callers[2]) as answer:
            assert 'noetl_memory_bytes{role="gateway",what="requests"} 2.097152e+06' in await answer.text()
        for task in sending:
            task.cancel()
        await stage.until(lambda: held.now == 0)


async def test_a_request_that_is_larger_than_the_bound_is_admitted_alone() -> None:
    held = HeldBytes(100)
    with held.reserved(1_000, ANN), pytest.raises(HttpProblem, match="may hold 100 bytes"), held.reserved(1, BOB):
        pass
    assert held.now == 0


async def test_a_caller_that_leaves_an_event_stream_no_longer_holds_its_memory() -> None:
    async with closed_gateway() as stage:
        viewer = await token(stage, "ann", "viewer")
        for address in ("/api/v1/events/stream", None):
            if address is None:
                execution_id = await held_execution(stage, await token(stage, "boss", "admin"))
                address = f"/api/v1/executions/{execution_id}/events/stream"
            async with stage.client.get(address, headers=viewer) as answer:
                await answer.content.readline()
                assert stage.gateway.pressure.streams.under_way == 1
            await stage.until(lambda: stage.gateway.pressure.streams.under_way == 0)


async def test_a_change_that_nobody_waits_for_any_more_is_made_and_on_record() -> None:
    async with closed_gateway() as stage:
        author = await token(stage, "ann", "author")
        body = json.dumps({"playbook": HELD}).encode()
        fields = {**JSON, **author, "Host": "localhost", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        text = f"POST /api/v1/executions?wait=5m HTTP/1.1\r\n{head}\r\n".encode() + body
        _, writer = await connection(stage, text)
        await stage.until(lambda: stage.gateway.pressure.waits.under_way == 1)
        writer.close()
        await stage.until(lambda: stage.gateway.pressure.waits.under_way == 0)
        async with stage.client.get("/api/v1/executions", headers=author) as answer:
            (execution,) = (await answer.json())["items"]
        (entry,) = await audited(stage)
        assert entry.answer is not None
        assert (entry.answer.status, entry.answer.made) == (202, execution["execution_id"])


# Saying nothing


@pytest.mark.parametrize("text", [b"", b"GET /livez HTT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-More: "])
async def test_a_request_that_never_begins_or_ends_is_closed(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with closed_gateway() as stage:
        with monkeypatch.context() as patched:
            patched.setattr(connections, "HEAD_S", 0.01)
            begun = [await connection(stage, text) for _ in range(50)]
            assert [await read_to_the_end(reader) for reader, _ in begun] == [b""] * len(begun)
        assert await metric(stage, "noetl_gateway_connections_closed_total") == len(begun)


async def test_the_second_request_of_a_connection_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with closed_gateway() as stage:
        request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader, writer = await connection(stage, request)
        assert b"200 OK" in await reader.readuntil(b"alive")
        monkeypatch.setattr(connections, "HEAD_S", 0.01)
        writer.write(request[:20])
        assert b"HTTP" not in await read_to_the_end(reader)
        assert closed(stage) == 1, "it was not just idle for too long"


async def test_silent_connections_keep_nobody_out() -> None:
    """As many as there may be: the oldest silent ones give way, one for each new one."""
    async with closed_gateway(max_connections=20, max_connections_per_address=10) as stage:
        silent = [await connection(stage, b"GET /livez HT") for _ in range(30)]
        async with stage.client.get("/livez") as answer:
            assert answer.status == 200
        ended = [await read_to_the_end(reader) for reader, _ in silent[:21]]
        assert ended == [b""] * 21
        assert await metric(stage, "noetl_gateway_connections") == 10


async def test_a_connection_for_which_none_gives_way_is_refused() -> None:
    async with closed_gateway(max_connections_per_address=3) as stage:
        viewer = await token(stage, "ann", "viewer")
        streams = [await stage.client.get("/api/v1/events/stream", headers=viewer) for _ in range(3)]
        reader, writer = await connection(stage, b"")
        refused = await read_to_the_end(reader)
        writer.close()
        head, _, body = refused.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ") and b"application/problem+json" in head
        assert "NOETL_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS" in json.loads(body)["detail"]
        assert [stream.status for stream in streams] == [200] * 3
        for stream in streams:
            stream.close()


async def test_connections_of_a_trusted_proxy_are_of_many() -> None:
    async with closed_gateway(BEHIND_A_PROXY, max_connections_per_address=2) as stage:
        viewer = await token(stage, "ann", "viewer")
        streams = [await stage.client.get("/api/v1/events/stream", headers=viewer) for _ in range(4)]
        assert [stream.status for stream in streams] == [200] * 4
        for stream in streams:
            stream.close()


async def test_a_reader_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = GatewayStage(GatewayLimits())

    async def large(execution_id: str) -> AsyncIterator[bytes]:
        async def pieces() -> AsyncIterator[bytes]:
            yield codec.encode(ResultDocument(execution_id, "completed", "x" * 32 * 1024 * 1024, None))

        return pieces()

    stage.replace(result_pieces=large)
    async with stage.open():
        url = URL(stage.url)
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.setblocking(False)
            await asyncio.get_running_loop().sock_connect(idle, (url.host, url.port))
            head = "\r\n".join(f"{name}: {value}" for name, value in {"Host": "localhost", **AS_ADMIN}.items())
            request = f"GET /api/v1/executions/x/result HTTP/1.1\r\n{head}\r\n\r\n".encode()
            with monkeypatch.context() as patched:
                patched.setattr(connections, "SLOW_READER_S", 0.01)
                await asyncio.get_running_loop().sock_sendall(idle, request)
                await stage.until(lambda: closed(stage) == 1)
        async with stage.client.get("/api/v1/executions/x/result") as answer:
            assert len(await answer.read()) > 32 * 1024 * 1024, "one that reads gets all of it"


@pytest.mark.parametrize(
    "text",
    [
        f"GET /{'x' * 10_000} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        f"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: {'x' * 10_000}\r\n\r\n".encode(),
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_answered_with_a_problem_and_counted(text: bytes) -> None:
    async with closed_gateway() as stage:
        reader, _ = await connection(stage, text)
        head, _, body = (await read_to_the_end(reader)).partition(b"\r\n\r\n")
        assert head.split()[1] == b"400"
        assert b"Content-Type: application/problem+json" in head
        assert json.loads(body)["type"] == "/problems/invalid-request"
        async with stage.client.get("/metrics", headers=AS_ADMIN) as answer:
            assert 'requests_total{route="none",status="400"} 1.0' in await answer.text()


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_an_address_of_ipv6_is_not_many() -> None:
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff:2") != address_group("2001:db8:0:1::1")
    assert address_group("::ffff:10.0.0.1") == address_group("10.0.0.1") != address_group("10.0.0.2")
    assert address_group(None) == ""


# Bodies


def unknown_keys(count: int) -> str:
    return "{" + ",".join(f'"k{number}":1' for number in range(count)) + "}"


async def test_a_body_of_unknown_keys_is_answered_with_a_hundred_of_them() -> None:
    async with closed_gateway() as stage:
        author = JSON | await token(stage, "ann", "author")
        for count in (MAX_FAULTS + 5, 90_000):
            async with stage.client.post("/api/v1/executions", data=unknown_keys(count), headers=author) as answer:
                problem = await answer.json(content_type=None)
            assert answer.status == 400
            assert (len(problem["errors"]), problem["left_out"]) == (MAX_FAULTS, count - MAX_FAULTS)


def test_pydantic_does_not_see_a_body_of_very_many_unknown_keys() -> None:
    with pytest.raises(HttpProblem) as refused:
        validated(StartRequest, unknown_keys(1_000).encode())
    assert refused.value.__context__ is None, "it would have made a fault of each of them"


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (unknown_keys(300_000), MAX_BODY_PARTS),
        (f'{{"workload": {{"a": [{",".join(["[]"] * 101_000)}]}}}}', MAX_BODY_PARTS),
        (f'{{"workload": {{"a": [{",".join(["1"] * 401_000)}]}}}}', MAX_BODY_VALUES),
    ],
    ids=["keys", "lists", "numbers"],
)
async def test_a_body_of_more_than_a_moments_work_is_refused_before_it_is_decoded(body: str, limit: int) -> None:
    async with closed_gateway() as stage:
        author = JSON | await token(stage, "ann", "author")
        async with stage.client.post("/api/v1/executions", data=body, headers=author) as answer:
            problem = await answer.json(content_type=None)
        assert (answer.status, problem["type"]) == (413, "/problems/too-large")
        assert str(limit) in problem["detail"]


async def test_a_playbook_of_mistakes_is_answered_with_a_hundred_of_them() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\n" + "".join(f"wrong_{n}: 1\n" for n in range(500))
    async with closed_gateway() as stage:
        author = YAML | await token(stage, "ann", "author")
        for address, status, where in (("/api/v1/playbooks/check", 200, "diagnostics"), ("/api/v1/playbooks", 422, "")):
            async with stage.client.post(address, data=text, headers=author) as answer:
                found = (await answer.json(content_type=None))[where or "diagnostics"]
            assert answer.status == status
            assert [one["code"] for one in found[MAX_FAULTS:]] == ["too_many_problems"]


async def test_a_large_body_is_read_outside_of_the_event_loop() -> None:
    async def thread_of(size: int) -> str:
        recorded = Body({"text/plain": {}}, lambda data, media: threading.current_thread().name)
        return await reader.read(recorded, bytes(size), "text/plain")

    reader = BodyReader()
    assert await thread_of(INLINE_BYTES) == threading.current_thread().name
    assert (await thread_of(INLINE_BYTES + 1)).startswith("noetl-body")
    reader.close()


def test_no_model_makes_a_fault_of_each_item_of_a_list() -> None:
    """Pydantic collects faults without pause: a list has a greatest length, or its first fault ends it."""
    models = {model for route in RESOURCES for model in route.body.media.values() if isinstance(model, type)}
    lists = 0
    for model in models:
        assert issubclass(model, BaseModel)
        for name, field in model.model_fields.items():
            if "list" in str(field.annotation):
                lists += 1
                bounded = any(isinstance(mark, FailFast) or hasattr(mark, "max_length") for mark in field.metadata)
                assert bounded, f"{model.__name__}.{name}"
    assert lists
