"""The worker's DuckDB processes: each runs one task after the other, and ends with a task that is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.concurrency import start_among
from noetl_stream.model.json import pieces
from noetl_stream.tools.children.frames import HEADER_BYTES
from noetl_stream.tools.children.launcher import ChildProcess, Launcher
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.duckdb.job import (
    COPIES_FOLDER,
    DISK_FULL,
    END,
    FRAME_ROW_BYTES,
    NUMBER_BYTES,
    ROWS,
    DuckdbJob,
    Ending,
)

MAX_ERROR_BYTES: Final = 256 * 1024
"""The most bytes of an answer beyond the rows and the parts added by statements."""
_MOST_FOR_JOB_BYTE: Final = 8
"""The most bytes that a byte of the statements adds to their list in the answer."""
_READ_BYTES: Final = 256 * 1024
_INLINE_BYTES: Final = 2 * FRAME_ROW_BYTES
_TRIES: Final = 2
"""The number of successive processes that may end before they can take a job."""


class ProcessDied(Exception):
    """The process ended without an answer, or sent one that cannot be read. ``exit_code``: negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class _NotBegun(Exception):
    """The process ended before it had the job."""


class DuckdbProcesses:
    """Starts processes as they are needed, and keeps idle ones. The caller limits how many tasks run at once."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._idle: list[_DuckdbProcess] = []
        self._ending: set[asyncio.Task[int]] = set()

    async def run(self, job: DuckdbJob, frame: bytes, copies: Path | None = None) -> dict[str, Any]:
        """Runs a job and returns its result. Cancelling it kills its process, and waits for its end.

        Args:
            frame: The job as a message.
            copies: The folder with copied tables and files, which the process has until it has answered.

        Raises:
            ToolFailure: As of :class:`~noetl_stream.tools.duckdb.task_session.DuckdbSession`.
            ProcessDied: The process ended before it answered.
            WorkerUnfit: No process could be started.
        """
        for _ in range(_TRIES):
            process = await self._take()
            try:
                rows, ending = await process.run(frame, job.max_result_bytes, copies)
                if copies is not None:
                    await process.give_back(copies)
            except _NotBegun:
                await self._end(process)
                continue
            except BaseException:
                await self._end(process)
                if job.database is not None:
                    _remove_spilled(job.database, process.number)
                raise
            if ending.is_last:
                self._end(process)
            else:
                self._idle.append(process)
            return _result(rows, ending)
        raise WorkerUnfit(f"the DuckDB process died {_TRIES} times before it had begun")

    async def self_test(self) -> None:
        """Starts a process until it could take a job, and ends it.

        Raises:
            WorkerUnfit: It could not.
        """
        process = await _DuckdbProcess.start(self._launcher)
        try:
            if not await process.is_ready():
                raise WorkerUnfit("the DuckDB process died before it had begun")
        except OSError as error:
            raise WorkerUnfit(f"the DuckDB process died before it had begun: {error}") from None
        finally:
            await self._end(process)

    async def close(self) -> None:
        """Kills idle processes, and waits for the end of all."""
        for process in self._idle:
            self._end(process)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)
        await self._launcher.close()

    async def _take(self) -> _DuckdbProcess:
        self._launcher.check()
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            self._end(process)
        return await _DuckdbProcess.start(self._launcher)

    def _end(self, process: _DuckdbProcess) -> asyncio.Future[int]:
        """Kills a process; the returned future ends with it."""
        process.kill()
        return asyncio.shield(start_among(self._ending, process.end()))


class _DuckdbProcess:
    """A process and the connection to it.

    Attributes:
        number: The process id as it sees it itself, which is in the names of its files; 0 until it is ready.
    """

    @classmethod
    async def start(cls, launcher: Launcher) -> _DuckdbProcess:
        """Starts a process.

        Raises:
            WorkerUnfit: It could not be started.
        """
        with contextlib.ExitStack() as closing:
            try:
                ours, theirs = socket.socketpair()
                closing.callback(theirs.close)
                output = os.open(os.devnull, os.O_WRONLY)
                closing.callback(os.close, output)
            except OSError as error:
                raise WorkerUnfit(f"cannot start a DuckDB process: {error}") from None
            with contextlib.ExitStack() as failing:
                failing.callback(ours.close)
                process = await launcher.start([theirs.fileno(), output])
                failing.pop_all()
        return cls(process, ours)

    def __init__(self, process: ChildProcess, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._channel.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self.number = 0

    @property
    def has_ended(self) -> bool:
        return self._process.exit_code.done()

    async def is_ready(self) -> bool:
        """Waits until the process takes jobs, or has ended; returns whether it takes them."""
        if not self.number:
            self.number = int.from_bytes(await self._loop.sock_recv(self._channel, NUMBER_BYTES))
        return self.number > 0

    async def run(self, frame: bytes, max_result_bytes: int, copies: Path | None) -> tuple[list[Any], Ending]:
        """Returns the rows and the end of the answer.

        Raises:
            ProcessDied: The process ended, or sent what is no answer.
            _NotBegun: It ended before it had read the job: otherwise its connection would close without an error.
        """
        most = max_result_bytes + MAX_ERROR_BYTES + _MOST_FOR_JOB_BYTE * len(frame)
        try:
            if not await self.is_ready():
                raise _NotBegun
            if copies is not None:
                await asyncio.to_thread(copies.rename, Path(self._process.home, COPIES_FOLDER))
            await self._loop.sock_sendall(self._channel, frame)
        except OSError:
            raise _NotBegun from None
        rows: list[Any] = []
        try:
            async for tag, body in self._frames(most):
                if tag == END:
                    return rows, _endings.decode(body)
                if tag != ROWS:
                    break
                rows += await _decoded(body)
        except OSError:
            raise _NotBegun from None
        except msgspec.MsgspecError:
            pass
        self.kill()
        raise ProcessDied(await asyncio.shield(self._process.exit_code))

    async def give_back(self, copies: Path) -> None:
        """Moves the folder of :meth:`run` back to its place."""
        await asyncio.to_thread(Path(self._process.home, COPIES_FOLDER).rename, copies)

    def kill(self) -> None:
        self._process.kill(alone=True)

    async def end(self) -> int:
        """Releases the resources of a killed process and returns its exit code."""
        exit_code = await self._process.end()
        self._channel.close()
        return exit_code

    async def _frames(self, most: int) -> AsyncIterator[tuple[bytes, memoryview]]:
        """Yields the first byte and the rest of each frame, until the process ends or has sent ``most`` bytes."""
        received = bytearray()
        while True:
            while len(received) < HEADER_BYTES:
                if not await self._receive(received):
                    return
            end = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "big")
            most -= end
            if most < 0:
                return
            while len(received) < end:
                if not await self._receive(received):
                    return
            with memoryview(received) as all_received:
                frame = bytes(all_received[HEADER_BYTES:end])
            del received[:end]
            yield frame[:1], memoryview(frame)[1:]

    async def _receive(self, received: bytearray) -> bool:
        data = await self._loop.sock_recv(self._channel, _READ_BYTES)
        received += data
        return bool(data)


async def _decoded(body: memoryview) -> list[Any]:
    """Decodes rows. One row may be long, and is decoded piece by piece, while the loop goes on."""
    if len(body) <= _INLINE_BYTES:
        return _rows.decode(body)
    rows: list[Any] = await asyncio.to_thread(pieces.parse, bytes(body))
    return rows


_rows: Final = msgspec.json.Decoder(list[Any])
_endings: Final = msgspec.json.Decoder(Ending)


def _result(rows: list[Any], ending: Ending) -> dict[str, Any]:
    if ending.error is None:
        return {"rows": rows, **ending.result}
    if ending.error.kind == "internal":
        raise RuntimeError(ending.error.message)
    if ending.error.kind == DISK_FULL:
        raise WorkerUnfit(f"cannot write the files of a DuckDB task: {ending.error.message}")
    raise ToolFailure(ending.error)


def _remove_spilled(database: str, number: int) -> None:
    """Removes the files that a killed process has spilled beside its database file."""
    for file in Path(f"{database}.tmp").glob(f"duckdb_temp_{number}_*"):
        file.unlink(missing_ok=True)
