"""What one caller asks for is made at its own cost: others and probes do not wait for it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, TCPConnector
from gateway_playbooks import HELD
from gateway_stage import AS_ADMIN, GatewayStage
from yarl import URL

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.concurrency import SWITCH_S
from noetl_stream.errors import NotFound, TooBusy, UsageError
from noetl_stream.gateway.http.budgets import (
    AT_ONCE_S,
    HEAVY_AT_ONCE,
    HEAVY_S,
    LONGEST_DELAY_S,
    QUERY_TIME_AT_ONCE_S,
    QUICK_AT_ONCE_S,
    SHARED_S,
    CallerPace,
    MeteredThreads,
    ProcessorBudgets,
    QueryBudgets,
)
from noetl_stream.gateway.http.pressure import HeldBytes
from noetl_stream.gateway.http.serving import PIECE_BYTES
from noetl_stream.model.json import codec
from noetl_stream.model.rights import Role
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import ResultDocument
from noetl_stream.ports.stores.idempotency import ChargedQueries, charged_queries
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.tools.python.environments.requirements import required_by

ANN, BOB = Caller("token:ann", "viewer"), Caller("token:bob", "viewer")
RESULT = "/api/v1/executions/x/result"


class Processor:
    """A processor whose time passes when a test says so."""

    def __init__(self) -> None:
        self.used_s = 0.0

    def __call__(self) -> float:
        return self.used_s

    def work(self, seconds: float) -> None:
        self.used_s += seconds


async def in_one_piece(document: ResultDocument) -> AsyncIterator[bytes]:
    yield codec.encode(document)


@asynccontextmanager
async def opened(stage: GatewayStage) -> AsyncIterator[dict[str, dict[str, str]]]:
    """A gateway with tokens of two viewers, an operator and an author, and a client that has no bound of its own."""
    async with stage.open(), ClientSession(stage.url, connector=TCPConnector(limit=0)) as stage.client:
        roles: dict[str, Role] = {"ann": "viewer", "bob": "viewer", "eve": "operator", "amy": "author"}
        access = stage.operations.access
        made = {name: await access.create_token(NewToken(name, role), "test") for name, role in roles.items()}
        yield {name: {"Authorization": f"Bearer {one.secret}"} for name, one in made.items()}


# Turns at long answers


async def test_long_answers_to_one_caller_are_made_a_few_at_a_time_and_others_do_not_wait_for_them() -> None:
    stage, release, asked = GatewayStage(GatewayLimits(), signed_in=False), asyncio.Event(), 0

    async def slow(execution_id: str) -> AsyncIterator[bytes]:
        nonlocal asked
        asked += 1
        await release.wait()
        return in_one_piece(ResultDocument(execution_id, "completed", execution_id, None))

    stage.replace(result_pieces=slow)
    async with opened(stage) as tokens:
        pressure = stage.gateway.pressure

        async def ask(name: str) -> int:
            async with stage.client.get(RESULT, headers=tokens[name]) as answer:
                return answer.status

        many = [asyncio.create_task(ask("ann")) for _ in range(20)]
        await stage.until(lambda: pressure.requests.under_way == 20)
        await stage.until(lambda: asked == pressure.turns.under_way == HEAVY_AT_ONCE)
        other = asyncio.create_task(ask("bob"))
        await stage.until(lambda: asked == HEAVY_AT_ONCE + 1)
        async with stage.client.get("/api/v1/me", headers=tokens["ann"]) as answer:
            assert answer.status == 200, "it is not long"

        # Whoever hangs up takes no turn any more.
        for task in many[HEAVY_AT_ONCE:]:
            task.cancel()
        await stage.until(lambda: pressure.requests.under_way == HEAVY_AT_ONCE + 1)
        release.set()
        assert await asyncio.gather(other, *many[:HEAVY_AT_ONCE]) == [200] * (HEAVY_AT_ONCE + 1)
        assert asked == HEAVY_AT_ONCE + 1
        assert pressure.turns.under_way == 0


async def test_checks_and_registrations_of_one_caller_are_made_a_few_at_a_time_at_its_cost() -> None:
    stage, release, checked = GatewayStage(GatewayLimits(), signed_in=False), asyncio.Event(), 0
    processor = Processor()

    async def slow(*_: Any, **__: Any) -> None:
        nonlocal checked
        checked += 1
        processor.work(AT_ONCE_S)
        await release.wait()
        raise UsageError("it is not read")

    stage.replace("playbooks", check=slow, register=slow)
    async with opened(stage) as tokens:
        pressure = stage.gateway.pressure
        pressure.processor = ProcessorBudgets(ManualClock(), 50, processor)

        async def send(address: str) -> int:
            headers = {**tokens["amy"], "Content-Type": "application/yaml"}
            async with stage.client.post(f"/api/v1/playbooks{address}", data="a: b", headers=headers) as answer:
                return answer.status

        many = [asyncio.create_task(send(address)) for address in ("", "/check", "", "/check")]
        await stage.until(lambda: pressure.checks.under_way == 4)
        await stage.until(lambda: checked == pressure.turns.under_way == HEAVY_AT_ONCE)
        release.set()
        assert await asyncio.gather(*many) == [422] * 4
        assert [await send(""), await send("/check")] == [429, 429]


class NotingThreads(ThreadPoolExecutor):
    """Notes what is called in them."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.called.append(fn.args[0])
        return super().submit(fn, *args, **kwargs)


async def test_the_text_of_a_registration_is_read_beside_the_loop() -> None:
    threads = NotingThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    await GatewayStage(GatewayLimits()).operations.playbooks.register(HELD.encode(), "held", "amy")
    assert threads.called == [check_document, required_by, entry_of]


async def test_busy_threads_of_a_gateway_hand_the_interpreter_back_soon() -> None:
    before_s = sys.getswitchinterval()
    try:
        async with GatewayStage(GatewayLimits()).open():
            assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before_s)


# Bytes


async def test_a_long_answer_is_held_by_its_reader_until_it_is_read() -> None:
    stage = GatewayStage(GatewayLimits())
    value = "x" * 32 * PIECE_BYTES

    async def large(execution_id: str) -> AsyncIterator[bytes]:
        return in_one_piece(ResultDocument(execution_id, "completed", value, None))

    stage.replace(result_pieces=large)
    async with opened(stage):
        pressure, url = stage.gateway.pressure, URL(stage.url)
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.setblocking(False)
            await asyncio.get_running_loop().sock_connect(idle, (url.host, url.port))
            head = "\r\n".join(f"{name}: {text}" for name, text in {"Host": "localhost", **AS_ADMIN}.items())
            request = f"GET {RESULT} HTTP/1.1\r\n{head}\r\n\r\n".encode()
            await asyncio.get_running_loop().sock_sendall(idle, request)
            await stage.until(lambda: pressure.held.now > len(value))
            assert (pressure.turns.under_way, pressure.requests.under_way) == (1, 1)
        await stage.until(lambda: pressure.held.now == pressure.turns.under_way == 0)
        async with stage.client.get(RESULT, headers={**AS_ADMIN, "Accept-Encoding": "identity"}) as answer:
            body = await answer.read()
            assert body == codec.encode(ResultDocument("x", "completed", value, None))
            assert answer.headers["Content-Length"] == str(len(body))
        async with stage.client.get(RESULT, headers={**AS_ADMIN, "Accept-Encoding": "gzip"}) as answer:
            assert (await answer.read(), answer.headers["Content-Encoding"]) == (body, "gzip")


async def test_a_reader_of_pieces_holds_one_at_a_time_and_never_takes_a_part_for_the_whole() -> None:
    stage, held = GatewayStage(GatewayLimits()), list[int]()

    async def pieces(execution_id: str) -> AsyncIterator[bytes]:
        async def some() -> AsyncIterator[bytes]:
            yield b'"'
            for _ in range(32):
                held.append(stage.gateway.pressure.held.now)
                yield b"x" * PIECE_BYTES
            if execution_id == "lost":
                raise NotFound("its object is lost")
            yield b'"'

        return some()

    stage.replace(result_pieces=pieces)
    async with opened(stage):
        for encoding in ("identity", "gzip"):
            async with stage.client.get(RESULT, headers={**AS_ADMIN, "Accept-Encoding": encoding}) as answer:
                assert await answer.json() == "x" * 32 * PIECE_BYTES
        assert max(held) <= PIECE_BYTES
        with pytest.raises(ClientPayloadError):
            async with stage.client.get(RESULT.replace("/x/", "/lost/"), headers=AS_ADMIN) as answer:
                await answer.read()
        assert stage.gateway.pressure.held.now == 0


def test_a_caller_holds_no_more_than_its_share_of_the_memory() -> None:
    held = HeldBytes(1_000)
    with held.counted(90, ANN.principal):
        with pytest.raises(TooBusy, match="token:ann may hold 100 bytes together, and hold 90"), held.reserved(11, ANN):
            pass
        with held.reserved(10, ANN), held.reserved(100, BOB), held.reserved(0, ANN):
            assert held.now == 200
    with held.reserved(500, ANN):
        pass  # one alone, whatever its size


# Time of the processor


async def test_a_caller_of_many_quick_answers_is_delayed_only_while_others_call() -> None:
    clock, processor, delays = ManualClock(), Processor(), list[float]()

    async def slept(seconds: float) -> None:
        delays.append(seconds)

    clock.sleep = slept  # type: ignore[method-assign]
    pace = CallerPace(clock, 50, processor)

    async def refused(seconds: float) -> str:
        processor.work(seconds)
        raise UsageError("the body is not JSON")

    async def call(caller: str, seconds: float) -> None:
        with pytest.raises(UsageError):
            await pace.kept(refused(seconds), lambda: caller)

    for _ in range(4):
        await call("token:loud", QUICK_AT_ONCE_S)
    assert delays == [], "it is alone"
    await call("token:quiet", 0.001)
    assert delays == [], "a caller of little is never delayed"
    await call("token:loud", QUICK_AT_ONCE_S)
    assert delays == [pytest.approx(4 * QUICK_AT_ONCE_S / 0.5)], "until it has used half of the processor"
    clock.advance(SHARED_S + 1)
    await call("token:loud", 20 * QUICK_AT_ONCE_S)
    assert len(delays) == 1, "the other has left"
    await call("token:quiet", 0.001)
    await call("token:loud", QUICK_AT_ONCE_S)
    assert delays[1:] == [LONGEST_DELAY_S]


async def test_a_caller_that_has_used_its_part_of_the_processor_waits_until_it_has_some_again() -> None:
    clock, processor = ManualClock(), Processor()
    budgets = ProcessorBudgets(clock, 50, processor)

    async def answer(seconds: float) -> str:
        processor.work(seconds / 2)
        await asyncio.sleep(0)
        processor.work(seconds / 2)
        return "answer"

    assert await budgets.charged(ANN, answer(AT_ONCE_S - 1)) == "answer"
    budgets.admit(ANN)
    await budgets.charged(ANN, answer(2.0))
    with pytest.raises(TooBusy, match="token:ann took too much of the processor") as refused:
        budgets.admit(ANN)
    assert refused.value.retry_after_s == pytest.approx(4.0)
    budgets.admit(BOB)
    clock.advance(4)
    budgets.admit(ANN)


async def test_quick_answers_are_charged_to_nobody() -> None:
    processor = Processor()
    budgets = ProcessorBudgets(ManualClock(), 1, processor)

    async def quick() -> None:
        processor.work(HEAVY_S * 0.9)

    for _ in range(1_000):
        await budgets.charged(ANN, quick())
        budgets.admit(ANN)
    assert processor.used_s > 4 * AT_ONCE_S


async def test_work_beside_the_loop_is_charged_to_the_caller_and_so_is_what_fails() -> None:
    processor = Processor()
    budgets = ProcessorBudgets(ManualClock(), 50, lambda: 0.0)
    asyncio.get_running_loop().set_default_executor(MeteredThreads(processor))

    async def failing() -> None:
        await asyncio.to_thread(processor.work, AT_ONCE_S)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await budgets.charged(ANN, failing())
    with pytest.raises(TooBusy):
        budgets.admit(ANN)
    await asyncio.to_thread(processor.work, AT_ONCE_S)  # nobody's
    budgets.admit(BOB)


async def test_work_that_is_charged_can_be_cancelled() -> None:
    budgets, cleaned = ProcessorBudgets(ManualClock(), 50), []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = asyncio.create_task(budgets.charged(ANN, waiting()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


# Time of Postgres


async def test_a_caller_whose_queries_took_their_part_of_postgres_waits_until_it_has_some_again() -> None:
    clock = ManualClock()
    budgets = QueryBudgets(clock, 30)

    async def query(seconds: float) -> ChargedQueries:
        queries = charged_queries()
        queries.spent_s += seconds
        return queries

    queries = await budgets.charged(ANN, query(QUERY_TIME_AT_ONCE_S))
    assert (queries.longest_s, queries.ended) == (30, True)
    with pytest.raises(TooBusy, match="queries for token:ann took Postgres too much time") as refused:
        budgets.admit(ANN)
    assert refused.value.retry_after_s == pytest.approx(1.0)
    for _ in range(1_000):
        await budgets.charged(BOB, query(HEAVY_S * 0.9))
        budgets.admit(BOB)
    clock.advance(1)
    budgets.admit(ANN)


async def test_two_requests_of_a_caller_share_its_turns_and_what_they_leave_behind_is_nobodys() -> None:
    budgets, left = QueryBudgets(ManualClock(), 30), asyncio.Event()

    async def asking() -> tuple[ChargedQueries, asyncio.Task[ChargedQueries]]:
        async def behind() -> ChargedQueries:
            await left.wait()
            return charged_queries()

        await asyncio.sleep(0)
        return charged_queries(), asyncio.create_task(behind())

    reads = [budgets.charged(of, asking()) for of in (ANN, ANN, BOB)]
    found = await asyncio.gather(*reads, budgets.charged(ANN, asking(), changes=True))
    (one, behind), (two, _), (other, _), (change, _) = found
    assert one.turn is two.turn
    assert len({one.turn, other.turn, change.turn}) == 3, "a change waits for no read"
    left.set()
    assert (await behind).longest_s is None


async def test_reads_of_a_caller_over_its_budget_are_refused_and_its_interventions_are_not() -> None:
    stage, processor = GatewayStage(GatewayLimits(), signed_in=False), Processor()

    async def costly(execution_id: str) -> AsyncIterator[bytes]:
        processor.work(2 * AT_ONCE_S)
        return in_one_piece(ResultDocument(execution_id, "completed", 1, None))

    stage.replace(result_pieces=costly)
    async with opened(stage) as tokens:
        stage.gateway.pressure.processor = ProcessorBudgets(ManualClock(), 50, processor)
        async with stage.client.post("/api/v1/executions", json={"playbook": HELD}, headers=AS_ADMIN) as answer:
            held = f"/api/v1/executions/{(await answer.json())['execution_id']}"
        answers = []
        for address in (RESULT, RESULT, held):
            async with stage.client.get(address, headers=tokens["eve"]) as answer:
                document = await answer.json(content_type=None)
                answers.append((answer.status, document.get("type"), answer.headers.get("Retry-After")))
        assert answers == [(200, None, None), *[(429, "/problems/too-busy", "22")] * 2]
        async with stage.client.get(held, headers=tokens["bob"]) as answer:
            assert answer.status == 200
        async with stage.client.post(f"{held}/cancel", json={}, headers=tokens["eve"]) as answer:
            assert answer.status == 202
