"""The archive: Parquet files in a folder or in object storage, written by DuckDB and readable by any Parquet reader.

``executions/<month>/<name>.parquet`` has a row for each execution, ``events/<month>/<name>.parquet`` one for each of
their events, both by the month they started in. A name begins with the first and the last id in the file, so that other
files need not be opened. The documents are JSON, as commands and gateways show them. An execution is archived once it
is in a file of ``executions``, which is written last. :mod:`noetl_stream.adapters.archive_files` describes how files
are signed and encrypted.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb
import msgspec

from noetl_stream.adapters.archive_files import ArchiveFolder, StoredFile
from noetl_stream.errors import NoetlError, NotFound, UsageError
from noetl_stream.model.envelope import EventDocument, iso_or_none
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    ListedExecutionDocument,
    ResultDocument,
)
from noetl_stream.sealing.file_keys import FileKeys

if TYPE_CHECKING:
    from noetl_stream.adapters.files.folder import FolderFiles
    from noetl_stream.adapters.files.objects import ObjectFiles

Value = TypeVar("Value")

SUFFIX: Final = ".parquet"

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
"""The columns of each kind of archive file."""

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
    """:class:`~noetl_stream.ports.stores.retention.ArchiveFiles` in Parquet, and the reads of commands.

    Args:
        origin: The writer and its source.
    """

    def __init__(self, files: FolderFiles | ObjectFiles, keys: FileKeys, origin: str = "") -> None:
        self._files = ArchiveFolder(files, keys, origin)

    def begin(self) -> ParquetBatch:
        return ParquetBatch(self._files)

    def positions(self, execution_ids: Collection[str]) -> dict[str, int]:
        by_month = defaultdict(list)
        for execution_id in execution_ids:
            by_month[month_of(execution_id)].append(execution_id)
        found: dict[str, int] = {}
        for month, ids in by_month.items():
            query = "select execution_id, max(position) from given where list_contains(?, execution_id) group by 1"
            with contextlib.suppress(NotFound):  # before the first batch there may be no folder
                names = self._names(EXECUTIONS, month, ids).items()
                usable = {name: stored for name, stored in names if self._files.is_usable(name, stored)}
                found |= dict(self._rows(usable, query, [ids]))
        return found

    def get(self, execution_id: str) -> ExecutionDocument:
        """Returns an archived execution; raises :class:`~noetl_stream.errors.NotFound`, like :meth:`result`."""
        return _decode_document(self._newest(execution_id, "document"), ExecutionDocument)

    def result(self, execution_id: str) -> ResultDocument:
        return _decode_document(self._newest(execution_id, "result"), ResultDocument)

    def events(self, execution_id: str, after: int, limit: int | None) -> list[EventDocument]:
        """Returns the events of an archived execution above the position ``after``, in order."""
        self._newest(execution_id, "listed")
        query = """
            select any_value(document) from given
            where execution_id = ? and position > ? group by position order by position limit ?
        """
        names = self._names(EVENTS, month_of(execution_id), [execution_id])
        rows = self._rows(names, query, [execution_id, after, limit])
        return [_decode_document(text, EventDocument) for (text,) in rows]

    def page(self, chosen: ExecutionFilter, limit: int, before: str | None) -> ExecutionPage:
        """Returns the archived executions that match, newest first.

        Raises:
            NotFound: the place has no archive.
        """
        searched = (chosen.failed_step, chosen.worker, chosen.longer_than_s, chosen.due)
        if chosen.searches_values or searched != (None, None, None, None):
            raise UsageError("an archive has no index of that", hint="use --status, --path, --older-than")
        query = """
            select arg_max(listed, position) from given
            where (len(?) = 0 or list_contains(?, status))
              and (?::text is null or path = ? or starts_with(path, ? || '/'))
              and (?::text is null or started >= ?)
              and (?::text is null or started < ?)
              and (?::text is null or execution_id < ?)
            group by execution_id order by execution_id desc limit ?
        """
        path = None if chosen.path is None else chosen.path.strip("/")
        since, until = iso_or_none(chosen.started_from_ms), iso_or_none(chosen.started_before_ms)
        status = list(chosen.status)
        values = [status, status, path, path, path, since, since, until, until, before, before, limit + 1]
        names = self._names(EXECUTIONS)
        if not names:
            hint = "nothing was archived there yet, or the archive is at another folder or prefix"
            raise NotFound(f"{self._files.place} has no archive", hint=hint)
        rows = self._rows(names, query, values)
        items = [_decode_document(text, ListedExecutionDocument) for (text,) in rows[:limit]]
        return ExecutionPage(items, items[-1].execution_id if len(rows) > limit else None)

    def _newest(self, execution_id: str, column: str) -> str:
        query = f"select arg_max({column}, position) from given where execution_id = ? having count(*) > 0"
        names = self._names(EXECUTIONS, month_of(execution_id), [execution_id])
        rows = self._rows(names, query, [execution_id])
        if not rows:
            raise NotFound(f"execution {execution_id!r} is not in the archive {self._files.place}")
        return str(rows[0][0])

    def _names(self, kind: str, month: str = "", wanted: Collection[str] = ()) -> dict[str, StoredFile]:
        """Returns the files of a kind and month that may hold one of the executions."""
        files = self._files.files(f"{kind}/{month}".rstrip("/"), SUFFIX)
        return {name: stored for name, stored in files.items() if _may_hold(name, wanted)}

    def _rows(self, stored: Mapping[str, StoredFile], query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the rows of a query on archive files, in which the query names them ``given``."""
        if not stored:
            return []
        files = self._files.for_duckdb(stored)
        names = [f"{files.protocol}://{name}" for name in stored]
        with archive_errors(self._files.place, files.failures), duckdb.connect(config=_CONFIG) as connection:
            connection.register_filesystem(files)
            given = f"with given as (select * from read_parquet(?)) {query}"
            return connection.execute(given, [names, *values]).fetchall()


class ParquetBatch:
    """:class:`~noetl_stream.ports.stores.retention.ArchiveBatch` of executions that started in one month."""

    def __init__(self, files: ArchiveFolder) -> None:
        self._files = files
        self._month: str | None = None
        self._ids: set[str] = set()
        self._scratch: TemporaryDirectory[str] | None = None
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
        name = f"{min(self._ids, default='')}.{max(self._ids, default='')}.{uuid.uuid4().hex}{SUFFIX}"
        with archive_errors(self._files.place):
            made = [(kind, self._spools[kind].write_parquet()) for kind in (EVENTS, EXECUTIONS) if kind in self._spools]
            for kind, path in made:
                self._files.put(path, f"{kind}/{self._month}/{name}")
        self.abandon()

    def abandon(self) -> None:
        for spool in self._spools.values():
            spool.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _spool(self, kind: str, execution_id: str) -> _Spool:
        month = month_of(execution_id)
        self._month = self._month or month
        assert month == self._month, "a batch is of one month"
        self._ids.add(execution_id)
        with archive_errors(self._files.place):
            if self._scratch is None:
                self._scratch = self._files.scratch()
            if kind not in self._spools:
                self._spools[kind] = _Spool(kind, Path(self._scratch.name))
        return self._spools[kind]


class _Spool:
    """Collects the rows of a Parquet file as lines of JSON."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._lines = folder / f"{kind}.jsonl"
        self._written = folder / f"{kind}{SUFFIX}"
        self._file = self._lines.open("wb")
        self._sum = sha256()

    def add(self, row: Mapping[str, Any], checked: str) -> None:
        """Adds a row; ``checked`` is the text of its :data:`CHECKED` columns."""
        with archive_errors(self._lines):
            self._file.write(msgspec.json.encode(row) + b"\n")
        self._sum.update(checked.encode())

    def write_parquet(self) -> Path:
        self._file.close()
        with duckdb.connect(config=_CONFIG) as connection:
            columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS[self._kind].items())
            connection.execute(
                f"copy (select * from read_json('{_quote(self._lines)}', columns = {{{columns}}}, "
                f"format = 'newline_delimited', maximum_object_size = {MAX_LINE_BYTES})) "
                f"to '{_quote(self._written)}' (format parquet, compression zstd)"
            )
            self._read_back(connection)
        return self._written

    def _read_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        digest = sha256()
        read = connection.execute(f"select {CHECKED[self._kind]} from read_parquet(?)", [str(self._written)])
        while rows := read.fetchmany(READ_ROWS):
            for (text,) in rows:
                digest.update(text.encode())
        if digest.digest() != self._sum.digest():
            raise NoetlError("an archive file does not hold what was written to it; nothing was deleted")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _may_hold(name: str, wanted: Collection[str]) -> bool:
    first, last, *_ = name.rpartition("/")[2].split(".")
    return not wanted or any(first <= one <= last for one in wanted)


def month_of(execution_id: str) -> str:
    """Returns the month of an execution's start by its id, as ``2026_11``; :data:`OTHER_MONTH` without a time in it."""
    try:
        ms = int(execution_id[:13].replace("-", ""), 16)
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y_%m}"
    except (ValueError, OverflowError, OSError):
        return OTHER_MONTH


@contextmanager
def archive_errors(place: Path | str, failures: Sequence[NoetlError] = ()) -> Iterator[None]:
    """Turns errors of the system and of DuckDB into :class:`~noetl_stream.errors.UsageError`.

    Args:
        failures: Errors of files that DuckDB was reading, which are raised instead of its own.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"archive {error.filename or place}: {error.strerror or error}") from error
    except duckdb.Error as error:
        if failures:
            raise failures[0] from None
        raise UsageError(f"archive {place}: {str(error).splitlines()[0]}") from error


def _decode_document(text: str, kind: type[Value]) -> Value:
    return msgspec.json.decode(text, type=kind)


def _text(document: object) -> str:
    return msgspec.json.encode(document).decode()


def _quote(path: Path) -> str:
    return str(path).replace("'", "''")
