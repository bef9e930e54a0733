"""The archive: a folder of Parquet files, which DuckDB writes and anything reads.

``executions/<month>/<name>.parquet`` has a row for each execution, ``events/<month>/<name>.parquet`` one for each of
their events; months are those in which they started. The documents are JSON, as commands and gateways show them. An
execution is archived once it is in a file of ``executions``, which comes last.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import duckdb
import msgspec

from noetl_stream.errors import NoetlError, NotFound, UsageError
from noetl_stream.model.envelope import EventDocument, iso
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    ListedExecutionDocument,
    ResultDocument,
)

Value = TypeVar("Value")

EXECUTIONS: Final = "executions"
EVENTS: Final = "events"
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    EXECUTIONS: {
        **dict.fromkeys(("execution_id", "path", "version", "status", "started", "finished"), "VARCHAR"),
        "position": "BIGINT",
        **dict.fromkeys(("listed", "document", "result"), "VARCHAR"),
    },
    EVENTS: {
        "execution_id": "VARCHAR",
        "position": "BIGINT",
        "ts": "VARCHAR",
        "name": "VARCHAR",
        "document": "VARCHAR",
    },
}
"""Of each kind of file."""

CHECKED: Final = {EXECUTIONS: "listed || document || result", EVENTS: "document"}

OTHER_MONTH: Final = "other"
MAX_LINE_BYTES: Final = 128 << 20
READ_ROWS: Final = 1_000

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "1GB",
    "threads": 1,
}


class ParquetArchive:
    """:class:`~noetl_stream.ports.archive.ArchiveFiles` in a folder, and what commands read from it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def begin(self) -> ParquetBatch:
        return ParquetBatch(self.place)

    def positions(self, execution_ids: Collection[str]) -> dict[str, int]:
        by_month = defaultdict(list)
        for execution_id in execution_ids:
            by_month[month_of(execution_id)].append(execution_id)
        found: dict[str, int] = {}
        for month, ids in by_month.items():
            query = "select execution_id, max(position) from given where list_contains(?, execution_id) group by 1"
            found |= dict(self._rows(EXECUTIONS, month, query, [ids]))
        return found

    def get(self, execution_id: str) -> ExecutionDocument:
        """Raises :class:`~noetl_stream.errors.NotFound` if it is not archived; likewise the next two."""
        return _decoded(self._newest(execution_id, "document"), ExecutionDocument)

    def result(self, execution_id: str) -> ResultDocument:
        return _decoded(self._newest(execution_id, "result"), ResultDocument)

    def events(self, execution_id: str, after: int, limit: int | None) -> list[EventDocument]:
        """Those above the position ``after``, in order."""
        self._newest(execution_id, "listed")
        query = """
            select any_value(document) from given
            where execution_id = ? and position > ? group by position order by position limit ?
        """
        rows = self._rows(EVENTS, month_of(execution_id), query, [execution_id, after, limit])
        return [_decoded(text, EventDocument) for (text,) in rows]

    def page(self, chosen: ExecutionFilter, limit: int, before: str | None) -> ExecutionPage:
        """The archived executions that match, newest first."""
        self._require_folder()
        if chosen.labels or chosen.error is not None:
            raise UsageError("an archive has no index of labels and errors", hint="use --status, --path, --older-than")
        query = """
            select arg_max(listed, position) from given
            where (len(?) = 0 or list_contains(?, status))
              and (?::text is null or path = ? or starts_with(path, ? || '/'))
              and (?::text is null or started < ?)
              and (?::text is null or execution_id < ?)
            group by execution_id order by execution_id desc limit ?
        """
        path = None if chosen.path is None else chosen.path.strip("/")
        started = None if chosen.started_before_ms is None else iso(chosen.started_before_ms)
        status = list(chosen.status)
        values = [status, status, path, path, path, started, started, before, before, limit + 1]
        rows = self._rows(EXECUTIONS, "*", query, values)
        items = [_decoded(text, ListedExecutionDocument) for (text,) in rows[:limit]]
        return ExecutionPage(items, items[-1].execution_id if len(rows) > limit else None)

    def _require_folder(self) -> None:
        if not self.place.is_dir():
            raise NotFound(f"{self.place} is not a folder")

    def _newest(self, execution_id: str, column: str) -> str:
        self._require_folder()
        query = f"select arg_max({column}, position) from given where execution_id = ? having count(*) > 0"
        rows = self._rows(EXECUTIONS, month_of(execution_id), query, [execution_id])
        if not rows:
            raise NotFound(f"execution {execution_id!r} is not in the archive {self.place}")
        return str(rows[0][0])

    def _rows(self, kind: str, month: str, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of a query on the files of a month, which it names ``given``."""
        files = sorted(map(str, (self.place / kind).glob(f"{month}/*.parquet")))
        if not files:
            return []
        with archive_errors(self.place), duckdb.connect(config=_CONFIG) as connection:
            given = f"with given as (select * from read_parquet(?)) {query}"
            return connection.execute(given, [files, *values]).fetchall()


class ParquetBatch:
    """:class:`~noetl_stream.ports.archive.ArchiveBatch` of executions that started in one month."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._name = uuid.uuid4().hex
        self._month: str | None = None
        self._spools: dict[str, _Spool] = {}

    def add_events(self, events: Sequence[EventDocument]) -> None:
        for one in events:
            text = _text(one)
            row = {key: getattr(one, key) for key in ("execution_id", "position", "ts", "name")}
            self._spool(EVENTS, one.execution_id).add({**row, "document": text}, text)

    def add(self, listed: ListedExecutionDocument, document: ExecutionDocument, result: ResultDocument) -> None:
        texts = {"listed": _text(listed), "document": _text(document), "result": _text(result)}
        row = {
            key: getattr(listed, key) for key in ("execution_id", "path", "version", "status", "started", "finished")
        }
        spool = self._spool(EXECUTIONS, listed.execution_id)
        spool.add({**row, "position": document.position, **texts}, "".join(texts.values()))

    def finish(self) -> None:
        with archive_errors(self._place):
            for kind in (EVENTS, EXECUTIONS):
                if kind in self._spools:
                    self._spools[kind].write_parquet()
        self.abandon()

    def abandon(self) -> None:
        for spool in self._spools.values():
            spool.remove()

    def _spool(self, kind: str, execution_id: str) -> _Spool:
        month = month_of(execution_id)
        self._month = self._month or month
        assert month == self._month, "a batch is of one month"
        if kind not in self._spools:
            with archive_errors(self._place):
                self._spools[kind] = _Spool(kind, self._place / kind / month, self._name)
        return self._spools[kind]


class _Spool:
    """The rows of a Parquet file to be, as lines of JSON in a file beside it."""

    def __init__(self, kind: str, folder: Path, name: str) -> None:
        self._kind = kind
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lines = folder / f"{name}.jsonl.partial"
        self._written = folder / f"{name}.parquet.partial"
        self._final = folder / f"{name}.parquet"
        self._file: BinaryIO = os.fdopen(os.open(self._lines, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._sum = sha256()

    def add(self, row: Mapping[str, Any], checked: str) -> None:
        """``checked`` is the text of :data:`CHECKED`."""
        with archive_errors(self._lines):
            self._file.write(msgspec.json.encode(row) + b"\n")
        self._sum.update(checked.encode())

    def write_parquet(self) -> None:
        self._file.close()
        with duckdb.connect(config=_CONFIG) as connection:
            columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS[self._kind].items())
            connection.execute(
                f"copy (select * from read_json('{_quoted(self._lines)}', columns = {{{columns}}}, "
                f"format = 'newline_delimited', maximum_object_size = {MAX_LINE_BYTES})) "
                f"to '{_quoted(self._written)}' (format parquet, compression zstd)"
            )
            self._written.chmod(0o600)
            _sync(self._written)
            self._read_back(connection)
        self._written.rename(self._final)
        for folder in (self._final.parent, self._final.parent.parent):
            _sync(folder)

    def _read_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        digest = sha256()
        read = connection.execute(f"select {CHECKED[self._kind]} from read_parquet(?)", [str(self._written)])
        while rows := read.fetchmany(READ_ROWS):
            for (text,) in rows:
                digest.update(text.encode())
        if digest.digest() != self._sum.digest():
            raise NoetlError(
                f"the archive file {self._final} does not hold what was written to it; nothing was deleted"
            )

    def remove(self) -> None:
        self._file.close()
        for path in (self._lines, self._written):
            with contextlib.suppress(OSError):
                path.unlink()


def month_of(execution_id: str) -> str:
    """The month in which an execution started, as ``2026_11``, by its id; :data:`OTHER_MONTH` if that has no time."""
    try:
        ms = int(execution_id[:13].replace("-", ""), 16)
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y_%m}"
    except (ValueError, OverflowError, OSError):
        return OTHER_MONTH


@contextmanager
def archive_errors(place: Path) -> Iterator[None]:
    """Raises :class:`~noetl_stream.errors.UsageError` for what the system or DuckDB refuses there."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"archive {error.filename or place}: {error.strerror or error}") from error
    except duckdb.Error as error:
        raise UsageError(f"archive {place}: {str(error).splitlines()[0]}") from error


def _decoded(text: str, kind: type[Value]) -> Value:
    return msgspec.json.decode(text, type=kind)


def _text(document: object) -> str:
    return msgspec.json.encode(document).decode()


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
