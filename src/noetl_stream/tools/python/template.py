"""The worker's connection to one child of ``kind: python``, and to the processes that it forks for jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.concurrency import Queued
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.tools.child_process import CapturedOutput, Heard, ignore_output
from noetl_stream.tools.children.frames import HEADER_BYTES, add_length
from noetl_stream.tools.children.launcher import ChildProcess, Launcher
from noetl_stream.tools.children.view import FILES
from noetl_stream.tools.contract import WorkerUnfit, ignore_heartbeat
from noetl_stream.tools.python.child import MAX_REMEMBERED_BYTES
from noetl_stream.tools.python.code_compiler import MAX_PROGRAMS
from noetl_stream.tools.python.environments.environment_store import MadeEnvironment
from noetl_stream.tools.python.line import ANSWERED, CANCEL_S, CANCELLED, DEBUGS, MAX_NOTE_BYTES
from noetl_stream.tools.python.output import MAX_OUTPUT_BYTES
from noetl_stream.tools.scratch.job_files import JobFiles

MAX_JOB_BYTES: Final = 1024**3
MAX_ERROR_BYTES: Final = 256 * 1024
"""The most bytes of an answer in addition to the result: an error with its traceback, escaped."""
ANSWERS: Final = msgspec.json.Decoder(tuple[Any, dict[str, Any] | None])
_READ_BYTES: Final = 64 * 1024
_NO_QUESTION: Final = (b'{"heartbeat"', b'{"asks"')
_notes: Final = msgspec.json.Decoder(dict[str, Any])


class ChildDied(Exception):
    """The process of a job ended without an answer.

    Attributes:
        exit_code: Negative for a signal, as in :mod:`subprocess`.
        output: The output of the job.
        errors: The output of faulthandler, and perhaps of others.
        others: The number of other jobs in the process.
        reason: The reason why it was killed, if it was.
        lacked_memory: Whether it or its descendants used all the memory of the child.
    """

    def __init__(
        self,
        exit_code: int,
        output: str,
        errors: str,
        *,
        others: int = 0,
        reason: str = "",
        lacked_memory: bool = False,
    ) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code
        self.output = output
        self.errors = errors
        self.others = others
        self.reason = reason
        self.lacked_memory = lacked_memory


class NotBegun(Exception):
    """The process ended before it had begun the job."""


class Imports(NamedTuple):
    """The importable packages of a child's jobs.

    Attributes:
        packages: A folder with the packages of a bundle; empty: none.
        environment: The interpreter and packages of the playbook; ``None``: those of the worker.
        files: A folder with the files of the job, which then has its child alone; else empty.
    """

    packages: str = ""
    environment: MadeEnvironment | None = None
    files: str = ""

    @property
    def folders(self) -> dict[str, str]:
        """The folders that a child is shown."""
        named = {"packages": self.packages, FILES: self.files}
        found = {name: folder for name, folder in named.items() if folder}
        return found if self.environment is None else {**self.environment.folders, **found}


_NO_IMPORTS: Final = Imports()


class PythonJob(NamedTuple):
    """A job for :func:`~noetl_stream.tools.python.job.run_job`.

    Attributes:
        fields: The fields of the job as JSON, at most :data:`MAX_JOB_BYTES`.
        program: The code and the name of its file; or no code and a function.
        domain: Children are shared only by jobs with the same text; ``None``: not at all.
        heard: Called with the output as it arrives.
        namespace: Whose turn it is for one of the places.
        queued: A context entered while the job waits for a child.
        beat: Called with the details of each heartbeat.
        shares: Whether it runs in the process that other such jobs of its domain share.
        imports: What it can import, the same for all jobs of its domain.
        debugger: The descriptor that it gets when it asks for a terminal for debugging.
        files: Answers its questions about files.
    """

    fields: bytes
    program: tuple[str, str]
    max_result_bytes: int
    domain: str | None
    heard: Heard
    namespace: str = ""
    queued: Queued = contextlib.nullcontext
    beat: Callable[[Any], None] = ignore_heartbeat
    shares: bool = False
    imports: Imports = _NO_IMPORTS
    debugger: int | None = None
    files: JobFiles | None = None

    def noted(self, note: bytes) -> bool:
        """Takes a note of the job; returns whether it looks for its cancellation.

        Raises:
            MsgspecError: It is no note, which :class:`~noetl_stream.tools.python.line.JobLine` would send.
        """
        found = _notes.decode(note)
        try:
            codec.check_text(note)
            codec.check_depth(note)
        except PayloadRefused as refused:
            raise msgspec.ValidationError(str(refused)) from None
        if len(note) > MAX_NOTE_BYTES:
            raise msgspec.ValidationError("too large")
        if "heartbeat" in found:
            self.beat(found["heartbeat"])
        return "asks" in found


class PythonAnswer(NamedTuple):
    """The answer of a job: a result, or an error mapping; and its output."""

    result: Any
    error: dict[str, Any] | None
    output: str


class _Heard:
    """The data received from a job's process: ``received`` is not parsed; ``asks``: it checks for its cancellation."""

    def __init__(self, max_result_bytes: int) -> None:
        self._most = HEADER_BYTES + max_result_bytes + MAX_ERROR_BYTES
        self.received = bytearray()
        self.anything = self.asks = False

    @property
    def end(self) -> int:
        """The end of the first frame."""
        return HEADER_BYTES + int.from_bytes(self.received[:HEADER_BYTES], "big")

    @property
    def lacks(self) -> bool:
        """Whether more of the first frame should come."""
        return len(self.received) < HEADER_BYTES or len(self.received) < self.end <= self._most

    @property
    def is_whole(self) -> bool:
        """Whether the first frame is complete."""
        return HEADER_BYTES <= len(self.received) >= self.end

    def take_note(self) -> bytes:
        """Removes and returns the first frame."""
        end = self.end
        note = bytes(self.received[HEADER_BYTES:end])
        del self.received[:end]
        return note


class Child:
    """A child process, and the connection to the process that it has forked for the next job.

    Attributes:
        is_running: Whether a job has begun and not ended.
        has_ended: Whether it takes no more jobs.
        imports: What its jobs can import.
    """

    @classmethod
    async def start(
        cls, launcher: Launcher, domain: str | None, answer_s: float, imports: Imports = _NO_IMPORTS
    ) -> Child:
        """Starts a child. It is killed if it does not fork a process within ``answer_s`` when it should.

        Raises:
            WorkerUnfit: The child could not be started.
        """
        with contextlib.ExitStack() as closing:
            try:
                ours, theirs = socket.socketpair()
                closing.callback(theirs.close)
                reading, writing = os.pipe()
                closing.callback(os.close, writing)
            except OSError as error:
                raise WorkerUnfit(f"cannot start a Python process: {error}") from None
            with contextlib.ExitStack() as failing:
                failing.callback(ours.close)
                failing.callback(os.close, reading)
                made = imports.environment
                if made is None:
                    process = await launcher.start([theirs.fileno(), writing], folders=imports.folders)
                else:
                    descriptors = [theirs.fileno(), writing, writing, writing]
                    process = await made.launcher.start(descriptors, made.program, folders=imports.folders)
                failing.pop_all()
        child = cls(process, ours, CapturedOutput(reading, MAX_OUTPUT_BYTES), domain, answer_s)
        child.imports = imports
        return child

    def __init__(
        self, process: ChildProcess, channel: socket.socket, output: CapturedOutput, domain: str | None, answer_s: float
    ) -> None:
        self.process = process
        self.domain = domain
        self.imports = _NO_IMPORTS
        self.is_running = self.has_ended = False
        self._channel = channel
        self._output = output
        self._answer_s = answer_s
        self._exit_code = 0
        self._remembered: set[tuple[str, str]] = set()
        self._last_module = self._ahead = ""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._read)
        self._next: asyncio.Future[socket.socket | None] = self._loop.create_future()
        self._patience = self._loop.call_later(answer_s, process.kill)

    @property
    def has_next(self) -> bool:
        """Whether the process for the next job is waiting."""
        return self._next.done() and not self.has_ended

    async def is_ready(self) -> bool:
        """Waits until the child can take a job, or cannot; returns whether it can."""
        return await asyncio.shield(self._next) is not None

    async def run(self, job: PythonJob) -> PythonAnswer:
        """Runs a job in the child, which must be ready. See :meth:`ChildPool.run`."""
        connection = self.take_next()
        self._output.heard = job.heard
        try:
            answer = await self._exchange(connection, job)
            if answer is not None and answer[1] is None:
                self._let_remember(job.program)
            self._expect_next()
            exit_code, output = (0, self._output.take()[0]) if answer is not None else await self.last_exit()
        except BaseException:
            self._output.drain()
            raise
        finally:
            self._output.heard = ignore_output
            connection.close()
        self.is_running = False
        if answer is None:
            raise ChildDied(exit_code, output, output, lacked_memory=self.process.lacked_memory())
        return PythonAnswer(*answer, output)

    def take_next(self) -> socket.socket:
        """Returns the connection to the process that is ready, which has a job from now on."""
        connection = self._next.result()
        assert connection is not None
        self._next = self._loop.create_future()
        if self.has_ended:
            self._next.set_result(None)
        self._output.take()  # leftovers of the previous job's processes
        self.process.lacked_memory()  # as one of them may have, without the end of its job
        self.is_running = True
        return connection

    async def last_exit(self) -> tuple[int, str]:
        """Returns the exit and the output of the last job's process. One that has not ended in time is killed."""
        self._expect_next()
        connection = await asyncio.shield(self._next)
        exit_code = self._exit_code if connection is not None else await asyncio.shield(self.process.exit_code)
        return exit_code, self._output.take()[0]

    def kill(self) -> None:
        """Kills the child and everything it started."""
        self.process.kill(alone=not self.is_running)

    async def end(self) -> int:
        """Releases the resources of a killed or ended child and returns its exit code."""
        exit_code = await self.process.end()
        self._lose()
        self._close_next()
        self._output.close()
        return exit_code

    async def _exchange(self, connection: socket.socket, job: PythonJob) -> tuple[Any, dict[str, Any] | None] | None:
        """Returns the result or error of the job; ``None`` if its process has ended, or has answered unreadably.

        Raises:
            NotBegun: The process ended before it had read the job: else its connection would close without an error.
        """
        heard = _Heard(job.max_result_bytes)
        try:
            await self._loop.sock_sendall(connection, add_length(job.fields))
            while await self._hear(connection, heard):
                note = heard.take_note()
                if note == DEBUGS and job.debugger is not None:
                    socket.send_fds(connection, [CANCELLED], [job.debugger])
                elif job.files is None or note.startswith(_NO_QUESTION):
                    heard.asks |= job.noted(note)
                else:
                    answer = await job.files.answer(note, partial(self._frame, connection, heard))
                    framed = add_length(msgspec.json.encode(answer))
                    await self._loop.sock_sendall(connection, ANSWERED + framed)
            return ANSWERS.decode(memoryview(heard.received)[HEADER_BYTES : heard.end])
        except asyncio.CancelledError:
            if heard.asks:
                await self._let_end(connection, heard)
            raise
        except OSError:
            if not heard.anything:
                raise NotBegun from None
        except msgspec.MsgspecError:
            if heard.anything:
                self.kill()
        return None

    async def _hear(self, connection: socket.socket, heard: _Heard) -> bool:
        """Receives the next frame, or a part if the process has ended or is too long; returns whether it is a note."""
        while heard.lacks and (data := await self._loop.sock_recv(connection, _READ_BYTES)):
            heard.anything = True
            heard.received += data
        return heard.received.startswith(b"{", HEADER_BYTES) and not heard.lacks

    async def _frame(self, connection: socket.socket, heard: _Heard) -> bytes:
        """Receives the next frame.

        Raises:
            ConnectionAbortedError: The process has ended, or sends something else.
        """
        await self._hear(connection, heard)
        if not heard.is_whole:
            raise ConnectionAbortedError
        return heard.take_note()

    async def _let_end(self, connection: socket.socket, heard: _Heard) -> None:
        """Tells a job that looks for it that it is cancelled, and waits a while for its end."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._loop.sock_sendall(connection, CANCELLED)
                while await self._hear(connection, heard):
                    heard.take_note()

    def _let_remember(self, program: tuple[str, str]) -> None:
        """Sends the child new code, which its next processes will have compiled; or the function whose module they will
        import: once two runs in a row have called one of it, until another one does not.
        """
        code, function = program
        module = "" if code else function.partition(":")[0]
        ahead, self._last_module = module if module == self._last_module else "", module
        if self._ahead not in (module, ahead):
            self._ahead = ahead
            self._send(("", function if ahead else ""))
        if code and program not in self._remembered and len(self._remembered) < MAX_PROGRAMS:
            self._remembered.add(program)
            self._send(program)

    def _send(self, program: tuple[str, str]) -> None:
        if len(frame := msgspec.json.encode(program)) <= MAX_REMEMBERED_BYTES:
            with contextlib.suppress(OSError):
                self._channel.send(add_length(frame))

    def _expect_next(self) -> None:
        """Kills the child if it does not fork the next process in time. It may have done so already."""
        if not self._next.done():
            self._patience.cancel()
            self._patience = self._loop.call_later(self._answer_s, self.process.kill)

    def _read(self) -> None:
        """Receives the connection to a process that the child has forked."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._channel, HEADER_BYTES, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        if not descriptors:
            self._lose()
            return
        connection = socket.socket(fileno=descriptors[0])
        connection.setblocking(False)
        self._exit_code = int.from_bytes(message, "big", signed=True)
        self._patience.cancel()
        if self._next.done():  # the previous process has died while it waited
            self._close_next()
            self._next = self._loop.create_future()
        self._next.set_result(connection)

    def _close_next(self) -> None:
        if (connection := self._next.result()) is not None:
            connection.close()

    def _lose(self) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self._patience.cancel()
        self._loop.remove_reader(self._channel)
        self._channel.close()
        if not self._next.done():
            self._next.set_result(None)
