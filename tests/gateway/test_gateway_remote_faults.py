"""The verbs over a line that breaks, to gateways that refuse, and to what is not a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from broken_line import BrokenLine, FastClock, serving
from gateway_playbooks import APPROVAL, LOOP
from gateway_stage import TOKEN as STAGE_TOKEN
from gateway_stage import GatewayStage

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, error_of
from noetl_stream.adapters.gateway_client.feed import Frames
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.errors import (
    Conflict,
    Forbidden,
    NoetlError,
    NotFound,
    OutcomeUnknown,
    PlaybookRefused,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
)
from noetl_stream.gateway.http.problems import problem_of
from noetl_stream.model.events import CancelRequested, SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.ports.operations.problems import PROBLEMS
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S

TOKEN = "noetl_0123456789abcdef_" + "0" * 64


@asynccontextmanager
async def remote_operations(url: str, token: str | None = STAGE_TOKEN) -> AsyncIterator[Operations]:
    connection = GatewayConnection(url, token, FastClock())
    yield gateway_operations(connection)
    await connection.close()


@pytest.mark.parametrize("broken_after", [0, 40])
async def test_a_call_whose_answer_was_lost_is_done_once(stage: GatewayStage, broken_after: int) -> None:
    async with BrokenLine(stage.url, [broken_after] * 2).open() as line, remote_operations(line.url) as remote:
        begun = await remote.executions.start(Start(playbook=APPROVAL, workload={"amount": 250}), "")
        keys = {key for method, _, key, _ in line.seen if method == "POST"}
        assert (len(line.seen), len(keys)) == (3, 1)
        page = await stage.operations.executions.page(ExecutionFilter(), 10, None)
        assert [one.execution_id for one in page.items] == [begun.execution_id]
        line.seen.clear()
        held = begun.execution_id
        line.breaks.append(broken_after)
        answer = await remote.executions.ask(held, SignalReceived("r1", signal="once"))
        assert [key for _, _, key, _ in line.seen] == ["r1", "r1"]
        events = await stage.operations.executions.events(held, 0, 1000)
        assert [event.position for event in events if event.name == "signal.received"] == [answer.position]


async def test_a_call_that_must_not_be_repeated_is_not_retried_and_its_error_says_why(stage: GatewayStage) -> None:
    async with BrokenLine(stage.url, [5]).open() as line, remote_operations(line.url) as remote:
        with pytest.raises(OutcomeUnknown, match="broke before the answer came"):
            await remote.credentials.put("shop", {"token": "hidden"}, "")
        assert len(line.seen) == 1
        assert (await remote.credentials.get("shop")).version == 1


async def test_a_token_whose_secret_was_lost_on_the_way_is_named(stage: GatewayStage) -> None:
    async with BrokenLine(stage.url, [0]).open() as line, remote_operations(line.url) as remote:
        with pytest.raises(OutcomeUnknown, match="its secret was lost") as lost:
            await remote.access.create_token(NewToken("ci", "viewer"), "")
        [_, made] = await remote.access.tokens()
        assert lost.value.hint is not None and made.id in lost.value.hint


async def test_a_feed_continues_after_a_lost_connection_without_gap_or_duplicate(stage: GatewayStage) -> None:
    ended = await stage.operations.executions.start(Start(playbook=LOOP), "")
    execution_id = ended.execution_id
    await stage.operations.executions.wait(execution_id, TIMEOUT_S)
    journal = await stage.operations.executions.events(execution_id, 0, 1000)
    assert len(journal) > 15
    breaks = [28, 0, 13, 1700, 1701, 2000, 40, 3000]
    async with BrokenLine(stage.url, breaks, "/stream").open() as line, remote_operations(line.url) as remote:
        feed = await remote.feed.execution(execution_id, 0)
        received = [one async for some in feed for one in some]
    assert [one.event for one in received] == journal
    assert [one.id for one in received] == [str(event.position) for event in journal]
    assert len({last for _, path, _, last in line.seen if path.endswith("/stream")}) > 3


async def test_a_feed_of_an_ended_execution_beyond_its_last_event_ends(stage: GatewayStage) -> None:
    begun = await stage.operations.executions.start(Start(playbook=LOOP), "")
    ended = await stage.operations.executions.wait(begun.execution_id, TIMEOUT_S)
    async with remote_operations(stage.url) as remote:
        feed = await remote.feed.execution(begun.execution_id, ended.position)
        assert [one async for one in feed] == []
        with pytest.raises(NotFound):
            await remote.feed.execution("nowhere", 0)


async def test_a_feed_of_everything_continues_after_a_break_where_it_stopped(stage: GatewayStage) -> None:
    async with BrokenLine(stage.url, [5000, 900, 30]).open() as line, remote_operations(line.url) as remote:
        feed = await remote.feed.everything(None)
        reading = asyncio.create_task(_until_processed(feed))
        begun = await stage.operations.executions.start(Start(playbook=LOOP), "")
        received = await asyncio.wait_for(reading, TIMEOUT_S)
        assert [one.position for one in received] == list(range(1, len(received) + 1))
        assert {one.execution_id for one in received} == {begun.execution_id}
        assert len(line.seen) > 1


async def _until_processed(feed: AsyncIterator[list[Any]]) -> list[Any]:
    received = []
    async for some in feed:
        received += [one.event for one in some]
        if received[-1].name == "playbook.processed":
            break
    return received


async def test_a_feed_that_broke_before_its_first_event_is_reported(stage: GatewayStage) -> None:
    async with BrokenLine(stage.url, [5]).open() as line, remote_operations(line.url) as remote:
        feed = await remote.feed.everything(None)
        with pytest.raises(Unreachable, match="before the first event"):
            await anext(feed)


async def test_a_feed_of_everything_that_breaks_before_its_first_event_loses_none(stage: GatewayStage) -> None:
    in_its_first_event = 300
    async with BrokenLine(stage.url, [in_its_first_event]).open() as line, remote_operations(line.url) as remote:
        feed = await remote.feed.everything(None)
        reading = asyncio.create_task(_until_processed(feed))
        begun = await stage.operations.executions.start(Start(playbook=LOOP), "")
        received = await asyncio.wait_for(reading, TIMEOUT_S)
        assert [one.position for one in received] == list(range(1, len(received) + 1))
        assert {one.execution_id for one in received} == {begun.execution_id}


async def test_an_address_without_a_listener_is_named() -> None:
    async with remote_operations("http://127.0.0.1:1") as remote:
        with pytest.raises(Unreachable, match=r"no gateway answers at http://127\.0\.0\.1:1: Connection refused"):
            await remote.executions.get("x")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            await remote.feed.execution("x", 0)


@pytest.mark.parametrize(
    ("status", "headers", "error", "text", "attempts"),
    [
        (200, {"Content-Type": "text/html"}, UsageError, "is not a gateway: it answers 200 with text/html", 1),
        (404, {"Content-Type": "text/html"}, UsageError, "is not a gateway", 1),
        (301, {"Location": "https://other.example/"}, UsageError, "redirects to https://other.example/", 1),
        (502, {"Content-Type": "text/html"}, Unreachable, "it answers 502", 4),
        (200, {"Content-Type": "application/json"}, Unreachable, "cannot read", 4),
    ],
)
async def test_a_server_that_is_not_a_gateway_is_reported_as_such(
    status: int, headers: dict[str, str], error: type[NoetlError], text: str, attempts: int
) -> None:
    authorizations = []

    async def answer(request: web.BaseRequest) -> web.Response:
        authorizations.append(request.headers["Authorization"])
        return web.Response(status=status, headers=headers, body=b"<html>")

    async with serving(answer) as url, remote_operations(url, TOKEN) as remote:
        with pytest.raises(error, match=text) as refused:
            await remote.executions.get("x")
        assert TOKEN not in str(refused.value)
    assert authorizations == [f"Bearer {TOKEN}"] * attempts


@pytest.mark.parametrize("body", [b"{}", b"[]", b'"ready"', b""])
async def test_json_of_another_kind_is_reported_as_such(body: bytes) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(headers={"Content-Type": "application/json"}, body=body)

    async with serving(answer) as url, remote_operations(url) as remote:
        with pytest.raises(UsageError, match="answers with something unexpected"):
            await remote.executions.get("x")


async def test_unknown_fields_of_a_newer_gateway_are_ignored(stage: GatewayStage) -> None:
    begun = await stage.operations.executions.start(Start(playbook=APPROVAL), "")
    newer = plain(begun) | {"mood": "fine"}

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response(newer)

    async with serving(answer) as url, remote_operations(url) as remote:
        assert await remote.executions.get(begun.execution_id) == begun


async def test_unknown_and_forbidden_callers_get_the_reason() -> None:
    async with GatewayStage(GatewayLimits(), signed_in=False).open() as stage:
        access = stage.operations.access
        viewer = (await access.create_token(NewToken("eve", "viewer"), "test")).secret
        operator = (await access.create_token(NewToken("ann", "operator"), "test")).secret
        async with remote_operations(stage.url, None) as nobody:
            with pytest.raises(Unauthenticated, match="a token is required"):
                await nobody.executions.page(ExecutionFilter(), 1, None)
        async with remote_operations(stage.url, viewer) as remote:
            with pytest.raises(Forbidden, match="needs the role operator; token:eve has viewer"):
                await remote.executions.ask("x", CancelRequested("r1"))
        async with remote_operations(stage.url, operator) as remote:
            assert (await remote.executions.page(ExecutionFilter(), 1, None)).items == []


DIAGNOSTIC = Diagnostic("error", "unknown_key", "no such key", None, "a.yaml", 1, 2, "/a").to_json()
ERRORS = [
    kind.error("what", [DIAGNOSTIC], hint="do this")
    if kind.error is PlaybookRefused
    else kind.error("what", 7.0, hint="do this")
    if kind.error is TooBusy
    else kind.error("what", hint="do this")
    for kind in PROBLEMS
    if kind.name != "internal"
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_again_when_it_has_been_a_problem(error: NoetlError) -> None:
    problem = problem_of(error, "/x")
    again = error_of(json.loads(codec.encode(problem.document)), float(problem.headers.get("Retry-After", 1)))
    assert (type(again), vars(again)) == (type(error), vars(error))


def test_a_problem_of_a_newer_gateway_is_read_by_its_status() -> None:
    newer = {"type": "/problems/unheard-of", "status": 409, "detail": "no"}
    assert isinstance(error_of(newer, 1), Conflict)
    assert type(error_of(newer | {"status": 418}, 1)) is NoetlError
    faulty = {
        "type": "/problems/invalid-request",
        "detail": "wrong",
        "errors": [{"detail": "too long", "pointer": "/a"}],
    }
    assert error_of(faulty, 1).message == "wrong; /a: too long"
    assert error_of(faulty | {"detail": "at `/a`: too long"}, 1).message == "at `/a`: too long"  # said once


def test_frames_are_read_however_the_bytes_are_cut() -> None:
    unix = 'retry: 50\n\nid: 1\nevent: a\ndata: {"name":\ndata: "é"}\n\n: still there\n'
    stream = (unix + "\r\nid: 2\r\ndata: {}\r\n\r\n").encode()
    for size in range(1, len(stream)):
        frames = Frames()
        read = [frame for at in range(0, len(stream), size) for frame in frames.take(stream[at : at + size])]
        assert read == [("1", {"name": "é"}), ("2", {})]
        assert frames.retry_s == 0.05
