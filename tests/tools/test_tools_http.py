from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import MAX_REDIRECTS, HttpTool

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """A local server: ``/echo`` returns the request, ``answer`` sets the behavior of ``/answer``."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.seen: list[str] = []
        self.url = ""

    def answer(self, *pieces: Any, **response: Any) -> str:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.Response(*pieces, **response)

        self.handler = handler
        return f"{self.url}/answer"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path)
        if request.path == "/answer":
            assert self.handler is not None
            return await self.handler(request)
        echoed = {
            "method": request.method,
            "query": [[name, value] for name, value in request.query.items()],
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": await request.text(),
        }
        return web.json_response(echoed)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield api
    await runner.cleanup()


@pytest.fixture
async def send(make_call: Any) -> AsyncIterator[Callable[..., Awaitable[ToolResult]]]:
    tool = HttpTool(Egress(egress_rules("loopback")))

    async def send(knobs: Any = None, timeouts: Any = None, credentials: Any = None, **inputs: Any) -> ToolResult:
        return await tool.run(make_call(inputs, knobs=knobs, timeouts=timeouts, credentials=credentials))

    yield send
    await tool.close()


async def test_a_get_returns_status_headers_and_parsed_json(api: Api, send: Any) -> None:
    done = await send(
        url=api.answer(body=b'{"items": [1, 2]}', content_type="application/json", headers={"X-Page": "3"})
    )
    assert done.result["status"] == 200
    assert done.result["headers"]["x-page"] == "3"
    assert done.result["data"] == {"items": [1, 2]}
    assert done.helper == {"status": 200, "headers": done.result["headers"]}


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"a": 1}', "application/problem+json", {"a": 1}),
        (b"5", "application/json", 5),
        (b"\xef\xbb\xbf[1]", "application/json", [1]),
        (b' {"a": 1}', "text/plain", {"a": 1}),
        (b"007", "text/plain", "007"),
        (b"{not json", "text/plain", "{not json"),
        (b" \n", "application/json", None),
        (b"\xef\xbb\xbfid,n\n", "text/csv", "id,n\n"),
        ("é".encode("utf-16"), "text/csv", "é"),
        ("é".encode(), "text/plain; charset=none-such", "é"),
        (b"[1]", "text/csv", "[1]"),
        (b"", "application/json", None),
        ("é".encode(), "text/plain", "é"),
        ("é".encode("latin-1"), "text/plain; charset=latin-1", "é"),
        ("é".encode("latin-1"), "text/html", "\ufffd"),
        (b"<a/>", "image/svg+xml", "<a/>"),
    ],
)
async def test_data_is_parsed_json_or_text(api: Api, send: Any, body: bytes, content_type: str, data: Any) -> None:
    done = await send(url=api.answer(body=body, headers={"Content-Type": content_type}))
    assert done.result["data"] == data
    assert set(done.result) == {"status", "headers", "data"}


async def test_a_binary_body_is_base64_and_marked_as_such(api: Api, send: Any) -> None:
    done = await send(url=api.answer(body=b"\x89PNG\xff", content_type="image/png"))
    assert done.result["data"] == "iVBOR/8="
    assert done.result["encoding"] == "base64"


@pytest.mark.parametrize(("body", "content_type"), [(b'{"a": "\\u0000"}', "application/json"), (b"a\0b", "text/plain")])
async def test_a_nul_character_in_the_answer_is_refused(api: Api, send: Any, body: bytes, content_type: str) -> None:
    with pytest.raises(ToolFailure, match="NUL") as failed:
        await send(url=api.answer(body=body, content_type=content_type))
    assert failed.value.error.kind == "result_not_json"
    assert failed.value.helper["status"] == 200


async def test_a_header_that_comes_twice_is_joined(api: Api, send: Any) -> None:
    done = await send(url=api.answer(headers=[("X-Part", "a"), ("X-Part", "b")]))
    assert done.result["headers"]["x-part"] == "a, b"


async def test_params_join_those_of_the_url(api: Api, send: Any) -> None:
    done = await send(
        url=f"{api.url}/echo?page=1", params={"page": 2, "tag": ["a", "b&c"], "on": True, "none": None, "rate": 0.5}
    )
    expected = [["page", "1"], ["page", "2"], ["tag", "a"], ["tag", "b&c"], ["on", "true"], ["rate", "0.5"]]
    assert done.result["data"]["query"] == expected


@pytest.mark.parametrize(
    ("inputs", "body", "content_type"),
    [
        ({"json": {"a": [1]}}, '{"a":[1]}', "application/json"),
        ({"payload": "text"}, '"text"', "application/json"),
        ({"data": {"a": 1}}, '{"a":1}', "application/json"),
        ({"body": {"a": 1}}, '{"a":1}', "application/json"),
        ({"body": "text é"}, "text é", "text/plain; charset=utf-8"),
        ({"form": {"a": 1, "b": ["x", "y z"], "c": None}}, "a=1&b=x&b=y+z", "application/x-www-form-urlencoded"),
        ({"body": "<a/>", "headers": {"content-type": "application/xml"}}, "<a/>", "application/xml"),
        ({}, "", None),
    ],
)
async def test_the_body_is_sent_in_its_form(
    api: Api, send: Any, inputs: dict[str, Any], body: str, content_type: str | None
) -> None:
    echoed = (await send(endpoint=f"{api.url}/echo", method="post", **inputs)).result["data"]
    assert (echoed["method"], echoed["body"], echoed["headers"].get("content-type")) == ("POST", body, content_type)


async def test_requests_that_change_something_carry_the_idempotency_key(api: Api, send: Any) -> None:
    for method, key in [("GET", None), ("HEAD", None), ("POST", "key-1"), ("DELETE", "key-1"), ("PATCH", "key-1")]:
        data = (await send(url=f"{api.url}/echo", method=method)).result["data"]
        assert method == "HEAD" or data["headers"].get("idempotency-key") == key
    data = (await send(url=f"{api.url}/echo", method="PUT", headers={"idempotency-key": "mine"})).result["data"]
    assert data["headers"]["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("credential", "header", "value"),
    [
        ("t0ken", "authorization", "Bearer t0ken"),
        ({"token": "t0ken"}, "authorization", "Bearer t0ken"),
        ({"bearer": "t0ken"}, "authorization", "Bearer t0ken"),
        ({"username": "ann", "password": "pw"}, "authorization", "Basic YW5uOnB3"),
        ({"header": {"X-Api-Key": "k"}}, "x-api-key", "k"),
    ],
)
async def test_auth_names_a_credential(api: Api, send: Any, credential: Any, header: str, value: str) -> None:
    done = await send(url=f"{api.url}/echo", credential="bank", credentials={"bank": credential})
    assert done.result["data"]["headers"][header] == value
    if isinstance(credential, dict):
        assert (await send(url=f"{api.url}/echo", auth=credential)).result["data"]["headers"][header] == value


@pytest.mark.parametrize("credential", [{"token": 5}, {"token": ""}, {"header": {"X": 1}}, {"dsn": "s3cret"}, {}])
async def test_a_credential_http_cannot_use_is_refused_without_showing_it(api: Api, send: Any, credential: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(url=f"{api.url}/echo", auth="bank", credentials={"bank": credential})
    assert failed.value.error.kind == "credential"
    assert "'bank'" in failed.value.error.message
    assert "s3cret" not in failed.value.error.message


async def test_a_missing_credential_is_an_error(api: Api, send: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(url=f"{api.url}/echo", auth="bank")
    assert failed.value.error.kind == "credential"


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
async def test_a_status_of_400_or_above_is_an_error_that_keeps_the_result(
    api: Api, send: Any, status: int, retryable: bool
) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(
            url=api.answer(status=status, body=b'{"why": "so"}', content_type="application/json"), params={"key": "k"}
        )
    error = failed.value.error
    assert (error.kind, error.code, error.retryable, error.retry_after_s) == (
        "http_status",
        str(status),
        retryable,
        None,
    )
    assert error.message == f'GET {api.url}/answer returned {status}: {{"why":"so"}}'
    assert failed.value.result["status"] == status
    assert failed.value.result["data"] == {"why": "so"}
    assert failed.value.helper["status"] == status


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:10 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:27:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(
    api: Api, send: Any, headers: dict[str, str], seconds: float | None
) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(url=api.answer(status=429, headers=headers))
    assert failed.value.error.retry_after_s == seconds


async def test_a_redirect_is_followed(api: Api, send: Any) -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/echo?a=1"})

    api.handler = away
    echoed = (await send(url=f"{api.url}/answer", method="POST", json=[1], auth={"token": "t"})).result["data"]
    assert (echoed["method"], echoed["body"], echoed["query"]) == ("POST", "[1]", [["a", "1"]])
    assert echoed["headers"]["authorization"] == "Bearer t"


async def test_after_see_other_the_next_request_is_a_get(api: Api, send: Any) -> None:
    url = api.answer(status=303, headers={"Location": "/echo"})
    echoed = (await send(url=url, method="POST", json=[1])).result["data"]
    assert (echoed["method"], echoed["body"]) == ("GET", "")
    assert not {"content-type", "idempotency-key"} & set(echoed["headers"])


async def test_secrets_do_not_follow_to_another_origin(api: Api, send: Any) -> None:
    headers = {"Cookie": "c=1", "Authorization": "Bearer t", "X-Team": "blue"}
    url = api.answer(status=302, headers={"Location": api.url.replace("127.0.0.1", "localhost") + "/echo"})
    done = await send(url=url, auth={"header": {"X-Api-Key": "k"}}, headers=headers)
    echoed = done.result["data"]["headers"]
    assert echoed["x-team"] == "blue"
    assert not {"x-api-key", "cookie", "authorization"} & set(echoed)


async def test_redirects_can_be_left_alone(api: Api, send: Any) -> None:
    done = await send(url=api.answer(status=302, headers={"Location": "/echo"}), knobs={"follow_redirects": False})
    assert done.result["status"] == 302
    assert done.result["headers"]["location"] == "/echo"


async def test_redirects_in_a_circle_end(api: Api, send: Any) -> None:
    with pytest.raises(ToolFailure, match=f"redirected more than {MAX_REDIRECTS} times") as failed:
        await send(url=api.answer(status=302, headers={"Location": "/answer"}))
    assert failed.value.error.kind == "connection"
    assert not failed.value.error.retryable
    assert len(api.seen) == MAX_REDIRECTS + 1


async def test_a_redirect_out_of_the_web_is_refused(api: Api, send: Any) -> None:
    with pytest.raises(ToolFailure, match="redirected to file:///etc/passwd, which is not an http URL"):
        await send(url=api.answer(status=302, headers={"Location": "file:///etc/passwd"}))


async def test_an_answer_over_the_cap_is_an_error(api: Api, send: Any) -> None:
    assert (await send(url=api.answer(body=b"x" * 100), knobs={"max_response_bytes": 100})).result["data"] == "x" * 100
    with pytest.raises(ToolFailure, match=r"exceeds 100 bytes; .*`spec.max_response_bytes`") as failed:
        await send(url=api.answer(body=b"x" * 101), knobs={"max_response_bytes": 100})
    assert failed.value.error.kind == "output_too_large"


async def test_the_cap_counts_unpacked_bytes(api: Api, send: Any) -> None:
    packed = gzip.compress(b"x" * 1_000_000)
    url = api.answer(body=packed, headers={"Content-Encoding": "gzip"})
    with pytest.raises(ToolFailure) as failed:
        await send(url=url, knobs={"max_response_bytes": len(packed) * 10})
    assert failed.value.error.kind == "output_too_large"


@pytest.mark.parametrize(("encoding", "window_bits"), [("gzip", 31), ("deflate", 15)])
async def test_a_bomb_is_not_unpacked(api: Api, send: Any, encoding: str, window_bits: int) -> None:
    packer = zlib.compressobj(wbits=window_bits)
    packed = b"".join(packer.compress(bytes(1_000_000)) for _ in range(100)) + packer.flush()
    url = api.answer(body=packed, headers={"Content-Encoding": encoding})
    tracemalloc.start()
    try:
        with pytest.raises(ToolFailure) as failed:
            await send(url=url, knobs={"max_response_bytes": 1_000_000})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failed.value.error.kind == "output_too_large"
    assert peak_bytes < 20_000_000


async def test_a_silent_server_is_a_timeout(api: Api, send: Any) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    api.handler = silent
    with pytest.raises(ToolFailure) as failed:
        await send(url=f"{api.url}/answer", timeouts=Timeouts(read=0.05))
    assert (failed.value.error.kind, failed.value.error.retryable) == ("timeout", True)


async def test_cancelling_ends_the_request(api: Api, send: Any) -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()  # this server cancels a handler whose client has gone
        return web.Response()

    api.handler = silent
    task = asyncio.ensure_future(send(url=f"{api.url}/answer"))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await left.wait()


async def test_a_server_that_is_not_there_is_a_connection_error_without_the_query(send: Any, unused_port: int) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(url=f"http://127.0.0.1:{unused_port}/x?key=s3cret", params={"more": "s3cret"})
    assert (failed.value.error.kind, failed.value.error.retryable) == ("connection", True)
    assert failed.value.error.message.startswith(f"GET http://127.0.0.1:{unused_port}/x: ")
    assert "s3cret" not in failed.value.error.message


async def test_a_server_that_hangs_up_is_a_connection_error(api: Api, send: Any) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    api.handler = hang_up
    with pytest.raises(ToolFailure) as failed:
        await send(url=f"{api.url}/answer", method="POST")
    assert (failed.value.error.kind, failed.value.error.retryable) == ("connection", True)


async def test_cookies_are_not_kept(api: Api, send: Any) -> None:
    await send(url=api.answer(headers={"Set-Cookie": "session=1"}))
    assert "cookie" not in (await send(url=f"{api.url}/echo")).result["data"]["headers"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "url: field required"),
        ({"url": "/relative"}, "url: must start with http:// or https:// and have a host"),
        ({"url": "ftp://host/"}, "url: must start with http:// or https:// and have a host"),
        ({"url": "http://a b/"}, "url: must start with http:// or https:// and have a host"),
        ({"url": "http://host:99999/"}, "url: its host or port is not valid"),
        (
            {"url": "http://ann:s3cret@host/"},
            "url: must not contain a user or password, which logs would show; use auth",
        ),
        ({"url": "http://ann:s3cret/x@host/"}, "url: its host or port is not valid"),
        ({"url": "http://ann:s3cret@h\u2100/"}, "url: its host or port is not valid"),
        ({"url": "http://h/", "endpoint": "http://h/"}, "endpoint: is the same input as url; remove one"),
        ({"url": "http://h/", "json": 1, "data": 1}, "data: is the same input as json; remove one"),
        ({"url": "http://h/", "json": 1, "body": 2}, "more than one body: json, body; keep one"),
        ({"url": "http://h/", "headers": {"X": "a\r\nB: c"}}, "headers.X: the value contains a line break"),
        ({"url": "http://h/", "headers": {"a b": "c"}}, "headers.a b: invalid name 'a b'"),
        (
            {"url": "http://h/", "headers": {"authorization": "x"}, "auth": {"token": "t"}},
            "headers.authorization: auth also sets this header",
        ),
        ({"url": "http://h/", "methd": "GET"}, "methd: unknown input"),
        ({"url": "http://h/", "method": "FETCH"}, "method: input should be 'GET'"),
    ],
)
async def test_wrong_inputs_are_refused(send: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await send(**inputs)
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message.startswith(message)
    assert "s3cret" not in failed.value.error.message


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_request_is_part_of_the_executions_trace_unless_it_names_another(api: Api, make_call: Any) -> None:
    tool = HttpTool(Egress(egress_rules("loopback")))
    parent, own = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'3' * 32}-{'4' * 16}-01"
    seen = []
    for headers, traceparent in (
        ({}, parent),
        ({"Traceparent": own}, parent),
        ({"traceparent": None}, parent),
        ({}, ""),
    ):
        call = make_call({"url": f"{api.url}/echo", "headers": headers}, traceparent=traceparent)
        seen.append((await tool.run(call)).result["data"]["headers"].get("traceparent"))
    await tool.close()
    assert seen == [parent, own, None, None]


async def test_a_call_says_its_method_and_address_for_its_span_and_nothing_secret(api: Api, make_call: Any) -> None:
    tool = HttpTool(Egress(egress_rules("loopback")))
    call = make_call({"url": f"{api.url}/echo/T0KEN?key=T0KEN", "method": "post"})
    await tool.run(call)
    assert call.attributes == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": int(api.url.rpartition(":")[2]),
    }
    await tool.close()
