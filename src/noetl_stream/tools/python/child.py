"""A child process: runs jobs from a socket, one at a time (LANGUAGE §12 *python*). A zygote forks it.

A frame is a big-endian length of four bytes, then JSON of that length. The request is a job with ``max_result_bytes``
(see :func:`~noetl_stream.tools.python.job.run_job`), if it belongs to a trace with its ``traceparent``, and its
``number``, which nobody can guess; the response is
``[number, result, null]`` or ``[number, null, {kind, message, exception_type, traceback}]``. The process ends with its
worker, together with everything it started.
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
import time
from typing import Any, BinaryIO, Final

import msgspec

from noetl_stream.tools.children.confinement import limit_cpu_time
from noetl_stream.tools.python.job import JobFailed, run_job

HEADER_BYTES: Final = 4
MAX_OUTPUT_BYTES: Final = 64 * 1024
"""Captured output of one job; the rest is dropped. The worker shows less of it, so that it always marks the cut."""
MAX_WRITTEN_BYTES: Final = 16 * 1024 * 1024
"""How much one job may write: as much as an attempt's log keeps. Dropping the rest here costs the worker nothing."""
TRACE_VARIABLE: Final = "TRACEPARENT"
_STANDARD_OUTPUT: Final = 1


class BoundedOutput(io.RawIOBase):
    """Standard output of playbook code, limited to :data:`MAX_WRITTEN_BYTES` per job."""

    def __init__(self) -> None:
        self._left = MAX_WRITTEN_BYTES

    def start_job(self) -> None:
        """Resets the limit."""
        self._left = MAX_WRITTEN_BYTES

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STANDARD_OUTPUT

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        passed = piece[: self._left]
        self._left -= len(passed)
        while passed:
            passed = passed[os.write(_STANDARD_OUTPUT, passed) :]
        return len(piece)


def serve(channel_fd: int, cpu_s: int) -> None:
    """Serves jobs until the worker closes the channel. Each may use ``cpu_s`` seconds of CPU time."""
    channel = socket.socket(fileno=channel_fd)
    faulthandler.enable(file=2, all_threads=False)
    threading.Thread(target=_die_with_parent, args=(channel_fd,), daemon=True).start()
    output = BoundedOutput()
    text = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    frames = channel.makefile("rb")
    used_s = -1
    while (frame := _receive(frames)) is not None:
        output.start_job()
        if used_s != (used_s := int(time.process_time())):
            limit_cpu_time(cpu_s, final=False)
        # Always the same stream, for both: handlers that modules created in an earlier job still write to it.
        sys.stdout = sys.stderr = text
        answer = _answer(frame)
        text.flush()
        _reap()
        channel.sendall(len(answer).to_bytes(HEADER_BYTES, "big") + answer)
    _end()


def _answer(frame: bytes) -> bytes:
    job = msgspec.json.decode(frame)
    if (traceparent := job.get("traceparent")) is not None:
        os.environ[TRACE_VARIABLE] = traceparent
    else:
        os.environ.pop(TRACE_VARIABLE, None)  # of the job before
    directory = os.getcwd()  # noqa: PTH109  # as is, not as a Path
    try:
        result = msgspec.json.encode(run_job(job))
        if len(result) > job["max_result_bytes"]:
            limit = job["max_result_bytes"]
            message = f"the result has {len(result):,} bytes of JSON; the limit is {limit:,} (max_result_bytes)"
            raise JobFailed("result_too_large", message)
    except JobFailed as failed:
        return msgspec.json.encode([job["number"], None, failed.error])
    finally:
        os.chdir(directory)
    return msgspec.json.encode([job["number"], msgspec.Raw(result), None])


def _reap() -> None:
    """Reaps ended processes: orphans of the job are children of this process (``child_process``)."""
    if (multiprocessing := sys.modules.get("multiprocessing")) is not None:
        multiprocessing.active_children()  # it must reap its own first
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _receive(frames: BinaryIO) -> bytes | None:
    """The next frame; ``None`` at the end."""
    size = int.from_bytes(frames.read(HEADER_BYTES), "big")
    frame = frames.read(size)
    return frame if size and len(frame) == size else None


def _die_with_parent(channel_fd: int) -> None:
    watch = select.poll()
    watch.register(channel_fd, 0)  # POLLHUP, when the other end closes, is always reported
    watch.poll()
    _end()


def _end() -> None:
    os.killpg(os.getpid(), signal.SIGKILL)
