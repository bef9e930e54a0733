"""Reads Excel and OpenDocument workbooks as tables, in the process of a DuckDB task: a sheet is converted to CSV, with
column types from its cells. The library loads a whole sheet; the memory limit of the process bounds it.
"""

from __future__ import annotations

import datetime
import errno
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.copies import NULL
from noetl_stream.tools.duckdb.job import DISK_FULL, FileSource

MAX_UNPACKED_BYTES: Final = 2 * 1024**3
"""The maximum unpacked size of a workbook, in bytes, according to its ZIP directory."""
MAX_PARTS: Final = 10_000
MAX_SHEETS_SHOWN: Final = 20

_EXACT: Final = 2.0**53
_BATCH: Final = 1_000
_TYPES: Final = (
    ({"bool"}, "BOOLEAN"),
    ({"int"}, "BIGINT"),
    ({"int", "float"}, "DOUBLE"),
    ({"date"}, "DATE"),
    ({"date", "datetime"}, "TIMESTAMP"),
    ({"time"}, "TIME"),
    ({"timedelta"}, "INTERVAL"),
)
"""Column types, by the kinds of cells that fit them. The first match applies."""


def text_file(source: FileSource) -> str:
    """Returns the path of the CSV file with the rows of a workbook."""
    return f"{source.file}.rows"


def write_rows(source: FileSource) -> dict[str, str]:
    """Writes the rows of a sheet as CSV; returns the types of its columns, by name.

    Raises:
        ToolFailure: ``not_installed``; ``limit_exceeded``; ``sql``: not a workbook, no such sheet, or no rows.
    """
    rows = _filled(_opened(source))
    head = next(rows, None) if source.header is not False else None
    first = next(rows, None)
    width = len(head or first or ())
    if not width:
        raise source.unreadable("has no rows")
    kinds: list[set[str]] = [set() for _ in range(width)]
    try:
        with Path(text_file(source)).open("x", encoding="utf-8", newline="") as file:
            if first is not None:
                file.write(_line(first, kinds))
            while batch := list(islice(rows, _BATCH)):
                file.write("".join(_line(row, kinds) for row in batch))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ToolFailure.of(DISK_FULL, f"{source.place}: {error.strerror}") from None
        raise ToolFailure.of("limit_exceeded", f"{source.place}: the rows of {source.what} are too long") from None
    names = _names(head, width)
    return {name: _type_of(found) for name, found in zip(names, kinds, strict=True)}


def _opened(source: FileSource) -> Iterator[Sequence[Any]]:
    """Returns the rows of the sheet."""
    try:
        import python_calamine as calamine
    except ImportError:
        message = f"{source.place}: this worker cannot read workbooks; install noetl-stream[excel] there"
        raise ToolFailure.of("not_installed", message) from None
    _check_unpacked(source)
    try:
        book = calamine.CalamineWorkbook.from_path(source.file)
        names, sheet = book.sheet_names, source.sheet if source.sheet is not None else 1
        if isinstance(sheet, int) and not 0 < sheet <= len(names):
            raise source.unreadable(f"has {len(names)} sheets, and not the number {sheet}")
        name = names[sheet - 1] if isinstance(sheet, int) else sheet
        return book.get_sheet_by_name(name).iter_rows()
    except calamine.WorksheetNotFound:
        shown = ", ".join(names[:MAX_SHEETS_SHOWN])
        raise source.unreadable(f"has no sheet {source.sheet}; it has {shown}") from None
    except calamine.PasswordError:
        raise source.unreadable("has a password") from None
    except calamine.CalamineError as error:
        raise source.unreadable(f"is not a workbook: {error}") from None
    except ToolFailure:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a panic of the library, which is written in Rust
            raise
        raise source.unreadable("is not a workbook, or is damaged") from None


def _check_unpacked(source: FileSource) -> None:
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(source.file) as archive:  # .xls files are not ZIP archives
        parts = archive.infolist()
        if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
            raise ToolFailure.of(
                "limit_exceeded",
                f"{source.place}: {source.what} has over {MAX_UNPACKED_BYTES:,} bytes unpacked, or over {MAX_PARTS:,} "
                "parts",
            )


def _filled(rows: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yields the rows that are not empty."""
    return (row for row in rows if any(cell != "" for cell in row))


def _line(row: Sequence[Any], kinds: Sequence[set[str]]) -> str:
    fields = []
    for cell, found in zip(row, kinds, strict=True):
        if cell == "":
            fields.append(NULL)
            continue
        kind, text = _text_of(cell)
        found.add(kind)
        fields.append(f'"{text}"')
    return f"{','.join(fields)}\n"


def _text_of(cell: Any) -> tuple[str, str]:
    """Returns the kind of a cell, and its text, escaped for CSV quotes."""
    match cell:
        case str():
            return "str", cell.replace('"', '""').replace("\0", "")
        case bool():
            return "bool", "true" if cell else "false"
        case float() if cell.is_integer() and abs(cell) < _EXACT:
            return "int", str(int(cell))
        case int():
            return "int" if abs(cell) < _EXACT else "float", str(cell)
        case datetime.datetime() | datetime.date() | datetime.time():
            return type(cell).__name__, cell.isoformat(" ") if isinstance(cell, datetime.datetime) else cell.isoformat()
        case datetime.timedelta():
            return "timedelta", f"{cell.days} days {cell.seconds} seconds {cell.microseconds} microseconds"
    return type(cell).__name__, str(cell)


def _type_of(kinds: set[str]) -> str:
    return next((name for members, name in _TYPES if kinds and kinds <= members), "VARCHAR")


def _names(head: Sequence[Any] | None, width: int) -> list[str]:
    """Returns the column names from the first row. Empty and repeated names get a number.

    Names are compared without regard to case.
    """
    taken: set[str] = set()
    names = []
    for number, cell in enumerate(head or [""] * width, 1):
        name = base = _text_of(cell)[1].replace('""', '"').strip() or f"column{number}"
        again = 1
        while name.lower() in taken:
            name, again = f"{base}_{again}", again + 1
        taken.add(name.lower())
        names.append(name)
    return names
