"""A client over lines that break, with gateways that refuse, and with what is no gateway."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from broken_line import BrokenLine, serving
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.local.processes import choose_port
from noetl_stream.ports.operations.problems import PROBLEMS
from noetl_stream_client import (
    AsyncClient,
    ClientError,
    ExecutionFailed,
    NotFound,
    OutcomeUnknown,
    ResultTooLarge,
    TooBusy,
    UnexpectedAnswer,
    Unreachable,
    documents,
    problems,
)
from noetl_stream_client._async import executions, transport
from noetl_stream_client.calls import Route
from noetl_stream_client.requests import document_of, problem_error
from noetl_stream_client.retrying import MOST, Retries, RetryBudget
from own_certificate import write_certificate
from slow_line import SlowLine

Handler = Callable[[web.Request], Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDED = documents.Execution(
    execution_id="x", path="p", version=None, digest="d", status="completed", started=NOW, updated=NOW, finished=NOW,
    duration_s=1.0, labels={}, error=None, result={"n": 1}, ctx={}, ctx_version=0, position=9, discarded_tokens=0,
    discarded=[], warnings=[], trace_id="t", principal="me", rerun_of=None, parent=None, steps=[], waits=[],
)  # fmt: skip


def problem(status: int, kind: str, again: str = "0") -> web.Response:
    body = {"type": f"/problems/{kind}", "title": "t", "status": status, "detail": f"it is {kind}", "instance": "/x"}
    headers = {"Content-Type": "application/problem+json", "Retry-After": again}
    return web.Response(status=status, body=json.dumps(body), headers=headers)


async def asked(handler: Handler, call: Callable[[AsyncClient], Any]) -> Any:
    """What a call of a client gives, of a gateway that is this handler."""
    async with serving(handler) as url, AsyncClient(url, "a-token") as client:
        return await call(client)


@pytest.mark.parametrize("broken_after", [0, 40])
async def test_a_start_whose_answer_was_lost_is_done_once(stage: GatewayStage, broken_after: int) -> None:
    async with BrokenLine(stage.url, [broken_after] * 2).open() as line, AsyncClient(line.url, TOKEN) as client:
        one = await client.start("tests/held", labels={"once": True})
        keys = {key for method, _, key, _ in line.seen if method == "POST"}
        assert len(line.seen) == 3 and len(keys) == 1 and None not in keys
        found = [found async for found in client.each(client.list_executions, label={"once": True})]
        assert [found.execution_id for found in found] == [one.id]


async def test_a_wait_goes_on_where_its_connection_was_cut(stage: GatewayStage) -> None:
    async with BrokenLine(stage.url, []).open() as line, AsyncClient(line.url, TOKEN) as client:
        one = await client.start("tests/held")
        line.breaks = [0, 40]
        waiting = asyncio.create_task(one.result())
        await stage.until(lambda: len(line.seen) > 1)
        async with AsyncClient(stage.url, TOKEN) as other:
            await other.execution(one.id).patch({"go": 1})
        assert await waiting == {"went": 1}
        assert line.breaks == []


async def test_a_wait_outlives_that_the_gateway_is_away_for_a_while() -> None:
    port, waiting_on = choose_port(), asyncio.Queue[asyncio.Transport]()

    async def handler(request: web.Request) -> web.Response:
        assert isinstance(request.transport, asyncio.Transport)
        waiting_on.put_nowait(request.transport)
        await asyncio.Event().wait()
        return web.Response()

    async with AsyncClient(f"http://127.0.0.1:{port}", "t") as client:
        async with _serving_at(port, lambda _: web.json_response({"code": "c", "expires": "2026-01-01T00:00:00Z"})):
            await client.create_sign_in_code()
        waiting = asyncio.create_task(client.execution("x").result())
        async with _serving_at(port, handler):
            (await waiting_on.get()).abort()
        async with _serving_at(port, lambda _: web.json_response(msgspec.to_builtins(ENDED))):
            assert await waiting == {"n": 1}


@asynccontextmanager
async def _serving_at(port: int, answer: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        found = answer(request)  # type: ignore[arg-type]
        return await found if inspect.isawaitable(found) else found

    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    yield
    await runner.cleanup()


@pytest.mark.parametrize("cut", [10, 700, 2000])
async def test_events_of_an_execution_come_once_and_in_order_over_a_line_that_breaks(
    stage: GatewayStage, cut: int
) -> None:
    async with BrokenLine(stage.url, [cut] * 3, "/stream").open() as line, AsyncClient(line.url, TOKEN) as client:
        one = await client.start("tests/echo")
        await one.result()
        positions = [event.position async for event in one.events()]
        assert positions == list(range(1, len(positions) + 1))
        assert line.breaks == []


async def test_the_feed_is_resumed_after_a_break_and_misses_nothing(stage: GatewayStage) -> None:
    line = SlowLine(int(stage.url.rpartition(":")[2]), 0.0)
    await line.open()
    async with AsyncClient(f"http://127.0.0.1:{line.port}", TOKEN) as client, AsyncClient(stage.url, TOKEN) as direct:
        found: list[str] = []

        async def read() -> None:
            async for event in client.events(names=["execution.finished"]):
                found.append(event.execution_id)  # noqa: PERF401  # it is read while it grows

        reading = asyncio.create_task(read())
        while not found:
            await (await direct.start("tests/echo")).result()
        line.hold()
        line.cut()
        started = [(await direct.start("tests/echo")).id for _ in range(3)]
        line.release()
        await stage.until(lambda: set(started) <= set(found))
        assert len(found) == len(set(found))
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    await line.close()


async def test_a_client_with_a_wrong_path_is_told_that_the_address_does_not_exist(stage: GatewayStage) -> None:
    async with AsyncClient(f"{stage.url}/wrong", TOKEN) as client:
        with pytest.raises(NotFound, match="/wrong/api/v1/me is not an address"):
            await client.me()


async def test_a_reader_of_the_feed_goes_on_after_an_event_that_another_has_read(stage: GatewayStage) -> None:
    async with AsyncClient(stage.url, TOKEN) as client:
        coming = asyncio.ensure_future(anext(client.events(names=["execution.requested"])))
        while not coming.done():
            await (await client.start("tests/echo")).result()
        missed = (await client.start("tests/echo")).id
        async with aclosing(client.events((await coming).feed_id, ["execution.requested"])) as feed:
            found = (event async for event in feed if event.execution_id == missed)
            assert (await anext(found)).name == "execution.requested"


async def test_a_stream_that_ends_at_once_is_opened_again_with_pauses_and_an_end() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(body=b"retry: 2000\n\n", content_type="text/event-stream")

    async def read(client: AsyncClient) -> None:
        client.transport.budget = RetryBudget(most=2.0)
        async for _ in client.events():
            pass

    with pytest.raises(Unreachable, match="ends the stream events/stream again and again"):
        await asked(handler, read)
    assert len(seen) == 3


async def test_events_go_on_although_a_gateway_that_comes_back_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _: pause(0))

    async def handler(request: web.Request) -> web.Response:
        if request.path.endswith("/stream"):
            return web.Response(body=b"id: 9\n\n", content_type="text/event-stream")
        if not refused:
            refused.append(request.path)
            return problem(503, "overloaded", again="30")
        return web.json_response(msgspec.to_builtins(ENDED))

    async def read(client: AsyncClient) -> list[documents.Event]:
        return [event async for event in client.execution("x").events()]

    assert (await asked(handler, read), refused) == ([], ["/api/v1/executions/x"])


@pytest.mark.parametrize(("wait", "seconds"), [("2m", 120.0), ("1.5s", 1.5), (timedelta(seconds=9), 9.0), (None, 0.0)])
def test_an_answer_is_waited_for_as_long_as_the_gateway_may_wait(wait: Any, seconds: float) -> None:
    assert Route("GET", "/executions", query=("wait",)).request({"wait": wait}, {}).wait_s == seconds


async def test_an_execution_that_failed_is_raised_although_nobody_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "LATE_S", 0.01)
    monkeypatch.setattr(transport, "LATE_S", 0.01)
    failed = msgspec.structs.replace(ENDED, status="failed", error=documents.ErrorInfo(kind="x", message="it broke"))

    async def handler(request: web.Request) -> web.Response:
        if request.path.endswith("/why"):
            await asyncio.Event().wait()
        return web.json_response(msgspec.to_builtins(failed))

    with pytest.raises(ExecutionFailed):
        await asked(handler, lambda client: client.execution("x").result())


async def test_a_call_that_is_refused_for_now_is_retried_with_the_same_key() -> None:
    keys: list[str | None] = []
    answers = [problem(429, "too-busy"), problem(503, "overloaded"), problem(503, "unreachable")]

    async def handler(request: web.Request) -> web.Response:
        keys.append(request.headers.get("Idempotency-Key"))
        return answers.pop(0) if answers else web.json_response({"execution_id": "x", "position": 3})

    found = await asked(handler, lambda client: client.cancel_execution("x"))
    assert (found.position, len(keys), len(set(keys))) == (3, 4, 1)


@pytest.mark.parametrize(("status", "kind"), [(429, "too-busy"), (503, "unreachable")])
async def test_a_pause_longer_than_the_patience_ends_the_call_at_once(status: int, kind: str) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return problem(status, kind, again="3600")

    with pytest.raises(problems.PROBLEMS[kind]):
        await asked(handler, lambda client: client.get_execution("x"))
    assert len(seen) == 1


async def test_a_call_that_must_not_be_repeated_is_not_retried() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.method)
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(OutcomeUnknown, match="it may have been done"):
        await asked(handler, lambda client: client.delete_playbook("tests/echo"))
    assert seen == ["DELETE"]


async def test_an_unreachable_gateway_is_reported_with_advice() -> None:
    async with AsyncClient(f"http://127.0.0.1:{choose_port()}", "t") as client:
        with pytest.raises(Unreachable, match=r"no gateway answers at http://[\d.:]+: Connection refused \(is `"):
            await client.run("tests/echo")


async def test_a_certificate_is_trusted_if_the_client_allows_it(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, days=1)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    port = choose_port()
    url = f"https://127.0.0.1:{port}"
    async with _serving_at(port, lambda _: web.json_response(msgspec.to_builtins(ENDED)), tls):
        async with AsyncClient(url) as client:
            with pytest.raises(Unreachable, match="its certificate is not trusted: self"):
                await client.get_execution("x")
        trusted = ssl.create_default_context(cafile=str(certificate))
        async with AsyncClient(url, verify=trusted) as client:
            assert await client.get_execution("x") == ENDED


async def test_a_timeout_ends_a_wait_also_where_nothing_answers() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    with pytest.raises(TimeoutError, match="nothing is known of execution x"):
        await asked(handler, lambda client: client.execution("x").result(timeout=0.01))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: web.Response(text="hello", content_type="text/html"), "answers with something unexpected"),
        (lambda: web.json_response({"no": "execution"}), "answers with something unexpected"),
        (lambda: web.Response(status=404, text="nothing"), "is not a gateway: it answers 404"),
        (lambda: web.Response(status=302, headers={"Location": "http://else.where"}), "redirects to http://else.where"),
    ],
)
async def test_a_server_that_is_no_gateway_is_reported(answer: Callable[[], web.Response], says: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer()

    with pytest.raises(UnexpectedAnswer, match=says):
        await asked(handler, lambda client: client.get_execution("x"))


async def test_a_failure_is_raised_also_where_the_gateway_does_not_say_why() -> None:
    failed = msgspec.structs.replace(ENDED, status="failed", error=documents.ErrorInfo(kind="x", message="it broke"))

    async def handler(request: web.Request) -> web.Response:
        is_why = request.path.endswith("/why")
        return problem(500, "internal") if is_why else web.json_response(msgspec.to_builtins(failed))

    with pytest.raises(ExecutionFailed, match="execution x of p has failed: it broke") as caught:
        await asked(handler, lambda client: client.execution("x").result())
    assert caught.value.why is None and caught.value.error == failed.error


@pytest.mark.parametrize("reference", [None, {"size": 2**30}])
async def test_a_result_too_large_for_any_answer_is_reported(reference: dict[str, int] | None) -> None:
    kept = msgspec.structs.replace(ENDED, result={"$reference": {"size": 2**30}})
    whole = {"execution_id": "x", "status": "completed", "error": None}
    whole["result"] = [1] if reference is None else {"$reference": reference}

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(whole if request.path.endswith("/result") else msgspec.to_builtins(kept))

    if reference is None:
        assert await asked(handler, lambda client: client.execution("x").result()) == [1]
        return
    with pytest.raises(ResultTooLarge, match="too large for an answer") as caught:
        await asked(handler, lambda client: client.execution("x").result())
    assert caught.value.reference == reference


def test_an_unknown_kind_of_problem_counts_as_the_first_with_its_status() -> None:
    told = {"type": "/problems/new", "title": "t", "status": 404, "detail": "gone", "instance": "/", "more": 1}
    found = problem_error(json.dumps(told).encode(), "http://x")
    assert isinstance(found, NotFound) and (str(found), found.problem and found.problem.type) == (
        "gone",
        "/problems/new",
    )
    assert {kind.name: kind.status for kind in PROBLEMS} == {one.code: one.status for one in problems.PROBLEMS.values()}


def test_a_document_of_a_newer_gateway_is_read() -> None:
    told = {"execution_id": "x", "status": "frozen", "summary": "s", "since": "2026-01-01T00:00:00.000+00:00"}
    found = document_of(json.dumps(told | {"reasons": [], "more": 0, "new": {}}).encode(), documents.Why, "http://x")
    assert (found.status, found.since.year) == ("frozen", 2026)


def test_retries_end_with_their_budget_which_all_calls_share() -> None:
    budget = RetryBudget()
    retries = [Retries(budget, 3600.0) for _ in range(10)]
    taken = [one.pause_s() for _ in range(4) for one in retries]
    granted = [pause_s for pause_s in taken if pause_s is not None]
    assert int(MOST) <= len(granted) < len(taken)
    assert taken[-1] is None


def test_pauses_grow_and_are_at_least_what_the_gateway_asks_for() -> None:
    retries = Retries(RetryBudget(), 3600.0)
    pauses = [retries.pause_s() for _ in range(4)]
    assert [round(pause / 0.2 / 2**place) for place, pause in enumerate(pauses) if pause is not None] == [1] * 4
    assert retries.pause_s(at_least_s=60.0) == 60.0
    assert retries.pause_s(most=5) is None


@pytest.mark.parametrize("error", [TooBusy, Unreachable])
def test_every_error_is_one_of_the_client(error: type[Exception]) -> None:
    assert issubclass(error, ClientError)
