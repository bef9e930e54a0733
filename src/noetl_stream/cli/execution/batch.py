"""Runs a batch: an execution for each row of a file of workloads.

The ids of a row's execution and request derive from the batch, the number of the row and its content. An interrupted
batch is therefore continued by requesting all of it again: started executions are not started twice.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any, Final, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.files import STDIN, utf8_text
from noetl_stream.cli.base.output import say
from noetl_stream.cli.base.process import new_id
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.execution.bulk import patiently
from noetl_stream.cli.execution.follow import LONGEST_RETRY_S, PATIENCE_S, RETRY_S, WAIT_S
from noetl_stream.cli.execution.workload import Batch, warn_of_digits
from noetl_stream.concurrency import for_each
from noetl_stream.errors import (
    Forbidden,
    NoetlError,
    NotFound,
    NotReady,
    PayloadRefused,
    PlaybookRefused,
    Unauthenticated,
    Unreachable,
    UsageError,
)
from noetl_stream.model.ids import derive, id_beside
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import deep_merge
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.status import ENDED, ExecutionStatus
from noetl_stream.ports.operations.executions import RequestIds, Start
from noetl_stream.ports.operations.verbs import Document
from noetl_stream.retries import pauses

MOST_ROW_BYTES: Final = 1 << 20
PROGRESS_LINES: Final = 20
"""The most lines of progress."""

_CONCERN_ALL: Final = (Unreachable, NotReady, Unauthenticated, Forbidden, NotFound, PlaybookRefused)
"""Errors that the other rows would meet too."""

Answer = TypeVar("Answer")


class BatchRow(NamedTuple):
    """A row of a batch. ``key`` is a function of its content."""

    number: int
    workload: dict[str, Any]
    key: str


class RowResult(Document, frozen=True):
    """The outcome of a row; ``execution_id`` is null if it was refused."""

    row: int
    batch: str
    execution_id: str | None
    status: ExecutionStatus | Literal["refused"]
    result: Any
    error: ErrorInfo | None


def read_rows(file: IO[bytes], name: str) -> Iterator[BatchRow]:
    """The rows of JSONL; empty lines are counted but are not rows.

    Raises:
        UsageError: a line is not a JSON object, not UTF-8, or too long.
    """
    number, warned = 0, False
    while line := file.readline(MOST_ROW_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        place = f"{name}:{number}"
        if len(line) > MOST_ROW_BYTES:
            raise UsageError(f"{place}: longer than {MOST_ROW_BYTES:,} bytes")
        if not line.strip():
            continue
        try:
            workload = codec.decode_value(line)
        except PayloadRefused as error:
            utf8_text(line, name, number)
            raise UsageError(f"{place}: {error.message}", hint="each line is a JSON object") from None
        if not isinstance(workload, dict):
            raise UsageError(f"{place}: expected a JSON object", hint="each line is a workload")
        warned = warned or warn_of_digits(line, place)  # a row with such numbers is rarely the only one
        yield BatchRow(number, workload, derive(line.strip().decode()))


class BatchRun:
    """Starts the rows of a batch, and shows their results in the order of the rows."""

    def __init__(self, session: Session, wanted: Start, batch: str, show: Callable[[RowResult], None]) -> None:
        self._session = session
        self._wanted = wanted
        self._batch = batch
        self._show = show
        self._order: deque[int] = deque()
        self._ended: dict[int, str | NoetlError] = {}
        """The execution of each row, or the reason why there is none, until the rows before it have ended."""
        self._showing = asyncio.Lock()

    async def run(self, rows: Iterator[BatchRow], at_once: int) -> None:
        """
        Raises:
            NoetlError: what the other rows would meet, too.
        """

        def noted() -> Iterator[BatchRow]:
            for row in rows:
                self._order.append(row.number)
                yield row

        await for_each(noted(), self._run, at_once)

    async def _run(self, row: BatchRow) -> None:
        try:
            self._ended[row.number] = await self._execution(row)
        except _CONCERN_ALL:
            raise
        except NoetlError as error:
            self._ended[row.number] = error
        async with self._showing:
            while self._order and self._order[0] in self._ended:
                number = self._order.popleft()
                self._show(await self._result(number, self._ended.pop(number)))

    async def _execution(self, row: BatchRow) -> str:
        """The id of the row's execution, which has ended."""
        executions = self._session.operations.executions
        wanted = replace(self._wanted, workload=deep_merge(self._wanted.workload, row.workload))
        request_id = derive(self._batch, row.number, row.key)
        ids = RequestIds(id_beside(self._batch, request_id), request_id)
        started = await _lasting(lambda: executions.start(wanted, self._session.by, ids))
        status = started.status
        while status not in ENDED:
            await self._session.ensure_server()
            status = (await _lasting(lambda: executions.wait(started.execution_id, WAIT_S))).status
        return started.execution_id

    async def _result(self, row: int, ended: str | NoetlError) -> RowResult:
        if isinstance(ended, NoetlError):
            return RowResult(row, self._batch, None, "refused", None, ErrorInfo("refused", ended.message))
        found = await _lasting(lambda: self._session.operations.executions.result(ended))
        return RowResult(row, self._batch, ended, found.status, found.result, found.error)


async def _lasting(act: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retries while the servers are away, for a time, and while a gateway is busy."""
    away_s, waits = 0.0, pauses(RETRY_S, LONGEST_RETRY_S)
    while True:
        try:
            return await patiently(act)
        except Unreachable:
            if away_s >= PATIENCE_S:
                raise
            await asyncio.sleep(pause_s := next(waits))
            away_s += pause_s


class _Output:
    """The destination of results, and the progress on stderr."""

    def __init__(self, file: IO[str], rows: int, done: int) -> None:
        self._file = file
        self._rows = rows
        self._done = done
        self._every = max(1, rows // PROGRESS_LINES)
        self.failed = 0

    def take(self, result: RowResult) -> None:
        self._file.write(codec.encode(result).decode() + "\n")
        self._file.flush()
        self._done += 1
        if result.status != "completed":
            self.failed += 1
            why = "" if result.error is None else f": {result.error.message}"
            say(f"row {result.row} {result.status}{why}", err=True)
        if self._done % self._every == 0 or self._done == self._rows:
            say(self.said(), err=True)

    def said(self) -> str:
        failed = f", {self.failed} not completed" if self.failed else ""
        return f"{self._done} of {self._rows} rows ended{failed}"


async def run_batch(session: Session, wanted: Start, batch: Batch) -> ExitCode:
    """Runs the rows of a file. Before the first starts, stderr shows how to continue the batch."""
    batch_id = batch.id or new_id()
    name = STDIN if _is_stdin(batch) else str(batch.rows)
    with ExitStack() as closing:
        file = closing.enter_context(_opened(batch))
        count = sum(1 for _ in read_rows(file, name))  # an invalid line is found before anything starts
        file.seek(0)
        results, done = sys.stdout, 0
        if batch.results is not None:
            done = _results_of(batch.results, batch.id)
            results = closing.enter_context(batch.results.open("a", encoding="utf-8"))
        output = _Output(results, count, done)
        say(f"batch {batch_id}", err=True)
        rows = islice(read_rows(file, name), done, None)
        try:
            await BatchRun(session, wanted, batch_id, output.take).run(rows, batch.in_flight)
        except (asyncio.CancelledError, Unreachable):
            say(f"{output.said()}; what has started continues; go on with --batch {batch_id}", err=True)
            raise
        return ExitCode.FAILED if output.failed else ExitCode.COMPLETED


def _is_stdin(batch: Batch) -> bool:
    return str(batch.rows) == "-"


@contextmanager
def _opened(batch: Batch) -> Iterator[IO[bytes]]:
    """The rows, which can be read twice."""
    if _is_stdin(batch):
        with TemporaryFile() as copied:
            copyfileobj(sys.stdin.buffer, copied)
            copied.seek(0)
            yield copied
        return
    try:
        file = batch.rows.open("rb")
    except OSError as error:
        raise UsageError(f"--each {batch.rows}: {error.strerror}") from None
    with file:
        yield file


def _results_of(path: Path, batch_id: str | None) -> int:
    """The number of results of this batch in the file; an incomplete last line is cut off.

    Raises:
        UsageError: it has results of another batch.
    """
    try:
        with path.open("a+b") as file:
            file.seek(0)
            done, whole = 0, 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if batch_id is None or _batch_of(line) != batch_id:
                    hint = "give another file, or the --batch that it is of"
                    raise UsageError(f"--results {path}: line {done + 1} is not a result of this batch", hint=hint)
                done, whole = done + 1, whole + len(line)
            file.truncate(whole)
            return done
    except OSError as error:
        raise UsageError(f"--results {path}: {error.strerror}") from None


def _batch_of(line: bytes) -> Any:
    try:
        found = codec.decode_json(line)
    except PayloadRefused:
        return None
    return found.get("batch") if isinstance(found, dict) else None
