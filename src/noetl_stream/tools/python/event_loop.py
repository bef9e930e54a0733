"""A process that runs many asynchronous jobs of one trust domain at once (``python_shared``, LANGUAGE §12 *python*).

Frames hold MessagePack. The worker sends ``[number, job]``, the job as JSON, or ``[number, null]`` to cancel it. The
process sends ``[number, output, null, null]`` when the job begins, without output, and whenever it writes something;
``[number, "", note, null]`` for a note (:mod:`~noetl_stream.tools.python.line`); at last
``[number, "", null, answer]``, the answer as JSON. Frames of a cancelled job may be missing, except the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TextIO, cast

import msgspec

from noetl_stream.tools.children.frames import add_length, take_frames
from noetl_stream.tools.python.job import JobFailed, run_shared_job
from noetl_stream.tools.python.line import LINE, JobLine
from noetl_stream.tools.python.output import error_answer, result_answer, text_output

_READ_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 64 * 1024
"""The most bytes of output in one frame, so that others of the process need not wait long."""
_orders: Final = msgspec.msgpack.Decoder(tuple[int, bytes | None])
_output: Final = ContextVar[TextIO]("_output")


class _OutputOfJob:
    """Standard output, divided by job: that of the job whose code writes; of no job, that of the process."""

    def __init__(self, of_process: TextIO) -> None:
        self._of_process = of_process

    def __getattr__(self, name: str) -> Any:
        return getattr(_output.get(self._of_process), name)


def serve_shared(connection: socket.socket, received: bytearray) -> None:
    """Runs the jobs that arrive until the worker closes the connection. ``received`` are the first of its bytes."""
    sys.stdout = sys.stderr = cast(TextIO, _OutputOfJob(sys.stdout))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    jobs = _Jobs(connection, loop)
    is_open = True

    def read() -> None:
        nonlocal is_open
        data = connection.recv(_READ_BYTES)
        is_open = bool(data)
        received.extend(data)
        jobs.obey(received)
        if not data:
            loop.stop()

    jobs.obey(received)
    loop.add_reader(connection, read)
    while is_open:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a task that a job has created: its own affair
            loop.run_forever()


class _Jobs:
    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._tasks: dict[int, asyncio.Task[bytes]] = {}
        self._sending = threading.Lock()  # threads of jobs write too

    def obey(self, received: bytearray) -> None:
        """Begins and cancels the jobs that the complete frames name."""
        for frame in take_frames(received):
            number, job = _orders.decode(frame)
            if job is not None:
                task = self._tasks[number] = self._loop.create_task(self._run(number, job))
                task.add_done_callback(partial(self._report, number))
            elif number in self._tasks:
                self._tasks[number].cancel()

    async def _run(self, number: int, frame: bytes) -> bytes:
        output = text_output(partial(self._write, number))
        _output.set(output)
        LINE.set(JobLine(partial(self._note, number), partial(self._is_cancelled, number)))
        self._send(number)
        job = msgspec.json.decode(frame)
        try:
            return result_answer(await run_shared_job(job, number), job["max_result_bytes"])
        except JobFailed as failed:
            return error_answer(failed)
        finally:
            with contextlib.suppress(OSError, ValueError):  # the code has closed it
                output.flush()

    def _report(self, number: int, task: asyncio.Task[bytes]) -> None:
        del self._tasks[number]
        failed = task.cancelled() or task.exception() is not None
        self._send(number, answer=b"" if failed else task.result())

    def _note(self, number: int, note: bytes) -> None:
        self._send(number, note=note)

    def _is_cancelled(self, number: int) -> bool:
        task = self._tasks.get(number)
        return task is None or task.cancelling() > 0

    def _write(self, number: int, data: memoryview) -> int:
        piece = bytes(data[:_PIECE_BYTES])
        self._send(number, piece)
        return len(piece)

    def _send(
        self, number: int, output: bytes = b"", *, note: bytes | None = None, answer: bytes | None = None
    ) -> None:
        frame = add_length(msgspec.msgpack.encode((number, output, note, answer)))
        with self._sending:
            self._connection.sendall(frame)
