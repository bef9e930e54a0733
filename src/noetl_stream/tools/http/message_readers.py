"""Readers of streamed messages: NDJSON lines and server-sent events (HTML, *Server-sent events*)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from noetl_stream.tools.contract import ToolFailure

if TYPE_CHECKING:
    from noetl_stream.template import Guard

Form = Literal["ndjson", "sse"]

MAX_MESSAGE_BYTES: Final = 16_000_000
"""The maximum size of a message, in bytes: that of a JSON value in DuckDB."""

MEDIA_TYPES: Final[Mapping[str, Form]] = {
    "text/event-stream": "sse",
    **dict.fromkeys(("application/x-ndjson", "application/ndjson", "application/jsonl"), "ndjson"),
    **dict.fromkeys(("application/jsonlines", "application/x-jsonlines", "application/x-ndjson-stream"), "ndjson"),
}

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_DEFAULT_EVENT: Final = "message"


class JsonLines:
    """Reads lines of JSON; skips empty lines.

    Attributes:
        last_id: The id of the last message, with which a server resumes after it; empty if it has none.
        retry_s: The reconnection delay that the server asks for, in seconds; ``None`` if it asks for none.
    """

    last_id = ""
    retry_s: float | None = None

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Takes the next bytes; returns the messages that they complete, each as JSON on one line.

        Raises:
            ToolFailure: ``output_too_large``: a message is too large.
        """
        return [line for line in self._lines(data, data.rfind(b"\n") + 1).split(b"\n") if line.strip()]

    def finish(self) -> list[bytes]:
        """Returns the last message, if it ends with the body instead of a newline."""
        return self.feed(b"\n")

    def _lines(self, data: bytes, end: int) -> bytes:
        """Returns the held bytes with ``data`` up to ``end``, and holds the rest."""
        if len(self._held) + len(data) > MAX_MESSAGE_BYTES and (not end or len(self._held) + end > MAX_MESSAGE_BYTES):
            raise too_long()
        if not end:
            self._held += data
            return b""
        found = bytes(self._held) + data[:end]
        self._held[:] = data[end:]
        if self._is_first:
            found, self._is_first = found.removeprefix(_BYTE_ORDER_MARK), False
        return found


class ServerSentEvents(JsonLines):
    """Reads events, each as ``{id, event, data}``. The data is parsed as JSON if possible, else it is text."""

    def __init__(self) -> None:
        super().__init__()
        self._event = self._id = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        # a `\r` at the end may be half of a `\r\n`
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        return [found for line in self._lines(data, end).splitlines() if (found := self._after(line)) is not None]

    def finish(self) -> list[bytes]:
        """Drops the incomplete event at the end of the body, with its id."""
        self._held.clear()
        self._event, self._data, self._data_bytes, self._id = "", [], 0, self.last_id
        return []

    def _after(self, line: bytes) -> bytes | None:
        """Takes a line; returns the event that it completes, if any."""
        if not line:
            return self._ended()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._data_bytes += len(value)
                if self._data_bytes > MAX_MESSAGE_BYTES:
                    raise too_long()
            case b"event":
                self._event = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit() and len(value) < len("1000000000"):
                self.retry_s = int(value) / 1000
        return None

    def _ended(self) -> bytes | None:
        event, parts = self._event or _DEFAULT_EVENT, self._data
        self._event, self._data, self._data_bytes, self.last_id = "", [], 0, self._id
        if not parts:
            return None
        text = b"\n".join(parts)
        return msgspec.json.encode({"id": self.last_id, "event": event, "data": _data_of(text)})


def _data_of(text: bytes) -> msgspec.Raw | str:
    try:
        msgspec.json.decode(text)
        return msgspec.Raw(text.replace(b"\n", b" "))  # these newlines are between JSON values
    except (msgspec.DecodeError, RecursionError):
        return text.decode(errors="replace")


def too_long() -> ToolFailure:
    """Returns the failure for a message that is too large."""
    message = f"a message of the stream exceeds {MAX_MESSAGE_BYTES:,} bytes, which no setting changes"
    return ToolFailure.of("output_too_large", message)


@lru_cache(maxsize=64)
def compiled_until(until: str) -> Guard:
    """Compiles the condition of the last message.

    Raises:
        TemplateProblem: The condition is invalid.
    """
    from noetl_stream.template import compile_guard  # imports Jinja

    return compile_guard(until, namespaces=frozenset({"message"}), bindings={})
