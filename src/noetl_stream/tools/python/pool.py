"""The worker's pool of child processes for ``kind: python``. Each serves one trust domain, as long as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any, Final, NamedTuple, cast

import msgspec

from noetl_stream.tools.capacity import Capacity, Queued
from noetl_stream.tools.child_process import CapturedOutput, Heard, unheard
from noetl_stream.tools.children.launcher import ChildProcess, Launcher
from noetl_stream.tools.children.messages import HEADER_BYTES
from noetl_stream.tools.python.child import MAX_OUTPUT_BYTES

_NUMBER_BYTES: Final = 16
_MAX_ERROR_BYTES: Final = 256 * 1024
"""What an answer may have besides the result: its number, or an error with its traceback, escaped."""


class ChildDied(Exception):
    """The child ended during a job. ``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code
        self.output = output


class ForeignAnswer(Exception):
    """The child has sent something other than the answer to its job: code of an earlier run may have stayed in it."""


class PythonJob(NamedTuple):
    """A job for :func:`~noetl_stream.tools.python.job.run_job`, without its number.

    Attributes:
        fields: Its fields as JSON, which begins with ``{`` and is not empty.
        domain: Children are shared only by jobs with the same text; ``None``: not at all.
        heard: Gets the output as it comes.
        queued: Entered while it waits for a child.
    """

    fields: bytes
    max_result_bytes: int
    domain: str | None
    heard: Heard
    queued: Queued = contextlib.nullcontext


class PythonAnswer(NamedTuple):
    """What a job gave: a result, or an error mapping; and its output."""

    result: Any
    error: dict[str, Any] | None
    output: str


class ChildPool:
    """Up to ``max_children`` processes with one job each; further jobs wait in order of arrival.

    Attributes:
        capacity: How many jobs run, and how many wait.
        started: How many were started.
        killed: How many of them died or were killed during a job.
    """

    def __init__(self, launcher: Launcher, *, max_children: int) -> None:
        self._launcher = launcher
        self._max_children = max_children
        self.capacity = Capacity(max_children)
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._ending: set[asyncio.Task[int]] = set()
        self.started = self.killed = 0

    def __len__(self) -> int:
        """How many live."""
        return len(self._idle) + len(self._busy)

    async def run(self, job: PythonJob) -> PythonAnswer:
        """Runs one job. Cancelling it kills the child and everything it started.

        Raises:
            ChildDied: The child ended before it answered.
            ForeignAnswer: Something else than the child's code answered.
            OSError: No child could be started.
        """
        async with self.capacity.held(job.queued):
            child = self._idle_child(job.domain) or await self._start(job.domain)
            self._busy.add(child)
            try:
                answer = await child.run(job)
            except BaseException:
                self.killed += 1
                self._end(child)
                raise
            finally:
                self._busy.discard(child)
            if job.domain is None:
                self._end(child)
            else:
                child.is_examined = False
                self._idle.append(child)
                # The answer need not wait for it.
                asyncio.get_running_loop().call_soon(self._examine, child)
            return answer

    async def close(self) -> None:
        """Kills every child and waits for them to end."""
        for child in (*self._idle, *self._busy):
            self._end(child)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)
        await self._launcher.close()

    def _idle_child(self, domain: str | None) -> Child | None:
        # The most recently used one has a warm cache; the others may stay idle.
        for child in reversed(self._idle):
            if child.domain == domain:
                self._examine(child)
                if child in self._idle:
                    self._idle.remove(child)
                    return child
        return None

    def _examine(self, child: Child) -> None:
        """Ends an idle child that cannot take another job: what its last one left behind may hold the channel."""
        if child not in self._idle:
            return
        if not child.is_examined and not child.has_ended:
            child.is_examined = True
            child.has_ended = child.process.has_left_processes()
        if child.has_ended:
            self._idle.remove(child)
            self._end(child)

    async def _start(self, domain: str | None) -> Child:
        if len(self) >= self._max_children:
            self._end(self._idle.pop(0))  # the one that was unused for longest
        child = await Child.start(self._launcher, domain)
        self.started += 1
        return child

    def _end(self, child: Child) -> None:
        child.kill()
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Child(asyncio.Protocol):
    """A child process with its job channel and its output pipe."""

    @classmethod
    async def start(cls, launcher: Launcher, domain: str | None) -> Child:
        """Starts a process. A job may be sent before it is ready.

        Raises:
            OSError: The process could not be started.
        """
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe()
        try:
            process = await launcher.start([theirs.fileno(), output_write])
        except BaseException:
            ours.close()
            os.close(output_read)
            raise
        finally:
            theirs.close()
            os.close(output_write)
        child = cls(process, CapturedOutput(output_read, MAX_OUTPUT_BYTES), domain)
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
        except BaseException:
            child.kill()
            await child.end()
            raise
        return child

    def __init__(self, process: ChildProcess, output: CapturedOutput, domain: str | None) -> None:
        self.has_ended = False
        self.is_examined = True
        self.process = process
        self.domain = domain
        self._output = output
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes | None] | None = None
        self._max_answer_bytes = 0
        self._received = bytearray()

    async def run(self, job: PythonJob) -> PythonAnswer:
        """See :meth:`ChildPool.run`."""
        assert self._transport is not None
        number = os.urandom(_NUMBER_BYTES).hex()
        frame = b'{"number":"%b",%b' % (number.encode(), job.fields[1:])
        self._max_answer_bytes = job.max_result_bytes + _MAX_ERROR_BYTES
        self._answer = asyncio.get_running_loop().create_future()
        self._output.heard = job.heard
        if self.has_ended:
            self._answer.set_result(None)
        else:
            self._transport.write(len(frame).to_bytes(HEADER_BYTES, "big") + frame)
        exit_code = 0
        try:
            answer = await self._answer
            if answer is None:
                exit_code = await self.process.exit_code
            output = self._output.take()[0]
        except BaseException:
            self._output.drain()
            raise
        finally:
            self._output.heard = unheard
        if answer is None:
            raise ChildDied(exit_code, output)
        self._answer = None
        try:
            answered, result, error = _answers.decode(answer)
        except msgspec.MsgspecError:
            raise ForeignAnswer from None
        if answered != number:
            raise ForeignAnswer
        return PythonAnswer(result, error, output)

    def kill(self) -> None:
        """Kills the child and what it started."""
        self.process.kill()

    async def end(self) -> int:
        """Releases the resources of a killed or ended child and returns its exit code."""
        exit_code = await self.process.end()
        if self._transport is not None:
            self._transport.abort()
        self._output.close()
        return exit_code

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done():
            self._refuse()  # nobody asked
            return
        self._received += data
        if len(self._received) < HEADER_BYTES:
            return
        end = HEADER_BYTES + int.from_bytes(self._received[:HEADER_BYTES], "big")
        if end > HEADER_BYTES + self._max_answer_bytes or len(self._received) > end:
            answer.set_exception(ForeignAnswer())
            self._refuse()
        elif len(self._received) == end:
            frame = bytes(memoryview(self._received)[HEADER_BYTES:end])
            self._received.clear()
            answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.has_ended = True
        # A process that closed its end but keeps running is useless.
        self.kill()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _refuse(self) -> None:
        self.has_ended = True
        self.kill()


_answers: Final = msgspec.json.Decoder(tuple[str, Any, dict[str, Any] | None])
