"""Views over files in the folder of a DuckDB process.

DuckDB's CSV sniffer fails at a malformed line, without its number. So the dialect and the types are detected with such
lines ignored, and then applied to every line. The sniffer has no limit for the length of a line: one of 100 MB took a
minute. And a parallel read silently skips a last line that is longer than its buffers. So lines that are too long are
refused first.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path

from noetl_stream.tools.duckdb.copies import COPIED_CSV, Query
from noetl_stream.tools.duckdb.job import FileSource
from noetl_stream.tools.duckdb.tables import quote_identifier, quote_text
from noetl_stream.tools.duckdb.workbook import text_file, write_rows

MAX_LINE_BYTES = 2_000_000
"""The maximum length of a CSV line in DuckDB, in bytes."""
_LOOKED_AT_BYTES = 64 * 1024 * 1024
"""The maximum size of the part of a file in which DuckDB detects the dialect, in bytes."""
_BLOCK_BYTES = 64 * 1024
_START_BYTES = 16
_SHOWN_REJECTS = 3
_UNREADABLE = {
    rb"BZh[1-9]1AY&SY": "compressed with bzip2",
    rb"\xfd7zXZ\x00": "compressed with xz",
    rb"\x28\xb5\x2f\xfd": "compressed with zstd",
    rb"PK\x03\x04": "a zip archive",
    rb"\xff\xfe|\xfe\xff": "in UTF-16",
}
"""What a file with these first bytes is, if it should be text."""
_SNIFFED = "Delimiter, Quote, Escape, SkipRows, HasHeader, Columns, DateFormat, TimestampFormat"


def make_view(source: FileSource, query: Query) -> None:
    """Makes a file a table of the task: a temporary view, or a table if lines may be left out.

    Raises:
        ToolFailure: ``sql``; the file cannot be read, or more of its lines than may be left out.
    """
    if source.format in ("csv", "json", "ndjson"):
        with Path(source.file).open("rb") as file:
            if why := unreadable(file.read(_START_BYTES)):
                raise source.unreadable(why)
    compression = "" if source.format == "parquet" else f", compression = '{'gzip' if source.packed else 'none'}'"
    given = quote_text(source.file) + compression
    match source.format:
        case "parquet":
            reader = f"read_parquet({given})" if source.part is None else _part_reader(given, *source.part)
        case "csv":
            reader = _csv_reader(source, given, query)
        case "excel":
            columns = ", ".join(
                f"{quote_text(name)}: {quote_text(kind)}" for name, kind in _typed(source, write_rows(source)).items()
            )
            reader = f"read_csv({quote_text(text_file(source))}, columns = {{{columns}}}, {COPIED_CSV})"
        case _:
            form = "auto" if source.format == "json" else "newline_delimited"
            sample = ", sample_size = -1" if source.all_rows else ""
            reader = f"read_json({given}, format = '{form}'{sample})"
    kind = "view" if source.max_bad_rows is None else "table"
    query(f"create temp {kind} {quote_identifier(source.name)} as from {reader}")
    if source.max_bad_rows is not None:
        _check_rejects(source, source.max_bad_rows, query)


def unreadable(start: bytes) -> str | None:
    """Returns why text with these first bytes cannot be read; ``None`` if nothing is known against it."""
    found = next((what for first, what in _UNREADABLE.items() if re.match(first, start)), None)
    hint = "CSV and JSON are read in UTF-8, plain or gzipped; convert it before, as in a task of shell or python"
    return found and f"is {found} ({hint})"


def _part_reader(given: str, first: int, rows: int) -> str:
    rows_read = f"file_row_number >= {first} and file_row_number < {first + rows}"
    return f"(from read_parquet({given}, file_row_number = true) select * exclude (file_row_number) where {rows_read})"


def _check_lines(source: FileSource) -> None:
    """Refuses a file with a line that is much too long. In a gzip file, only the beginning is checked."""
    file: GzipFile | BufferedReader
    file = GzipFile(source.file) if source.packed else Path(source.file).open("rb")  # noqa: SIM115
    most = _LOOKED_AT_BYTES if source.packed else Path(source.file).stat().st_size
    with file, suppress(EOFError, OSError, zlib.error):  # DuckDB reports damaged files
        for at in range(0, most, MAX_LINE_BYTES):
            file.seek(at)
            if not _has_line_end(file):
                file.seek(0)
                before = (file.read(min(_BLOCK_BYTES, at - done)) for done in range(0, at, _BLOCK_BYTES))
                number = 1 + sum(block.count(b"\n") or block.count(b"\r") for block in before)
                raise source.unreadable(f"has a line of more than {MAX_LINE_BYTES:,} bytes, line {number:,}")


def _has_line_end(file: GzipFile | BufferedReader) -> bool:
    """Returns true if a line, or the file, ends within :data:`MAX_LINE_BYTES`."""
    for _ in range(0, MAX_LINE_BYTES, _BLOCK_BYTES):
        block = file.read(_BLOCK_BYTES)
        if len(block) < _BLOCK_BYTES or b"\n" in block or b"\r" in block:
            return True
    return False


def _csv_reader(source: FileSource, given: str, query: Query) -> str:
    _check_lines(source)
    delimiter = "" if source.delimiter is None else f", delim = {quote_text(source.delimiter)}"
    header = "" if source.header is None else f", header = {str(source.header).lower()}"
    (found,) = query(f"select {_SNIFFED} from sniff_csv({given}{delimiter}{header}, ignore_errors = true)")
    delimiter, quote, escape, skip, has_header, columns, date, timestamp = found
    quote = '"' if quote == "(empty)" else quote
    types = _typed(source, {column["name"]: column["type"] for column in columns})
    options = {
        "delim": quote_text(delimiter),
        "quote": quote_text(quote),
        "escape": quote_text(quote if escape == "(empty)" else escape),
        "skip": str(skip),
        "header": str(has_header).lower(),
        "columns": f"{{{', '.join(f'{quote_text(name)}: {quote_text(kind)}' for name, kind in types.items())}}}",
        "auto_detect": "false",
        "parallel": str(not source.packed).lower(),
    }
    if date:
        options["dateformat"] = quote_text(date)
    if timestamp:
        options["timestampformat"] = quote_text(timestamp)
    if source.max_bad_rows is not None:
        rejects = {"rejects_table": rejects_of(source), "rejects_scan": f"{rejects_of(source)}_scan"}
        options |= {"store_rejects": "true", "rejects_limit": "0"}
        options |= {name: quote_text(table) for name, table in rejects.items()}
    return f"read_csv({given}, {', '.join(f'{name} = {value}' for name, value in options.items())})"


def _typed(source: FileSource, found: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the types of the columns of a file, by name, given those that were found."""
    given = source.columns or {}
    if source.header is False and given:
        if len(given) != len(found):
            raise source.unreadable(f"has {len(found)} columns, and `columns` names {len(given)}")
        return given
    missing = [name for name in given if name not in found]
    if missing:
        raise source.unreadable(f"has no column {missing[0]}, which `columns` names; it has {', '.join(found)}")
    return {**found, **given}


def rejects_of(source: FileSource) -> str:
    """Returns the name of the table of the rejected lines."""
    return f"{source.name}_rejects"


def _check_rejects(source: FileSource, most: int, query: Query) -> None:
    rejects = quote_identifier(rejects_of(source))
    ((count,),) = query(f"select count(distinct line) from {rejects}")
    if count > most:
        columns = "line, column_name, error_message"
        shown = query(f"select {columns} from {rejects} order by line limit {_SHOWN_REJECTS}")
        reasons = "; ".join(f"line {line}, column {column}: {' '.join(why.split())}" for line, column, why in shown)
        raise source.unreadable(f"has {count:,} lines that cannot be read (max_bad_rows: {most:,}): {reasons}")
