"""Reading what NATS says: statuses, metadata, frames."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some
from nats.aio.client import Client

from noetl_stream.adapters.nats.connections.fast_path import FrameParser, fast_path_fits
from noetl_stream.adapters.nats.protocol import MessageMetadata, milliseconds, parse_metadata, parse_status


def test_a_heartbeat_moves_high_water() -> None:
    status = parse_status(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 12\r\n\r\n")
    assert status is not None
    assert (status.code, status.text) == (100, "Idle Heartbeat")
    assert (status.number("Nats-Last-Consumer"), status.number("Nats-Last-Stream")) == (7, 12)
    assert status.number("Nats-Pending-Messages") is None


@pytest.mark.parametrize(
    ("headers", "code", "text"),
    [
        (b"NATS/1.0 503\r\n\r\n", 503, ""),
        (b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 9\r\n\r\n", 408, "Request Timeout"),
        (b"NATS/1.0 409 Consumer Deleted\r\n\r\n", 409, "Consumer Deleted"),
    ],
)
def test_statuses_are_read_with_or_without_text(headers: bytes, code: int, text: str) -> None:
    status = parse_status(headers)
    assert status is not None
    assert (status.code, status.text) == (code, text)


def test_headers_of_a_message_are_not_a_status() -> None:
    assert parse_status(b"NATS/1.0\r\nNats-Msg-Id: c1.1\r\n\r\n") is None


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.EVENTS.reader.2.41.7.1795233527253576782.3",
        b"$JS.ACK._.acchash.EVENTS.reader.2.41.7.1795233527253576782.3",
        b"$JS.ACK.hub.acchash.EVENTS.reader.2.41.7.1795233527253576782.3.token",
    ],
)
def test_metadata_is_read_from_the_short_and_the_long_form(reply: bytes) -> None:
    assert parse_metadata(reply) == MessageMetadata(2, 41, 7, 1795233527253)


def test_server_times_become_milliseconds_rounded_down() -> None:
    assert milliseconds("1970-01-01T00:00:01.999999999Z") == 1999
    assert milliseconds("2026-11-21T03:58:47.253169264Z") == 1795233527253
    assert milliseconds("1970-01-01T00:00:02Z") == 2000


class Original:
    """Stands where nats-py's parser is: keeps what it is handed."""

    def __init__(self) -> None:
        self.handed: list[bytes] = []
        self.resets = 0

    async def parse(self, data: bytes = b"") -> None:
        self.handed.append(data)

    def reset(self) -> None:
        self.resets += 1


Parsed = list[tuple[bytes, bytes, bytes, bytes]]


def parser_with(sid: bytes) -> tuple[FrameParser, Original, Parsed]:
    original, received = Original(), Parsed()
    parser = FrameParser(original)
    parser.ours[sid] = lambda *message: received.append(message)
    return parser, original, received


FRAMES = (
    b"MSG a.b 7 5\r\nhello\r\n"
    b"PING\r\n"
    b"MSG a.b 7 reply.to 0\r\n\r\n"
    b"HMSG a.c 7 12 17\r\nNATS/1.0\r\n\r\nbody!\r\n"
    b"HMSG a.c 7 reply.to 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"MSG theirs 8 4\r\nMSG \r\n"
    b"MSG a.b 7 9\r\nMSG a b c\r\n"
    b"+OK\r\n"
)
OURS = [
    (b"a.b", b"", b"", b"hello"),
    (b"a.b", b"reply.to", b"", b""),
    (b"a.c", b"", b"NATS/1.0\r\n\r\n", b"body!"),
    (b"a.c", b"reply.to", b"NATS/1.0\r\n\r\n", b""),
    (b"a.b", b"", b"", b"MSG a b c"),
]
THEIRS = [b"PING\r\n", b"MSG theirs 8 4\r\nMSG \r\n", b"+OK\r\n"]


async def test_our_messages_are_handled_and_the_rest_is_passed_on() -> None:
    parser, original, received = parser_with(b"7")
    await parser.parse(FRAMES)
    assert received == OURS
    assert original.handed == THEIRS


@given(cuts=some.lists(some.integers(0, len(FRAMES)), max_size=20))
async def test_messages_are_read_wherever_the_bytes_are_split(cuts: list[int]) -> None:
    parser, original, received = parser_with(b"7")
    edges = [0, *sorted(cuts), len(FRAMES)]
    for start, end in pairwise(edges):
        await parser.parse(FRAMES[start:end])
    assert received == OURS
    assert original.handed == THEIRS


async def test_a_failing_listener_is_logged_and_later_messages_arrive(caplog: pytest.LogCaptureFixture) -> None:
    parser, _, received = parser_with(b"7")

    def fail(*message: bytes) -> None:
        raise ValueError("a defect")

    parser.ours[b"6"] = fail
    await parser.parse(b"MSG a.b 6 3\r\nbad\r\nMSG a.b 7 4\r\ngood\r\n")
    assert received == [(b"a.b", b"", b"", b"good")]
    assert "receiving a message on b'a.b' failed" in caplog.text


async def test_the_fast_path_is_not_for_a_client_it_does_not_know() -> None:
    # Not connected: there is no transport that it could write to.
    assert not fast_path_fits(Client())


async def test_a_new_connection_forgets_half_a_frame() -> None:
    parser, original, received = parser_with(b"7")
    await parser.parse(b"MSG a.b 7 5\r\nhel")
    parser.reset()
    await parser.parse(b"MSG a.b 7 3\r\nnew\r\n")
    assert received == [(b"a.b", b"", b"", b"new")]
    assert original.resets == 1
