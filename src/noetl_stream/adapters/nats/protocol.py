"""JetStream's headers and reply subjects: statuses, message metadata, acknowledgements of publishes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

HEARTBEAT = 100
END_OF_BATCH = 204
NO_MESSAGES = 404
REQUEST_EXPIRED = 408
CONFLICT = 409
NO_RESPONDERS = 503

USED_UP = frozenset({"Batch Completed", "Message Size Exceeds MaxBytes"})
"""The texts of a status that only ends a request: all its messages, or as many as fit its bytes, were delivered."""

NANOSECONDS = 1_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Status(msgspec.Struct, frozen=True, gc=False):
    """A status message: its code, text and header fields."""

    code: int
    text: str
    fields: dict[str, str]

    def number(self, field: str) -> int | None:
        value = self.fields.get(field)
        return int(value) if value is not None else None


def parse_status(headers: bytes) -> Status | None:
    """Parses the status in a header block (``NATS/1.0 100 Idle Heartbeat`` and fields); ``None`` if it has none."""
    words = headers.partition(b"\r\n")[0].decode("utf-8", "replace").split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        return None
    return Status(int(words[1]), words[2] if len(words) > 2 else "", parse_fields(headers))


def parse_fields(headers: bytes) -> dict[str, str]:
    fields = {}
    for line in headers.decode("utf-8", "replace").split("\r\n")[1:]:
        name, found, value = line.partition(":")
        if found:
            fields[name.strip()] = value.strip()
    return fields


class MessageMetadata(msgspec.Struct, frozen=True, gc=False):
    """The metadata in the reply subject of a consumer's message. ``stored_ms`` is the stream's own time."""

    num_delivered: int
    stream_sequence: int
    consumer_sequence: int
    stored_ms: int


def parse_metadata(reply: bytes) -> MessageMetadata:
    """Parses ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>``, or the longer
    form with domain and account hash before the stream.
    """
    tokens = reply.split(b".")
    first = 4 if len(tokens) == 9 else 6
    return MessageMetadata(
        int(tokens[first]), int(tokens[first + 1]), int(tokens[first + 2]), int(tokens[first + 3]) // 1_000_000
    )


def parse_pending(reply: bytes) -> tuple[str, int]:
    """Parses the reply subject of a message: its consumer, and the number of messages left to deliver."""
    tokens = reply.split(b".")
    return (tokens[3].decode(), int(tokens[8])) if len(tokens) == 9 else (tokens[5].decode(), int(tokens[10]))


class ApiError(msgspec.Struct, frozen=True):
    """The error of a JetStream answer. ``err_code`` is the stable number (10059: stream not found)."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class PublishAck(msgspec.Struct, frozen=True, gc=False):
    """JetStream's answer to a publish. With an ``error`` nothing was stored."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


decode_publish_ack = msgspec.json.Decoder(PublishAck).decode


def milliseconds(timestamp: str) -> int:
    """Converts RFC 3339 with nanoseconds to milliseconds since the epoch, rounded down."""
    return (datetime.fromisoformat(timestamp) - _EPOCH) // timedelta(milliseconds=1)
