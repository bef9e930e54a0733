"""``kind: http`` and servers that answer oddly: nothing is taken for what it is not, and nothing changes silently."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from effort import times
from noetl_stream.model.outcome import ERROR_KINDS
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.response import MAX_RETRY_AFTER_S, status_failure
from noetl_stream.tools.http.tool import HttpTool
from raw_http import RawServer, answer, raw_server

JSON = b"Content-Type: application/json"
TEXT = b"Content-Type: text/plain"
GZIP = b"Content-Encoding: gzip"
LINES = b"".join(b"%d,customer %d\n" % (number, number * 7919 % 10007) for number in range(20_001))
Get = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        yield server


@pytest.fixture
async def get(server: RawServer, make_call: Any) -> AsyncIterator[Get]:
    """The result of a request that gets this answer."""
    tool = HttpTool(Egress(egress_rules("loopback")))

    async def get(sent: Any, timeouts: Any = None, path: str = "/x?key=s3cret", **knobs: Any) -> ToolResult:
        server.answer = sent
        return await tool.run(make_call({"url": server.url + path}, knobs=knobs, timeouts=timeouts))

    yield get
    await tool.close()


async def failure(getting: Awaitable[ToolResult]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await getting
    assert "s3cret" not in failed.value.error.message
    return failed.value


@pytest.mark.parametrize("encoding", [b"gzip", b"x-gzip", b"deflate", b"raw deflate"])
@pytest.mark.parametrize("share", [0.001, 0.6, 0.9999])
async def test_a_packed_body_that_is_cut_off_is_incomplete(get: Get, encoding: bytes, share: float) -> None:
    """Even if its length is as announced: the packed data itself says where it ends."""
    bits = {b"deflate": 15, b"raw deflate": -15}.get(encoding, 31)
    packer = zlib.compressobj(wbits=bits)
    whole = packer.compress(LINES) + packer.flush()
    header = b"Content-Encoding: " + encoding.removeprefix(b"raw ")
    assert (await get(answer(whole, header, TEXT))).result["data"] == LINES.decode()
    error = (await failure(get(answer(whole[: int(len(whole) * share)], header, TEXT)))).error
    assert (error.kind, error.retryable) == ("connection", True)
    assert "the body is incomplete" in error.message


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (gzip.compress(b'{"a":') + gzip.compress(b"1}"), {"a": 1}),
        (gzip.compress(b'{"a":1}') + bytes(512), {"a": 1}),
        (gzip.compress(b""), None),
        (b"", None),
    ],
    ids=["two members", "padded", "packed nothing", "nothing"],
)
async def test_every_whole_gzip_body_is_unpacked(get: Get, body: bytes, data: Any) -> None:
    assert (await get(answer(body, GZIP, JSON))).result["data"] == data


async def test_unpacking_ends_neither_before_nor_within_the_last_piece(get: Get) -> None:
    """Lengths around that of a piece, of what packs well and of what does not."""
    for length in (262_143, 262_144, 262_145, 524_288, 786_431):
        for body in (b"x" * length, random.Random(length).randbytes(length // 2).hex().encode()):
            done = await get(answer(gzip.compress(body), GZIP, TEXT))
            assert done.result["data"] == body.decode()


@pytest.mark.parametrize("body", [b'{"a":1}', gzip.compress(b"1") + b"and more"], ids=["plain", "followed by others"])
async def test_a_body_that_is_not_packed_as_it_says_is_an_error(get: Get, body: bytes) -> None:
    error = (await failure(get(answer(body, GZIP, JSON)))).error
    assert (error.kind, error.retryable) == ("connection", True)
    assert "the body is not gzip, as its Content-Encoding says" in error.message


async def test_an_encoding_that_was_not_asked_for_stays_packed(get: Get) -> None:
    packed = bytes([139, 3, 128]) + b'{"a":1}' + bytes([3])
    done = await get(answer(packed, b"Content-Encoding: br", TEXT + b"; charset=utf-8", b"X: \xe9"))
    assert done.result["headers"] == {
        "content-encoding": "br",
        "content-type": "text/plain; charset=utf-8",
        "x": "é",
        "content-length": str(len(packed)),
    }


UNREADABLE = {
    "not a number": (b'{"a":NaN,"b":Infinity}', '{"a":NaN,"b":Infinity}', ""),
    "not finite": (b'{"exp":1e400}', '{"exp":1e400}', "out of range"),
    "lone surrogate": (b'{"a":"\\ud800"}', '{"a":"\\ud800"}', "lone surrogate"),
    "second half of a pair": (b'{"a":"\\uDC00"}', '{"a":"\\uDC00"}', "lone surrogate"),
    "trailing comma": (b'{"a":1,}', '{"a":1,}', ""),
    "comma behind a pair": (b'["\\ud83d\\ude00",]', '["\\ud83d\\ude00",]', ""),
    "NUL": (b'{"a":"x\\u0000y"}', '{"a":"x\\u0000y"}', "data.a: text must not contain a NUL character"),
    "a page": (b"<html>", "<html>", ""),
    "invalid UTF-8": (b'{"a":"\xe9"}', '{"a":"\ufffd"}', "it is not UTF-8"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), '{"a":1}', "it is not UTF-8"),
}


@pytest.mark.parametrize(("body", "text", "reason"), UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("numbers", ["double", "text"])
async def test_json_that_cannot_be_read_is_an_error_that_keeps_it_as_text(
    get: Get, body: bytes, text: str, reason: str, numbers: str
) -> None:
    if numbers == "text" and b"1e400" in body:
        assert (await get(answer(body, JSON), numbers=numbers)).result["data"] == {"exp": "1e400"}
        return
    failed = await failure(get(answer(body, JSON), numbers=numbers))
    assert (failed.error.kind, failed.error.retryable) == ("result_not_json", False)
    assert reason in failed.error.message
    assert (reason == "lone surrogate") == ("lone surrogate" in failed.error.message)
    assert failed.result["status"] == 200
    assert failed.result["headers"]["content-type"] == "application/json"
    assert failed.result["data"] == text


async def test_json_in_latin_9_is_an_error_that_keeps_the_body(get: Get) -> None:
    sent = answer('{"a":"€é"}'.encode("iso-8859-15"), JSON + b";charset=ISO-8859-15")
    failed = await failure(get(sent))
    assert failed.error.kind == "result_not_json"
    assert failed.result["data"] == '{"a":"€é"}'


@pytest.mark.parametrize("status", [99, 101, 600, 999])
async def test_an_invalid_status_is_an_error(get: Get, status: int) -> None:
    failed = await failure(get(answer(b"1", JSON, status=status).replace(b" 99 ", b" 099 ")))
    assert (failed.error.kind, failed.error.retryable) == ("http_status", False)


async def test_the_status_of_an_error_goes_before_its_unreadable_body(get: Get) -> None:
    failed = await failure(get(answer(b"<html>down</html>", JSON, status=503)))
    assert (failed.error.kind, failed.error.retryable) == ("http_status", True)
    assert failed.result["data"] == "<html>down</html>"


async def test_digits_that_a_double_does_not_hold_are_warned_of_with_their_place(get: Get) -> None:
    body = (
        b'{"id":9007199254740993,"huge":123456789012345678901234567890,"dec":12345678901234567.89,'
        b'"neg0":-0.0,"f1":1.50,"list":[{"a/b":0.1234567890123456789}],"third":0.3333333333333333,"t":"1234567890.1234567"}'
    )
    done = await get(answer(body, JSON))
    assert done.result["data"]["huge"] == 123456789012345678901234567890
    assert done.result["data"]["dec"] == 12345678901234567.89
    [warning] = done.warnings
    assert warning.kind == "digits_lost"
    assert "/data/dec, /data/list/0/a~1b;" in warning.message
    assert not (await get(answer(b'{"a":0.1,"b":0.30000000000000004,"c":1e22}', JSON))).warnings


async def test_numbers_as_text_keep_every_digit_and_the_type_of_a_column(get: Get) -> None:
    body = b'[{"n":12345678901234567.89},{"n":1.50},{"n":1E+2},{"n":-0.0},{"n":7}]'
    done = await get(answer(body, JSON), numbers="text")
    assert [row["n"] for row in done.result["data"]] == ["12345678901234567.89", "1.50", "1E+2", "-0.0", 7]
    assert not done.warnings


@pytest.mark.parametrize(
    ("value", "text"), [("café".encode(), "café"), ("café".encode("latin-1"), "café"), (b"\xff\x00"[:1], "ÿ")]
)
async def test_a_header_is_utf_8_or_else_latin_1(get: Get, value: bytes, text: str) -> None:
    done = await get(answer(b"{}", JSON, b"X-Name: " + value))
    assert done.result["headers"]["x-name"] == done.helper["headers"]["x-name"] == text


async def test_text_in_another_charset_than_its_type_says_is_warned_of(get: Get) -> None:
    done = await get(answer("café".encode("latin-1"), TEXT + b"; charset=utf-8"))
    assert done.result["data"] == "caf\ufffd"
    assert [warning.kind for warning in done.warnings] == ["bytes_replaced"]


@pytest.mark.parametrize("charset", [b"idna", b"unicode_escape", b"utf-7", b"base64", b"zip", b"x" * 5000])
async def test_an_unknown_charset_counts_as_utf_8(get: Get, charset: bytes) -> None:
    done = await get(answer("é\\ud800+2AA-".encode(), TEXT + b"; charset=" + charset))
    assert done.result["data"] == "é\\ud800+2AA-"


async def test_large_headers_are_read_and_larger_ones_are_refused_for_good(get: Get) -> None:
    done = await get(answer(b"{}", JSON, b"X-Big: " + b"x" * 60_000))
    assert len(done.result["headers"]["x-big"]) == 60_000
    assert len((await get(answer(b"{}", *[b"X-%d: v" % number for number in range(500)]))).result["headers"]) == 501
    many = [b"X-%d: v" % number for number in range(3_000)]
    for headers in ([b"X-Big: " + b"x" * 200_000], many):
        error = (await failure(get(answer(b"{}", JSON, *headers)))).error
        assert (error.kind, error.retryable) == ("output_too_large", False)
        assert "65,536 bytes" in error.message and "no setting" in error.message


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"Retry-After: 2", 2.0),
        (b"Retry-After: " + b"9" * 20, MAX_RETRY_AFTER_S),
        (b"Retry-After: " + b"9" * 400, MAX_RETRY_AFTER_S),
        (b"Date: Fri, 27 Nov 2026 00:00:00 GMT\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
        (b"Retry-After: 1.5", None),
    ],
)
async def test_no_server_makes_a_task_wait_for_more_than_a_day(get: Get, header: bytes, seconds: float | None) -> None:
    assert (await failure(get(answer(b"", header, status=429)))).error.retry_after_s == seconds


OTHER: dict[str, tuple[bytes, Any]] = {
    "no length": (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + b'{"a":1}',
        {"a": 1},
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"a":1}', {"a": 1}),
    "no reason": (b"HTTP/1.1 200\r\n" + JSON + b'\r\nContent-Length: 7\r\n\r\n{"a":1}', {"a": 1}),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"1", JSON), 1),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(b"1", JSON), 1),
    "trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n7;ext=1\r\nabcdefg\r\n0\r\nX: 1\r\n\r\n",
        "abcdefg",
    ),
    "not modified": (b'HTTP/1.1 304 X\r\nETag: "a"\r\n\r\n', None),
    "redirect without a place": (answer(b"moved", status=302), "moved"),
    "several choices": (answer(b"1", JSON, status=300), 1),
    "duplicate keys": (answer(b'{"a":1,"a":2}', JSON), {"a": 2}),
    "pair of surrogates": (answer(b'{"a":"\\ud83d\\ude00"}', JSON), {"a": "😀"}),
    "scalar": (answer(b"42", JSON), 42),
    "null": (answer(b"null", JSON), None),
    "lines of JSON": (answer(b'{"a":1}\n{"a":2}\n', b"Content-Type: application/x-ndjson"), '{"a":1}\n{"a":2}\n'),
    "page of JSON": (answer(b'{"a":1}', b"Content-Type: text/html"), '{"a":1}'),
    "templates": (answer(b'{"a":"{{ 7*7 }} {% raw %}"}', JSON), {"a": "{{ 7*7 }} {% raw %}"}),
    "any bytes as text": (answer(bytes(range(1, 256)), b"Content-Type: image/png"), None),
}


@pytest.mark.parametrize(("sent", "data"), OTHER.values(), ids=OTHER)
async def test_an_unusual_answer_is_read(get: Get, sent: bytes, data: Any) -> None:
    done = await get(sent)
    assert done.result["data"] == data or done.result["encoding"] == "base64"


BROKEN = {
    "nothing": b"",
    "no status": b'{"a":1}',
    "bytes where none belong": answer(b"hello", b"Connection: close", status=204),
    "longer than it says": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello",
    "shorter than it says": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello!!",
    "length of letters": b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nhello",
    "name with spaces": b"HTTP/1.1 200 OK\r\nX Bad Name: 1\r\nContent-Length: 2\r\n\r\n{}",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n",
    "chunks without an end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nabcdefg\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_a_connection_error_that_is_worth_a_retry(get: Get, sent: bytes) -> None:
    error = (await failure(get(sent))).error
    assert (error.kind, error.retryable) == ("connection", True)


async def test_an_error_of_plain_http_does_not_speak_of_tls(server: RawServer, get: Get, unused_tcp_port: int) -> None:
    server.url = f"http://127.0.0.1:{unused_tcp_port}"
    message = (await failure(get(b""))).error.message
    assert message == f"GET {server.url}/x: cannot connect to 127.0.0.1:{unused_tcp_port}: Connection refused"


# Random answers.

STATUSES = (*(200,) * 8, 99, 101, 204, 206, 300, 302, 304, 307, 400, 404, 429, 500, 503, 599, 600, 999)
NAMES = (b"Content-Type", b"Content-Encoding", b"Content-Length", b"Transfer-Encoding", b"Location", b"Retry-After",
         b"Date", b"Connection", b"Set-Cookie", b"X-\xff", b"X Y", b"", b"Trailer", b"Upgrade")  # fmt: skip
VALUES = (b"application/json", b"text/plain; charset=utf-16", b"text/csv; charset=\xe9", b"gzip", b"deflate", b"br",
          b"chunked", b"5", b"-1", b"9" * 30, b"/there", b"//127.0.0.1:1/", b"http://[::1", b"\xe2\x82\xac\xff",
          b"a\tb", b"close", b"Fri, 31 Dec 9999 23:59:59 GMT", b"x" * 70_000, b"", b"\x01")  # fmt: skip
BODIES = (b'{"a":1}', b'{"a":NaN}', b'["\\ud800"]', b"1" * 5_000, b"0." + b"1" * 5_000, b"1e999", b"[" * 5_000,
          b"\xff\xfe", b"", b"\0", b'{"a":' * 300 + b"1" + b"}" * 300, gzip.compress(b"{}"),
          gzip.compress(LINES)[:3_000], zlib.compress(b"{}"), b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhel", b"\x00\x01",
          b'"\\u0000"', "é".encode("utf-16"))  # fmt: skip


def random_answer(chance: random.Random) -> bytes:
    """An answer of odd parts, cut or changed in some cases."""
    line = b"HTTP/%s %d X" % (chance.choice([b"1.1", b"1.1", b"1.0", b"2", b"x"]), chance.choice(STATUSES))
    lines = [line, *(b"%s: %s" % (chance.choice(NAMES), chance.choice(VALUES)) for _ in range(chance.randrange(5)))]
    body = b"".join(chance.choice(BODIES) for _ in range(chance.randrange(3)))
    if chance.random() < 0.6:
        lines.append(b"Content-Length: %d" % len(body))
    if chance.random() < 0.5:
        lines.insert(1, b"Content-Type: application/json")
    sent = bytearray(chance.choice([b"\r\n", b"\r\n", b"\n"]).join(lines) + b"\r\n\r\n" + body)
    if chance.random() < 0.2:
        del sent[chance.randrange(len(sent)) :]
    if sent and chance.random() < 0.2:
        sent[chance.randrange(len(sent))] = chance.randrange(256)
    return bytes(sent)


DOCUMENTED = {"http_status", "connection", "timeout", "forbidden_address", "output_too_large", "result_not_json"}


async def test_every_answer_has_a_documented_outcome_and_the_next_request_goes_well(get: Get) -> None:
    """Whatever a server sends, the task ends, with a result or an error that JSON can hold; never with a defect."""
    assert set(ERROR_KINDS) >= DOCUMENTED
    for seed in range(times(300)):
        sent = random_answer(random.Random(seed))
        try:
            done = await get(sent, timeouts=Timeouts(read=20.0), numbers=random.Random(seed).choice(["double", "text"]))
            outcome: tuple[Any, ...] = (done.result, dict(done.helper))
        except ToolFailure as failed:
            assert failed.error.kind in DOCUMENTED, f"seed {seed}: {failed.error}"
            outcome = (failed.result, failed.helper, failed.error)
        assert msgspec.json.decode(msgspec.json.encode(outcome)), f"seed {seed}"
        if seed % 10 == 0:
            assert (await get(answer(b"[1]", JSON))).result["data"] == [1]


def test_of_a_large_body_the_message_of_a_failure_reads_the_beginning() -> None:
    """Its words alone would take many times the room of the body."""
    body = "\n" * 10_000 + "no  such\n order " + "x " * 1_000_000
    tracemalloc.start()
    try:
        failed = status_failure("GET", "http://a", {"status": 500, "headers": {}, "data": body})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failed.error.message.startswith("GET http://a returned 500: no such order x x")
    assert most < 2 * len(body)
