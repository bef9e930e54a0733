"""The worker's end of a process that asynchronous jobs of a trust domain share (``python_shared``, LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any, Final

import msgspec

from noetl_stream.concurrency import Capacity
from noetl_stream.tools.children.frames import HEADER_BYTES, add_length
from noetl_stream.tools.contract import WorkerUnfit
from noetl_stream.tools.python.line import CANCEL_S
from noetl_stream.tools.python.output import MAX_OUTPUT_BYTES
from noetl_stream.tools.python.template import (
    ANSWERS,
    MAX_ERROR_BYTES,
    Child,
    ChildDied,
    NotBegun,
    PythonAnswer,
    PythonJob,
)

MAX_SHARED_JOBS: Final = 1_000
"""The most jobs that one process runs at once; the next one begins in another process."""
REST_S: Final = 10.0
"""The lifetime of a process without a job. It ends sooner if a task waits for its place."""
RENEWAL_S: Final = 600.0
"""The time for which a process takes new jobs: their leftovers and its CPU time are bounded even if it never rests."""


_Answer = tuple[Any, dict[str, Any] | None]


class _NoAnswer(Exception):
    """The process has answered with something unreadable."""


class _Run:
    def __init__(self, job: PythonJob) -> None:
        self.job = job
        self.has_begun = False
        self.output = bytearray()
        self.answer: asyncio.Future[_Answer | ChildDied] = asyncio.get_running_loop().create_future()

    def hear(self, data: bytes) -> None:
        self.has_begun = True
        if data:
            self.job.heard(data)
        self.output += data[: MAX_OUTPUT_BYTES - len(self.output)]

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", errors="replace")


class SharedProcess:
    """A process that jobs share, from the wait for its place on, with those jobs.

    Attributes:
        life: Resolves when nothing is left of the process.
        has_failed: Whether it ended while it had jobs.
    """

    def __init__(self, child: AbstractAsyncContextManager[Child], capacity: Capacity) -> None:
        self._loop = asyncio.get_running_loop()
        self._capacity = capacity
        self._renewed_at = self._loop.time() + RENEWAL_S
        self._runs: dict[int, _Run] = {}
        self._numbers = count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._child: Child | None = None
        self._has_ended = False
        self._reason = ""
        self._rest_end: asyncio.TimerHandle | None = None
        self.has_failed = False
        self._opened: asyncio.Future[WorkerUnfit | None] = self._loop.create_future()
        self.life = self._loop.create_task(self._live(child))

    @property
    def takes_jobs(self) -> bool:
        """Whether one more job may begin."""
        return not self._has_ended and len(self._runs) < MAX_SHARED_JOBS and self._loop.time() < self._renewed_at

    @property
    def rests(self) -> bool:
        """Whether the process has a place and no job."""
        return self._child is not None and not self._runs and not self._has_ended

    async def run(self, job: PythonJob) -> PythonAnswer:
        """Runs a job in the process. Cancelling it cancels its code, and kills the process if that does not end.

        Raises:
            ChildDied: The process ended before it answered.
            NotBegun: The process ended before the job began.
            WorkerUnfit: The process could not be started.
        """
        number, run = next(self._numbers), _Run(job)
        self._runs[number] = run
        if self._rest_end is not None:
            self._rest_end.cancel()
        try:
            with (
                contextlib.nullcontext()
                if self._opened.done() or not self._capacity.is_full(job.namespace)
                else job.queued()
            ):
                unfit = await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._forget(number)
            raise
        if unfit is not None:
            raise unfit
        self._order(number, job.fields)
        try:
            answer = await asyncio.shield(run.answer)
        except asyncio.CancelledError:
            self._order(number, None)
            self._loop.call_later(CANCEL_S, self._lose_patience, number)
            await asyncio.wait([run.answer])
            raise
        if isinstance(answer, ChildDied):
            if not run.has_begun:
                raise NotBegun
            raise answer
        return PythonAnswer(*answer, run.text)

    def end(self) -> None:
        """Kills the process."""
        self._has_ended = True
        if self._child is None:
            self.life.cancel()
        else:
            self._child.kill()

    async def _live(self, child: AbstractAsyncContextManager[Child]) -> None:
        unfit = WorkerUnfit("the worker ends")
        try:
            async with child as self._child:
                await self._serve(self._child)
        except WorkerUnfit as failed:
            unfit = failed
        finally:
            self._has_ended = True
            if not self._opened.done():
                self._opened.set_result(unfit)

    async def _serve(self, child: Child) -> None:
        reader, self._writer = await asyncio.open_connection(sock=child.take_next())
        self._writer.write(add_length(b""))
        self._opened.set_result(None)
        self._rest()
        try:
            while True:
                self._hear(await self._frame(reader))
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has ended
        except (_NoAnswer, msgspec.MsgspecError):
            child.kill()
        self._has_ended = True
        self._writer.close()
        exit_code, of_process = await child.last_exit()
        runs, self._runs = self._runs, {}
        self.has_failed = bool(runs)
        lacked, others = child.process.lacked_memory(), len(runs) - 1
        for run in runs.values():
            died = ChildDied(exit_code, run.text, of_process, others=others, reason=self._reason, lacked_memory=lacked)
            run.answer.set_result(died)

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
        most = max((run.job.max_result_bytes for run in self._runs.values()), default=0)
        if size > most + MAX_ERROR_BYTES:
            raise _NoAnswer
        return await reader.readexactly(size)

    def _hear(self, frame: bytes) -> None:
        number, output, note, answer = _reports.decode(frame)
        run = self._runs.get(number)
        if run is None:
            return
        run.hear(output)
        if note is not None:
            run.job.noted(note)
        if answer is not None:
            run.answer.set_result(ANSWERS.decode(answer))
            self._forget(number)

    def _order(self, number: int, job: bytes | None) -> None:
        if self._writer is not None and not self._has_ended:
            self._writer.write(add_length(msgspec.msgpack.encode((number, job))))

    def _forget(self, number: int) -> None:
        self._runs.pop(number, None)
        self._rest()

    def _rest(self) -> None:
        if self._runs:
            return
        if self._writer is None or self._capacity.waiting or not self.takes_jobs:
            self.end()
        else:
            self._rest_end = self._loop.call_later(REST_S, self.end)

    def _lose_patience(self, number: int) -> None:
        if number in self._runs and not self._has_ended:
            self._reason = f"a run did not end within {CANCEL_S:g} s of its cancellation"
            self.end()


_reports: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes | None, bytes | None])
