"""The line from a running function to its worker: heartbeats, and whether the run is cancelled (LANGUAGE §12 *python*).

A note is a frame with a JSON object: ``{"heartbeat": details}``, or ``{"asks": true}`` from a function that looks
whether it is cancelled. It then has :data:`CANCEL_S` to end once the worker has written to it. After :data:`DEBUGS`,
from one that has raised, the worker sends it the socket to a terminal. A question about files
(:mod:`~noetl_stream.tools.scratch.job_files`) is a note too, which the worker answers.
"""

from __future__ import annotations

import socket
from _thread import allocate_lock  # `threading` registers a hook that each fork of a template would run
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import chain
from types import TracebackType
from typing import IO, Any, Final, cast

from noetl_stream.tools.children.frames import HEADER_BYTES, add_length
from noetl_stream.tools.convert import NotJson, decode_json, encode_json, to_json

CANCEL_S: Final = 5.0
"""The time in which a cancelled job that checks for cancellation must end before its process is killed."""

MAX_NOTE_BYTES: Final = 16 * 1024
"""The most bytes of a heartbeat."""

CANCELLED: Final = b"\0"
DEBUGS: Final = b'{"debugs":true}'
ANSWERED: Final = b"\1"
"""The prefix of an answer of the worker."""

Ask = Callable[[Any, Iterable[bytes]], Any]


class JobLine:
    """The line of one job, for its :class:`noetl_stream_client.tasks.Context`.

    Args:
        note: Sends a note.
        cancelled: Returns whether the job is cancelled.
        terminal: Asks for the socket to a terminal.
        ask: See :meth:`JobFrames.ask`; ``None``: the worker takes no questions.
    """

    def __init__(
        self,
        note: Callable[[bytes], None],
        cancelled: Callable[[], bool],
        terminal: Callable[[], socket.socket] | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.terminal = terminal
        self._note = note
        self._cancelled = cancelled
        self.ask = ask
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
        self._was_cancelled = False
        self.line = JobLine(self.send, self._is_cancelled, self._terminal, self.ask)

    def send(self, frame: bytes) -> None:
        with self._sending:
            self._connection.sendall(add_length(frame))

    def ask(self, question: Any, frames: Iterable[bytes]) -> Any:
        """Asks the worker something, sends it these frames too, and returns its answer.

        Raises:
            ConnectionAbortedError: The job is cancelled.
        """
        with self._sending:
            for frame in chain((encode_json(question),), frames):
                self._connection.sendall(add_length(frame))
            if self._receive(len(ANSWERED)) != ANSWERED:
                self._was_cancelled = True
                raise ConnectionAbortedError("the task is cancelled")
            return decode_json(self._receive(int.from_bytes(self._receive(HEADER_BYTES), "big")))

    def _receive(self, size: int) -> bytes:
        return self._connection.recv(size, socket.MSG_WAITALL)

    def _is_cancelled(self) -> bool:
        """Returns whether the worker has written something after the job, or is gone."""
        if self._was_cancelled or not self._sending.acquire(blocking=False):  # else an answer is on its way
            return self._was_cancelled
        try:
            self._connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self._sending.release()
        return True

    def _terminal(self) -> socket.socket:
        self.send(DEBUGS)
        _, (descriptor,), _, _ = socket.recv_fds(self._connection, 1, 1)
        return socket.socket(fileno=descriptor)


class Terminal:
    """A terminal behind a socket, which provides a line when it receives a NUL."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8", errors="replace")

    def write(self, text: str) -> int:
        self._connection.sendall(text.replace("\0", "").encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Does nothing: all is written at once."""

    def readline(self) -> str:
        self._connection.sendall(b"\0")
        return self._lines.readline()


def debug(error: BaseException, trace: TracebackType | None) -> None:
    """Lets a person look at the frames of a traceback, if the line of the job leads to a terminal."""
    line = LINE.get()
    if line is None or line.terminal is None:
        return
    from pdb import Pdb  # most jobs need none

    with line.terminal() as connection:
        terminal = Terminal(connection)
        terminal.write(f"{type(error).__name__}: {error}\n")
        stream = cast(IO[str], terminal)  # as much of it as a debugger needs
        debugger = Pdb(stdin=stream, stdout=stream, readrc=False)
        debugger.reset()
        debugger.interaction(None, trace)
