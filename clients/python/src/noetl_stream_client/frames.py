"""Server-Sent Events (HTML Living Standard §9.2.6), parsed as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from noetl_stream_client.errors import UnexpectedAnswer

RETRY_S: Final = 2.0
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024


class Frame(NamedTuple):
    """An event of a stream; ``data`` is its JSON."""

    id: str
    data: bytes


class Frames:
    """The frames of one connection. ``last_id`` is the id of the last complete frame, with data or without; ``retry_s``
    is the pause before a broken stream is reopened.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self.last_id = ""
        self._data: list[bytes] = []
        self.retry_s = RETRY_S

    def take(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete.

        Raises:
            UnexpectedAnswer: a frame has more than 64 MiB.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > MAX_FRAME_BYTES:
            raise UnexpectedAnswer(f"an event of the stream has more than {MAX_FRAME_BYTES} bytes")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if not field and not value:
                self.last_id = self._id
                if self._data:
                    yield Frame(self._id, b"\n".join(self._data))
                self._data = []
            elif field == b"data":
                self._data.append(value)
            elif field == b"id":
                self._id = value.decode()
            elif field == b"retry" and value.isdigit():
                self.retry_s = int(value) / 1000
