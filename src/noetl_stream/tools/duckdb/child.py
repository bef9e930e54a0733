"""A child process of ``kind: duckdb``, which a zygote forks: it runs one task after the other.

Each task has a DuckDB of its own, which is closed after it. What the process may use in addition to its memory at the
beginning of a task is limited by the system, since ``memory_limit`` does not count all that DuckDB allocates, nor what
leaves it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import socket
import traceback
from collections.abc import Iterator
from typing import Final

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.children.frames import add_length, take_frames
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.job import END, NUMBER_BYTES, ROWS, DuckdbJob, Ending
from noetl_stream.tools.duckdb.task_session import DuckdbSession, SessionResult

MAX_KEPT_BYTES: Final = 128 * 1024 * 1024
"""The memory that a process may keep from its tasks; with more it takes no further one."""
_READ_BYTES: Final = 256 * 1024
_PAGE_BYTES: Final = resource.getpagesize()
_OUT_OF_MEMORY: Final = "the task needs more memory than memory_limit allows it; select less, or raise memory_limit"


def prepare() -> None:
    """Silences the library of DuckDB at the end of the zygote, where it lists unreleased objects; and imports the
    library for workbooks, which a confined process might not find.
    """
    with contextlib.suppress(ImportError):
        import python_calamine  # noqa: F401
    silent = os.open(os.devnull, os.O_WRONLY)
    atexit.register(os.dup2, silent, 2)


def serve(channel_fd: int, _cpu_s: int) -> None:
    """Runs jobs until the worker closes the channel, or too much memory is kept."""
    channel = socket.socket(fileno=channel_fd)
    own_bytes = _data_bytes()
    channel.sendall(os.getpid().to_bytes(NUMBER_BYTES))
    for frame in _frames(channel):
        bounds = msgspec.msgpack.decode(frame, type=_Bounds)
        used = _data_bytes()
        memory_bytes = used + bounds.memory_bytes if used else 0
        with _limited(resource.RLIMIT_DATA, memory_bytes), _limited(resource.RLIMIT_FSIZE, bounds.max_file_bytes):
            result, error = _run(frame)
        is_last = _data_bytes() > own_bytes + MAX_KEPT_BYTES
        for rows in result.rows:
            channel.sendall(add_length(ROWS + rows))
        channel.sendall(add_length(END + msgspec.json.encode(Ending(result.rest, error, is_last))))
        if is_last:
            return


class _Bounds(msgspec.Struct):
    memory_bytes: int
    max_file_bytes: int


def _run(frame: bytes) -> tuple[SessionResult, ErrorInfo | None]:
    try:
        return DuckdbSession(msgspec.msgpack.decode(frame, type=DuckdbJob)).run(), None
    except ToolFailure as failure:
        error = failure.error
    except MemoryError:
        error = ErrorInfo("sql", _OUT_OF_MEMORY, code="OutOfMemory")
    except Exception:
        error = ErrorInfo("internal", traceback.format_exc())
    return SessionResult([], {}), error


@contextlib.contextmanager
def _limited(kind: int, most: int) -> Iterator[None]:
    """Limits a resource of this process; 0 leaves it as it is."""
    before = resource.getrlimit(kind)
    if most:
        resource.setrlimit(kind, (most if before[1] < 0 else min(most, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def _data_bytes() -> int:
    """Returns the private memory of this process; 0 where it is unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[5]) * _PAGE_BYTES
    except OSError:
        return 0


def _frames(channel: socket.socket) -> Iterator[bytes]:
    received = bytearray()
    while data := channel.recv(_READ_BYTES):
        received += data
        yield from take_frames(received)
