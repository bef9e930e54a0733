"""``kind: http`` with a response that is read as messages: NDJSON and server-sent events."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from http_stage import Client, Server, served

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http import message_readers, stream
from noetl_stream.tools.http.message_readers import JsonLines, ServerSentEvents
from noetl_stream.tools.http.tool import HttpTool

LINES = b'{"id": 1, "name": "Ada"}\n\n{"id": 2, "name": "Grace"}\r\n{"id": 3, "tags": ["x"]}'
FIRST, SECOND, THIRD = (b'id: %d\ndata: {"n": %d}\n\n' % (number, number) for number in (1, 2, 3))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as made:
        yield made


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Client]:
    monkeypatch.setattr(stream, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tool = HttpTool(Egress(egress_rules("loopback")), settings=ToolSettings(max_scratch_bytes=4_000_000))
    yield Client(tool)
    await tool.close()
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  # no file is left behind


async def failure(client: Client, **inputs: Any) -> tuple[str, str, bool]:
    with pytest.raises(ToolFailure) as failed:
        await client.send(**inputs)
    return failed.value.error.kind, failed.value.error.message, failed.value.error.retryable


async def rows(client: Client, table: Any, query: str = "from t") -> list[dict[str, Any]]:
    duckdb = DuckdbTool()
    call = tool_call({"command": query, "tables": {"t": table}}, data=client.files)
    found: list[dict[str, Any]] = (await duckdb.run(call)).result["rows"]
    await duckdb.close()
    return found


def parsed(found: list[bytes]) -> list[Any]:
    return [json.loads(one) for one in found]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_messages_are_the_same_however_their_bytes_are_cut(step: int) -> None:
    events = (
        b"\xef\xbb\xbf: hello\r\ndata: a\r\n\r\nretry: 50\rid: 7\revent: e\rdata:[1,\rdata:  2]\r\rid\ndata\n\ndata: x"
    )
    reader, lines = ServerSentEvents(), JsonLines()
    found = [one for at in range(0, len(events), step) for one in reader.feed(events[at : at + step])]
    assert parsed(found) == [
        {"id": "", "event": "message", "data": "a"},
        {"id": "7", "event": "e", "data": [1, 2]},
        {"id": "", "event": "message", "data": ""},
    ]
    assert (reader.retry_s, reader.finish()) == (0.05, [])
    body = b"\xef\xbb\xbf" + LINES
    read = [one for at in range(0, len(body), step) for one in lines.feed(body[at : at + step])]
    assert [one["id"] for one in parsed([*read, *lines.finish()])] == [1, 2, 3]


def test_the_id_of_an_event_counts_once_the_event_is_complete() -> None:
    reader = ServerSentEvents()
    assert len(reader.feed(FIRST + b"id: 2\ndata: lo")) == 1
    assert reader.last_id == "1"
    reader.finish()
    assert parsed(reader.feed(b"data: x\n\n")) == [{"id": "1", "event": "message", "data": "x"}]


def test_a_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_readers, "MAX_MESSAGE_BYTES", 100)
    for reader, piece in ((JsonLines(), b"x" * 60), (ServerSentEvents(), b"data:" + b"x" * 40 + b"\n")):
        with pytest.raises(ToolFailure, match="a message of the stream exceeds"):
            for _ in range(3):
                reader.feed(piece)


async def test_lines_of_json_become_a_table_with_types_found_in_all_of_them(server: Server, client: Client) -> None:
    server.say(LINES[:30], LINES[30:])
    found = await client.send(url=server.url, into="table")
    assert set(found) == {"status", "headers", "table", "stream"}
    assert found["stream"] == {"messages": 3, "ended": "end", "last_id": ""}
    assert found["table"]["columns"] == [
        {"name": "id", "type": "BIGINT"},
        {"name": "name", "type": "VARCHAR"},
        {"name": "tags", "type": "VARCHAR[]"},
    ]
    assert found["table"]["rows"] == 3
    assert [row["name"] for row in await rows(client, found["table"], "from t order by id")] == ["Ada", "Grace", None]


async def test_a_column_may_change_its_type_late(server: Server, client: Client) -> None:
    server.say(b'{"n": 1}\n' * 30_000 + b'{"n": 1.5}\n')
    found = await client.send(url=server.url, into="table")
    assert found["table"]["columns"] == [{"name": "n", "type": "DOUBLE"}]


async def test_events_become_a_table_of_their_id_their_name_and_their_data(server: Server, client: Client) -> None:
    server.say(FIRST, SECOND, content_type="text/event-stream; charset=utf-8")
    found = await client.send(url=server.url, into="table", stream={"format": "sse"})
    assert [one["name"] for one in found["table"]["columns"]] == ["id", "event", "data"]
    assert await rows(client, found["table"], "select id, data.n from t order by id") == [
        {"id": "1", "n": 1},
        {"id": "2", "n": 2},
    ]
    assert server.seen[0].headers["Accept"] == "text/event-stream"


async def test_a_stream_without_messages_has_no_table(server: Server, client: Client) -> None:
    server.say(b"\n")
    found = await client.send(url=server.url, into="table")
    assert (found["table"], found["stream"]["messages"]) == (None, 0)


async def test_reading_ends_with_the_message_that_until_holds_for(server: Server, client: Client) -> None:
    server.say(FIRST, SECOND + THIRD, content_type="text/event-stream", stays_open=True)
    until = {"until": "{{ message.data.n == 2 }}"}
    found = await client.send(url=server.url, stream=until)
    assert found["data"] == {"id": "2", "event": "message", "data": {"n": 2}}
    assert found["stream"] == {"messages": 2, "ended": "until", "last_id": "2"}
    assert (await client.send(url=server.url, stream=until, into="table"))["table"]["rows"] == 2


@pytest.mark.parametrize(
    ("bounds", "ended", "count"), [({"messages": 2}, "messages", 2), ({"seconds": 0.2}, "seconds", 3)]
)
async def test_bounds_end_the_reading_of_an_endless_stream(
    server: Server, client: Client, bounds: dict[str, Any], ended: str, count: int
) -> None:
    server.say(LINES + b"\n", stays_open=True)
    found = await client.send(url=server.url, stream=bounds)
    assert (found["stream"]["ended"], found["stream"]["messages"], found["data"]["id"]) == (ended, count, count)


@pytest.mark.parametrize(
    ("bounds", "is_open", "kind", "reason", "is_retryable"),
    [
        ({"seconds": 0.2}, True, "timeout", "held for none of 3 messages within 0.2 seconds (stream.seconds)", True),
        ({"messages": 2}, True, "limit_exceeded", "held for none of 2 messages, the most that are read", False),
        ({}, False, "connection", "held for none of 3 messages when the stream ended", True),
    ],
)
async def test_a_condition_that_no_message_meets_is_an_error(
    server: Server, client: Client, bounds: dict[str, Any], is_open: bool, kind: str, reason: str, is_retryable: bool
) -> None:
    server.say(LINES + b"\n", stays_open=is_open)
    found = await failure(client, url=server.url, stream={**bounds, "until": "{{ message.id == 9 }}"})
    assert (found[0], found[2]) == (kind, is_retryable)
    assert reason in found[1]


async def test_events_go_on_behind_the_last_one_after_a_break(server: Server, client: Client) -> None:
    server.say_events(FIRST, SECOND, THIRD, times=3)
    found = await client.send(url=server.url, stream={"until": "{{ message.data.n == 3 }}"}, into="table")
    assert [row["id"] for row in await rows(client, found["table"], "from t order by id")] == ["1", "2", "3"]
    asked = [request.headers.get("Last-Event-ID", "") for request in server.seen]
    assert asked == sorted(asked) and asked[-1] > ""


async def test_events_that_break_off_for_ever_are_an_error(server: Server, client: Client) -> None:
    server.say_events(times=100)
    found = await failure(client, url=server.url, stream={"until": "{{ message.data.n == 3 }}"})
    assert found[0] == "connection"
    assert len(server.seen) == 1 + stream.RESUMES


async def test_a_server_that_has_no_more_events_ends_the_stream(server: Server, client: Client) -> None:
    answers = [web.Response(body=FIRST, content_type="text/event-stream"), web.Response(status=204)]

    async def handler(_request: web.Request) -> web.StreamResponse:
        return answers.pop(0)

    server.handler = handler
    found = await failure(client, url=server.url, stream={"until": "{{ message.data.n == 3 }}"})
    assert found[:2] == ("connection", "`stream.until` held for none of 1 messages when the stream ended")


async def test_a_request_with_a_body_is_not_sent_again_after_a_break(server: Server, client: Client) -> None:
    server.say_events(FIRST, SECOND, times=100)
    bounds = {"until": "{{ message.data.n == 2 }}"}
    assert (await failure(client, method="POST", url=server.url, json={}, stream=bounds))[0] == "connection"
    assert len(server.seen) == 1


async def test_packed_messages_are_read(server: Server, client: Client) -> None:
    packed = gzip.compress(LINES)

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip", "Content-Type": "application/jsonl"})

    server.handler = handler
    assert (await client.send(url=server.url, stream={}))["data"] == {"id": 3, "tags": ["x"]}
    packed = packed[:-9]
    assert (await failure(client, url=server.url, stream={}))[1].endswith("its gzip data ends too early")


async def test_messages_beyond_the_disk_of_a_task_are_an_error(server: Server, client: Client) -> None:
    server.say(b'{"text": "%s"}\n' % (b"x" * 5_000_000))
    kind, message, _ = await failure(client, url=server.url, into="table")
    assert (kind, message.partition(":")[0]) == ("limit_exceeded", "the messages of the stream")


@pytest.mark.parametrize(
    ("body", "content_type", "inputs", "kind", "reason"),
    [
        (LINES, "text/plain", {"stream": {}}, "invalid_input", "the response is text/plain; write stream: { format:"),
        (b"{}\nx\n", "application/jsonl", {"into": "table"}, "sql", "Malformed JSON in the response"),
        (b"{}\nx\n", "application/jsonl", {"stream": {}}, "result_not_json", "the body is not JSON"),
        (
            b"{}\nx\n",
            "application/jsonl",
            {"stream": {"until": "{{ message == 1 }}"}},
            "result_not_json",
            "message 2 of the stream is not JSON",
        ),
        (
            LINES,
            "application/jsonl",
            {"stream": {"until": "{{ message.state == 1 }}"}},
            "expression_error",
            "stream.until, message 1 of the stream: `message.state` is undefined",
        ),
        (LINES, "application/jsonl", {"stream": {"until": "{{ mesage }}"}}, "invalid_input", "`mesage` is not defined"),
        (LINES, "application/jsonl", {"stream": {"seconds": 0}}, "invalid_input", "stream.seconds: "),
    ],
)
async def test_an_unreadable_line_is_named(
    server: Server, client: Client, body: bytes, content_type: str, inputs: dict[str, Any], kind: str, reason: str
) -> None:
    server.say(body, content_type=content_type)
    found = await failure(client, url=server.url, **inputs)
    assert found[0] == kind
    assert reason in found[1]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ('{ until: "message.done" }', 'write until: "{{ message.done }}"'),
        ('{ until: "{{ mesage.done }}" }', "`mesage` is not defined; did you mean `message`?"),
        ('{ seconds: "{{ workload.n }}" }', "must be a number"),
        ("{ format: csv }", "'ndjson' or 'sse'"),
        ("{ messages: 0 }", "greater than or equal to 1"),
    ],
)
def test_a_check_finds_what_no_run_would_accept(stream: str, words: str) -> None:
    task = f"{{ kind: http, url: 'https://example.com', stream: {stream} }}"
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: p }\nworkflow:\n"
    [found] = check(f"{head}  - {{ step: start, tool: {task} }}\n", {"http": HttpTool.spec}).diagnostics
    assert (found.severity, found.line) == ("error", 5)
    assert words in found.message
