"""The worker's pool of child processes for ``kind: python``: started on demand, reused, replaced when killed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, cast

from noetl_stream.tools.child_process import CapturedOutput, adopt_orphans, kill_trees
from noetl_stream.tools.python.child import HEADER_BYTES, MAX_OUTPUT_BYTES

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "from noetl_stream.tools.python.child import main; main(int(sys.argv[1]))"
)


class ChildDied(Exception):
    """The child ended during a job. ``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code
        self.output = output


class ChildPool:
    """Up to ``max_children`` processes with one job each; further jobs wait in order of arrival."""

    def __init__(self, *, max_children: int, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._slots = asyncio.Semaphore(max_children)
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._ending: set[asyncio.Task[int]] = set()

    async def run(self, frame: bytes) -> tuple[bytes, str]:
        """Runs one job. Cancelling it kills the child and everything it started.

        Returns:
            The child's response, and the output of the job.

        Raises:
            ChildDied: The child ended before it answered.
            OSError: No child could be started.
        """
        async with self._slots:
            child = self._idle_child() or await Child.start(self._environment)
            self._busy.add(child)
            try:
                answer = await child.run(frame)
            except BaseException:
                self._end(child)
                raise
            finally:
                self._busy.discard(child)
            self._idle.append(child)
            return answer

    async def close(self) -> None:
        """Kills every child and waits for them to end."""
        for child in (*self._idle, *self._busy):
            self._end(child)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)

    def _idle_child(self) -> Child | None:
        # The most recently used one has a warm cache; the others may stay idle.
        while self._idle:
            child = self._idle.pop()
            if not child.has_ended:
                return child
            self._end(child)
        return None

    def _end(self, child: Child) -> None:
        child.kill()
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Child(asyncio.Protocol):
    """A child process with its job channel and its output pipe."""

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> Child:
        """Starts a process. A job may be sent before it is ready.

        Raises:
            OSError: The process could not be started.
        """
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe()
        try:
            process = _start_process(theirs, output_write, environment)
        except BaseException:
            ours.close()
            os.close(output_read)
            raise
        finally:
            theirs.close()
            os.close(output_write)
        child = cls(process, CapturedOutput(output_read, MAX_OUTPUT_BYTES))
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
        except BaseException:
            child.kill()
            await child.end()
            raise
        return child

    def __init__(self, process: subprocess.Popen[bytes], output: CapturedOutput) -> None:
        self.has_ended = False
        self.process_id = process.pid
        self._process = process
        self._output = output
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes | None] | None = None
        self._received = bytearray()

    async def run(self, frame: bytes) -> tuple[bytes, str]:
        """See :meth:`ChildPool.run`."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        if self.has_ended:
            self._answer.set_result(None)
        else:
            self._transport.write(len(frame).to_bytes(HEADER_BYTES, "big") + frame)
        answer = await self._answer
        if answer is None:
            raise ChildDied(await self._wait(), self._output.take()[0])
        return answer, self._output.take()[0]

    def kill(self) -> None:
        """Kills the child and what it started."""
        if self._process.returncode is None:
            kill_trees([self.process_id])

    async def end(self) -> int:
        """Releases the resources of a killed or ended child and returns its exit code."""
        exit_code = await self._wait()
        if self._transport is not None:
            self._transport.abort()
        self._output.close()
        return exit_code

    async def _wait(self) -> int:
        # Popen.wait() may be called from two threads: it keeps the first exit code.
        return await asyncio.to_thread(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < HEADER_BYTES:
            return
        end = HEADER_BYTES + int.from_bytes(self._received[:HEADER_BYTES], "big")
        if len(self._received) >= end and self._answer is not None and not self._answer.done():
            frame = bytes(memoryview(self._received)[HEADER_BYTES:end])
            self._received.clear()
            self._answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.has_ended = True
        # A process that closed its end but keeps running is useless.
        self.kill()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)


def _start_process(channel: socket.socket, output: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # The child has the worker's import path, but without the current folder; -I ignores the rest of the environment
    # (PYTHONSTARTUP, the user's site folder).
    path = json.dumps([entry for entry in sys.path if entry])
    arguments = [sys.executable, "-I", "-c", _PROGRAM, str(channel.fileno()), path]
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(channel.fileno(),),
        env=dict(environment),
        start_new_session=True,
        preexec_fn=adopt_orphans,
    )
