"""Warm child processes for ``kind: python``, seen from the worker: started when needed, kept, replaced after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from noetl_stream.tools.process_tree import adopt_orphans, kill_trees
from noetl_stream.tools.python.child import HEADER_BYTES, MAX_OUTPUT_BYTES
from noetl_stream.tools.shell.captured_output import CapturedOutput

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "from noetl_stream.tools.python.child import main; main(int(sys.argv[1]))"
)


class ChildDied(Exception):
    """The child ended while it ran a job. ``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code
        self.output = output


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """A child's answer frame, and what the job wrote to standard output and error, as far as it was kept."""

    frame: bytes
    output: str
    output_cut: int


class ChildPool:
    """At most ``max_children`` processes, each with one job at a time; more jobs wait in order of arrival."""

    def __init__(self, *, max_children: int, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._slots = asyncio.Semaphore(max_children)
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._ending: set[asyncio.Task[int]] = set()

    async def run(self, frame: bytes) -> JobAnswer:
        """Runs one job. Cancelling this kills the child with everything it started.

        Raises:
            ChildDied: if the child ended before it answered.
            OSError: if no child could be started.
        """
        async with self._slots:
            child = self._waiting_child() or await Child.start(self._environment)
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
        """Kills every child and waits until they are gone."""
        for child in (*self._idle, *self._busy):
            self._end(child)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)

    def _waiting_child(self) -> Child | None:
        # The last one used has its memory in the caches; the others may be left alone for ever.
        while self._idle:
            child = self._idle.pop()
            if not child.gone:
                return child
            self._end(child)
        return None

    def _end(self, child: Child) -> None:
        child.kill()
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Child(asyncio.Protocol):
    """One child process and its two ends here: the job channel and the pipe of its standard output."""

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> Child:
        """Starts a process; it need not be ready yet to be given a job.

        Raises:
            OSError: if the system does not let us.
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
        self.gone = False
        self.process_id = process.pid
        self._process = process
        self._output = output
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes | None] | None = None
        self._received = bytearray()

    async def run(self, frame: bytes) -> JobAnswer:
        """The answer to one job.

        Raises:
            ChildDied: if the process ended first.
        """
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        if self.gone:
            self._answer.set_result(None)
        else:
            self._transport.write(len(frame).to_bytes(HEADER_BYTES, "big") + frame)
        answer = await self._answer
        if answer is None:
            exit_code = await self._reaped()
            raise ChildDied(exit_code, self._output.take()[0])
        output, cut = self._output.take()
        return JobAnswer(answer, output, cut)

    def kill(self) -> None:
        """Kills the child and what it started."""
        if self._process.returncode is None:
            kill_trees([self.process_id])

    async def end(self) -> int:
        """Frees everything of a killed or dead child; its exit code."""
        exit_code = await self._reaped()
        if self._transport is not None:
            self._transport.abort()
        self._output.close()
        return exit_code

    async def _reaped(self) -> int:
        # Popen.wait() in two threads at once is safe: it keeps the first one's exit code.
        return await asyncio.to_thread(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

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
        self.gone = True
        # A process that closed its end and goes on is as useless as a dead one.
        self.kill()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)


def _start_process(channel: socket.socket, output: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # The child imports from where the worker does, but never from the current folder; -I leaves the rest of the
    # surroundings (PYTHONSTARTUP, the user's site folder) out.
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
