"""The line from a running function to its worker: heartbeats, and whether the run is cancelled (LANGUAGE §12 *python*).

A note is a frame with a JSON object: ``{"heartbeat": details}``, or ``{"asks": true}`` from a function that looks
whether it is cancelled. It then has :data:`CANCEL_S` to end once the worker has written to it.
"""

from __future__ import annotations

import socket
from _thread import allocate_lock  # `threading` registers a hook that each fork of a template would run
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from noetl_stream.tools.children.frames import add_length
from noetl_stream.tools.convert import NotJson, encode_json, to_json

CANCEL_S: Final = 5.0
"""How long a cancelled job that asks whether it is cancelled may take to end; its process is killed then."""

MAX_NOTE_BYTES: Final = 16 * 1024
"""The most bytes of a heartbeat."""

CANCELLED: Final = b"\0"


class JobLine:
    """The line of one job, for its :class:`noetl_stream_client.tasks.Context`.

    Args:
        note: Sends a note.
        cancelled: Returns whether the job is cancelled.
    """

    def __init__(self, note: Callable[[bytes], None], cancelled: Callable[[], bool]) -> None:
        self._note = note
        self._cancelled = cancelled
        self._has_asked = False

    def heartbeat(self, details: Any = None) -> None:
        """Sends a heartbeat.

        Raises:
            ValueError: The details are not JSON, or too large.
        """
        try:
            note = encode_json({"heartbeat": to_json(details, name="details")})
        except NotJson as error:
            raise ValueError(f"a heartbeat: {error}") from None
        if len(note) > MAX_NOTE_BYTES:
            raise ValueError(f"a heartbeat has {len(note):,} bytes of JSON; at most {MAX_NOTE_BYTES:,}")
        self._note(note)

    def is_cancelled(self) -> bool:
        """Returns whether the job is cancelled."""
        if not self._has_asked:
            self._has_asked = True
            self._note(b'{"asks":true}')
        return self._cancelled()


LINE: Final = ContextVar[JobLine | None]("LINE", default=None)
"""The line of the job that runs here."""


class JobFrames:
    """Sends the frames of a process that runs one job: its notes and its answer, also from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = allocate_lock()
        self.line = JobLine(self.send, self._is_cancelled)

    def send(self, frame: bytes) -> None:
        with self._sending:
            self._connection.sendall(add_length(frame))

    def _is_cancelled(self) -> bool:
        """Returns whether the worker has written something after the job, or is gone."""
        try:
            self._connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True
