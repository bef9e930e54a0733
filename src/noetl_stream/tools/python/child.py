"""The program a warm child process runs: one job after the other from a socket (LANGUAGE §12 *python*).

A frame is four bytes of length, big end first, and so many bytes of JSON. In comes a job (see
:func:`~noetl_stream.tools.python.job.run_job`) with ``max_result_bytes``; out goes ``[result, null, cut]`` or
``[null, {kind, message, exception_type, traceback}, cut]``, where ``cut`` counts bytes of output beyond the cap.
The process dies with its parent, and takes what it started with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import select
import signal
import socket
import sys
import threading
from typing import Any, Final

import msgspec

from noetl_stream.tools.python.job import JobFailed, run_job

HEADER_BYTES: Final = 4
MAX_OUTPUT_BYTES: Final = 64 * 1024
"""Captured output of one job; what comes after is counted and dropped."""
_STANDARD_OUTPUT: Final = 1


class BoundedOutput(io.RawIOBase):
    """Standard output of playbook code: passes on the first :data:`MAX_OUTPUT_BYTES` of each job."""

    def __init__(self) -> None:
        self._left = MAX_OUTPUT_BYTES
        self.cut = 0

    def start_job(self) -> None:
        """Opens the cap again."""
        self._left = MAX_OUTPUT_BYTES
        self.cut = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STANDARD_OUTPUT

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        passed = piece[: self._left]
        self._left -= len(passed)
        self.cut += len(piece) - len(passed)
        while passed:
            passed = passed[os.write(_STANDARD_OUTPUT, passed) :]
        return len(piece)


def main(channel_fd: int) -> None:
    """Serves jobs until the parent closes the channel."""
    os.set_inheritable(channel_fd, False)
    channel = socket.socket(fileno=channel_fd)
    faulthandler.enable(file=2, all_threads=False)
    threading.Thread(target=_die_with_parent, args=(channel_fd,), daemon=True).start()
    output = BoundedOutput()
    text = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    while (frame := _receive(channel)) is not None:
        output.start_job()
        # The same stream every time, and for both: handlers that modules made in an earlier job still write to it.
        sys.stdout = sys.stderr = text
        answer = _answer(frame)
        text.flush()
        _reap()
        _send(channel, answer, output.cut)
    _end()


def _answer(frame: bytes) -> list[Any]:
    job = msgspec.json.decode(frame)
    directory = os.getcwd()  # noqa: PTH109  # as it is, not as a path
    try:
        result = msgspec.json.encode(run_job(job))
        if len(result) > job["max_result_bytes"]:
            limit = job["max_result_bytes"]
            message = f"the result is {len(result):,} bytes of JSON, and max_result_bytes is {limit:,}"
            raise JobFailed("result_too_large", message)
    except JobFailed as failed:
        return [
            None,
            {
                "kind": failed.kind,
                "message": failed.message,
                "exception_type": failed.exception_type,
                "traceback": failed.traceback,
            },
        ]
    finally:
        os.chdir(directory)
    return [msgspec.Raw(result), None]


def _reap() -> None:
    """Takes note of processes that have ended: orphans of the job are children of this process (``process_tree``)."""
    if (multiprocessing := sys.modules.get("multiprocessing")) is not None:
        multiprocessing.active_children()  # it must hear of its own first
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _send(channel: socket.socket, answer: list[Any], cut: int) -> None:
    frame = msgspec.json.encode([*answer, cut])
    channel.sendall(len(frame).to_bytes(HEADER_BYTES, "big") + frame)


def _receive(channel: socket.socket) -> bytes | None:
    header = _read(channel, HEADER_BYTES)
    return None if header is None else _read(channel, int.from_bytes(header, "big"))


def _read(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _die_with_parent(channel_fd: int) -> None:
    watch = select.poll()
    watch.register(channel_fd, 0)  # no event asked for: what is always told is that the other end is gone
    watch.poll()
    _end()


def _end() -> None:
    os.killpg(os.getpid(), signal.SIGKILL)
