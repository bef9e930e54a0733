"""Files and tables by reference in the process of a ``python`` task (LANGUAGE §12 *python*).

The process has none of them until its code asks for the path of one: the worker then writes it where the process can
read it. Imports the standard library only; table libraries are used if the code has imported them.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, Final

from noetl_stream.tools.convert import NotJson, encode_json, to_json
from noetl_stream.tools.python.line import LINE

PIECE_BYTES: Final = 128 * 1024

_FIELDS: Final = ("key", "size", "checksum", "seal", "name", "first", "rows")
_MAX_NAME_CHARACTERS: Final = 200
_PARQUET_END: Final = 8
_HEAD_ROWS: Final = 20
_HEAD_BYTES: Final = 12 * 1024
_BINARY: Final = (typing.BinaryIO, typing.IO[bytes], io.BufferedReader, io.BufferedIOBase, io.RawIOBase)
_TEXT: Final = (typing.TextIO, typing.IO[str], io.TextIOWrapper, io.TextIOBase)


class _Places:
    """The folder of the task in this process, and the folder with its files."""

    work = files = ""


_places: Final = _Places()


def use_folders(work: str, files: str) -> None:
    """Sets the folder of a task, for files that it returns, and the folder of the files that it opens.

    Args:
        files: The latter; empty if it opens none.
    """
    _places.work, _places.files = work, files


class NotOpened(ValueError):
    """A reference that cannot be opened as requested; the message is the reason."""


class OpenReference(dict[str, Any]):
    """A file or table by reference in code: a mapping, which also has the path of its content.

    ``open(file)`` works, as does all else that takes a path.
    """

    @property
    def path(self) -> Path:
        """The path of the file, read-only; of a table, that of a Parquet file.

        Raises:
            NotOpened: The task may not open it, or it is a part of a table.
        """
        path, rows = _opened(self)
        if rows != self.get("rows"):
            raise NotOpened("it is a part of a table, which has no path of its own; take it as a data frame")
        _references[str(path)] = dict(self)
        return path

    def __fspath__(self) -> str:
        return str(self.path)


_opened_files: Final[dict[str, tuple[Path, int | None]]] = {}
"""The files that were opened in this process, with all rows of a table, by the key of their reference."""
_references: Final[dict[str, dict[str, Any]]] = {}
"""Their references, by path."""


def with_paths(value: Any) -> Any:
    """Converts everything that looks like a reference in plain JSON to one that can be opened."""
    if isinstance(value, dict):
        found = {key: with_paths(item) for key, item in value.items()}
        return OpenReference(found) if {"key", "seal", "size", "checksum"} <= found.keys() else found
    return [with_paths(item) for item in value] if isinstance(value, list) else value


def _opened(reference: OpenReference) -> tuple[Path, int | None]:
    """Returns the path of a file, and the number of the table's rows.

    Raises:
        NotOpened: The task may not open it.
    """
    if (key := str(reference["key"])) in _opened_files:
        return _opened_files[key]
    line, folder = LINE.get(), _places.files
    if line is None or line.ask is None or not folder:
        raise NotOpened("files cannot be opened here")
    asked = {name: reference[name] for name in _FIELDS if name in reference}
    if "name" in asked:
        asked["name"] = str(asked["name"])[-_MAX_NAME_CHARACTERS:]
    answer = line.ask({"open": asked, "table": "columns" in reference}, ())
    if "refused" in answer:
        raise NotOpened(answer["refused"])
    _opened_files[key] = Path(folder, answer["path"]), answer["rows"]
    return _opened_files[key]


def opened_as(hint: Any, value: Any) -> Any:
    """Returns a file or table in the form that an annotation asks for; any other value unchanged.

    Raises:
        NotOpened: It cannot be opened so, or the annotation asks for a file and the value is not one.
    """
    for one in _arms(hint):
        opener = _opener(one)
        if opener is not None and isinstance(value, OpenReference):
            return opener(value)
        if opener is not None and value is not None:
            raise NotOpened(f"{_shown(one)} wants a file or table by reference, not {type(value).__name__}")
    return value


def wants_file(hint: Any) -> bool:
    """Returns whether a parameter with this annotation gets a file or table opened."""
    return any(_opener(one) is not None for one in _arms(hint))


def _arms(hint: Any) -> Iterator[Any]:
    """The alternatives of an annotation."""
    if hasattr(hint, "__metadata__"):
        yield from _arms(typing.get_args(hint)[0])
    elif typing.get_origin(hint) in (typing.Union, UnionType):
        arms = [one for arm in typing.get_args(hint) for one in _arms(arm)]
        yield from arms if all(_opener(one) or one is type(None) for one in arms) else ()
    else:
        yield hint


def _opener(hint: Any) -> Callable[[OpenReference], Any] | None:
    """Returns the opener of a reference for this annotation; ``None`` if it asks for no file."""
    if hint is Path or hint is PurePath:
        return lambda reference: reference.path
    if hint in _BINARY:
        return lambda reference: reference.path.open("rb")
    if hint in _TEXT:
        return lambda reference: reference.path.open(encoding="utf-8")
    if not isinstance(hint, type):
        return None
    library = hint.__module__.partition(".")[0]
    reader = _READERS.get((library, hint.__name__))
    return None if reader is None else lambda reference: _read(reader, library, reference)


def _shown(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


class _Source(typing.NamedTuple):
    """The source for a library: CSV, or rows of a Parquet file; ``rows`` is ``None`` for all."""

    path: Path
    is_parquet: bool
    first: int = 0
    rows: int | None = None


def _read(reader: Callable[[Any, _Source], Any], library: str, reference: OpenReference) -> Any:
    name, media_type = str(reference.get("name", "")).lower(), str(reference.get("media_type", ""))
    is_table = "columns" in reference
    is_parquet = is_table or name.endswith(".parquet") or media_type.endswith("parquet")
    if not is_parquet and not name.endswith((".csv", ".csv.gz")) and media_type.partition(";")[0] != "text/csv":
        raise NotOpened(f"{library} reads a table, CSV or Parquet here, not {name or 'this file'}; take a Path")
    path, all_rows = _opened(reference)
    first, rows = int(reference.get("first", 0)), reference.get("rows") if is_table else None
    try:
        return reader(sys.modules[library], _Source(path, is_parquet, first, None if rows == all_rows else rows))
    except ImportError as error:
        raise NotOpened(f"{library} cannot read it in this environment: {error}") from None


def _lazy_polars(polars: Any, source: _Source) -> Any:
    if not source.is_parquet:
        return polars.scan_csv(source.path)
    found = polars.scan_parquet(source.path)
    return found if source.rows is None else found.slice(source.first, source.rows)


def _pandas(pandas: Any, source: _Source) -> Any:
    if not source.is_parquet:
        return pandas.read_csv(source.path)
    return pandas.read_parquet(source.path) if source.rows is None else _arrow(None, source).to_pandas()


def _arrow(_pyarrow: Any, source: _Source) -> Any:
    if not source.is_parquet:
        return import_module("pyarrow.csv").read_csv(source.path)
    if source.rows is None:
        return _parquet().read_table(source.path)
    return _arrow_batches(import_module("pyarrow"), source).read_all()


def _arrow_batches(pyarrow: Any, source: _Source) -> Any:
    if not source.is_parquet:
        return import_module("pyarrow.csv").open_csv(source.path)
    file = _parquet().ParquetFile(source.path)
    return pyarrow.RecordBatchReader.from_batches(file.schema_arrow, _part(file, source))


def _part(file: Any, source: _Source) -> Iterator[Any]:
    """Yields the batches of a source's rows, from the row groups that contain some of them."""
    at, groups, before = 0, [], 0
    end = source.first + source.rows if source.rows is not None else file.metadata.num_rows
    for number in range(file.num_row_groups):
        size = file.metadata.row_group(number).num_rows
        if at + size <= source.first:
            before += size
        elif at < end:
            groups.append(number)
        at += size
    at = before
    for batch in file.iter_batches(row_groups=groups):
        start, stop = max(source.first - at, 0), min(end - at, batch.num_rows)
        at += batch.num_rows
        if start < stop:
            yield batch.slice(start, stop - start)


def _parquet() -> Any:
    return import_module("pyarrow.parquet")


_READERS: Final[Mapping[tuple[str, str], Callable[[Any, _Source], Any]]] = {
    ("polars", "DataFrame"): lambda polars, source: _lazy_polars(polars, source).collect(),
    ("polars", "LazyFrame"): _lazy_polars,
    ("pandas", "DataFrame"): _pandas,
    ("pyarrow", "Table"): _arrow,
    ("pyarrow", "RecordBatchReader"): _arrow_batches,
}


def _write_arrow_batches(reader: Any, path: str) -> None:
    with _parquet().ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


_WRITERS: Final[Mapping[tuple[str, str], Callable[[Any, str], None]]] = {
    ("polars", "DataFrame"): lambda frame, path: frame.write_parquet(path),
    ("polars", "LazyFrame"): lambda frame, path: frame.sink_parquet(path),
    ("pandas", "DataFrame"): lambda frame, path: frame.to_parquet(path),
    ("pyarrow", "Table"): lambda table, path: _parquet().write_table(table, path),
    ("pyarrow", "RecordBatchReader"): _write_arrow_batches,
}


class ReturnedFiles(Mapping[type, Callable[[Any], Any]]):
    """The values other than JSON in a result, paths and tables, each of which becomes a reference.

    It is looked at where a result has something that is no JSON, and costs nothing otherwise.
    """

    def __iter__(self) -> Iterator[type]:
        yield PurePath
        for library, name in _WRITERS:
            found = getattr(sys.modules.get(library), name, None)
            if isinstance(found, type):
                yield found

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, kind: type) -> Callable[[Any], Any]:
        if kind is PurePath:
            return _saved_file
        writer = next(
            write
            for (library, name), write in _WRITERS.items()
            if getattr(sys.modules.get(library), name, None) is kind
        )
        return lambda table: _saved_table(writer, table)


RETURNED_FILES: Final = ReturnedFiles()


def work_folder() -> str:
    return _places.work


def _saved_file(path: PurePath) -> Any:
    absolute = os.path.abspath(path)  # noqa: PTH100
    if absolute in _references:
        return _references[absolute]
    folder, home = os.path.realpath(os.path.dirname(absolute)), os.path.realpath(work_folder())  # noqa: PTH120
    if folder != home and not folder.startswith(f"{home}/"):
        hint = "write it to the folder of the task: `folder` of its `Context`, or what tempfile makes"
        raise NotJson("", f"{path} is outside the folder of the task; {hint}")
    try:
        descriptor = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        is_link = os.path.islink(absolute)  # noqa: PTH114
        raise NotJson("", f"{path} is a symbolic link" if is_link else f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            what = "a folder; return the paths of its files" if stat.S_ISDIR(mode) else "no file"
            raise NotJson("", f"{path} is {what}")
        return _ask({"save": os.path.basename(absolute)[-_MAX_NAME_CHARACTERS:]}, _pieces(file))  # noqa: PTH119


def _saved_table(write: Callable[[Any, str], None], table: Any) -> Any:
    import tempfile  # its modules do something in each new process

    place, path = tempfile.mkstemp(suffix=".parquet", dir=work_folder())
    os.close(place)
    try:
        write(table, path)
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _PARQUET_END))
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - _PARQUET_END - length))
            footer = file.read(length)
            file.seek(0)
            asked = {"save": "", "footer": len(footer), "head": _head(table, path)}
            return _ask(asked, _with_footer(footer, file))
    except ImportError as error:
        library = type(table).__module__.partition(".")[0]
        raise NotJson("", f"{library} cannot write a table in this environment: {error}") from None
    finally:
        os.unlink(path)  # noqa: PTH108


def _head(table: Any, path: str) -> list[Any]:
    """Returns the first rows of a written table, as many as fit into a note."""
    try:
        if type(table).__module__.partition(".")[0] == "polars":
            rows = sys.modules["polars"].read_parquet(path, n_rows=_HEAD_ROWS).to_dicts()
        else:
            batch = next(_parquet().ParquetFile(path).iter_batches(batch_size=_HEAD_ROWS), None)
            rows = [] if batch is None else batch.to_pylist()
        plain, room = to_json(rows), _HEAD_BYTES
    except Exception:  # rows that cannot be read, or have no JSON, are not for templates
        return []
    fitting = []
    for row in plain:
        room -= len(encode_json(row)) + 1
        if room < 0:
            break
        fitting.append(row)
    return fitting


def _with_footer(footer: bytes, file: io.RawIOBase) -> Iterator[bytes]:
    for start in range(0, len(footer), PIECE_BYTES):
        yield footer[start : start + PIECE_BYTES]
    yield from _pieces(file)


def _pieces(file: io.RawIOBase) -> Iterator[bytes]:
    """Yields the content of a file, and an empty piece at its end."""
    while piece := file.read(PIECE_BYTES):
        yield piece
    yield b""


def _ask(question: Mapping[str, Any], frames: Iterator[bytes]) -> Any:
    line = LINE.get()
    if line is None or line.ask is None:
        raise NotJson("", "files and tables cannot be returned from a process that runs share (python_shared)")
    return line.ask(question, frames)
