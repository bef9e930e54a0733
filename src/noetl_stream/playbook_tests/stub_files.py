"""Small files of a test that stand for references in the results of stubs: ``{file: orders.csv}``, ``{table: …}``."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from noetl_stream.sealing.data_references import HEAD_ROWS, PARQUET, fitting_rows
from noetl_stream.tools.contract import DataStore, ToolFailure
from noetl_stream.tools.duckdb.file_tables import GZIP, format_named
from noetl_stream.tools.duckdb.file_views import make_view
from noetl_stream.tools.duckdb.job import FileSource
from noetl_stream.tools.duckdb.tables import quote_text
from noetl_stream.tools.scratch.parquet_footer import END_BYTES, Footer, NotParquet, footer_length, read_footer
from noetl_stream.tools.sql import plain_rows

MAX_STUB_BYTES: Final = 16 * 1024 * 1024
"""The largest file in a stub."""

_PIECE_BYTES: Final = 1024 * 1024


class StubFileRefused(ValueError):
    """A file that a stub cannot have; the message is the reason."""


class StubFile(msgspec.Struct, frozen=True):
    """A file of a test: its content. A table is Parquet, with its ``footer`` and first rows."""

    name: str
    content: bytes
    footer: Footer | None = None
    head: Sequence[Any] = ()

    async def saved(self, data: DataStore) -> dict[str, Any]:
        """Stores it, and returns the reference."""
        if self.footer is not None:
            columns, rows = self.footer
            return await data.save(self._pieces(), media_type=PARQUET, columns=columns, rows=rows, head=self.head)
        media_type = mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        return await data.save(self._pieces(), name=self.name, media_type=media_type)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.content), _PIECE_BYTES):
            yield self.content[start : start + _PIECE_BYTES]


def with_files(value: Any, folder: Path) -> Any:
    """Replaces ``{file: PATH}`` and ``{table: PATH}`` in a plain result, if the file exists, relative to
    ``folder``. Other mappings are data.

    Raises:
        StubFileRefused: The file is too large, or not a table.
    """
    if isinstance(value, list):
        return [with_files(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    for key in ("file", "table"):
        if list(value) == [key] and isinstance(value[key], str) and (path := folder / value[key]).is_file():
            return _stub_file(path, is_table=key == "table")
    return {key: with_files(item, folder) for key, item in value.items()}


async def with_references(value: Any, data: DataStore) -> Any:
    """Stores the files in a result, and puts their references in their place."""
    if isinstance(value, StubFile):
        return await value.saved(data)
    if isinstance(value, list):
        return [await with_references(item, data) for item in value]
    if isinstance(value, dict):
        return {key: await with_references(item, data) for key, item in value.items()}
    return value


def _stub_file(path: Path, *, is_table: bool) -> StubFile:
    try:
        if path.stat().st_size > MAX_STUB_BYTES:
            raise StubFileRefused(f"{path} has more than {MAX_STUB_BYTES:,} bytes; a stub has small files")
        content, form = path.read_bytes(), format_named(path.name)
        if not is_table:
            return StubFile(path.name, content)
        if form not in ("csv", "json", "ndjson"):
            footer_length(content[-END_BYTES:])
        content, head = _as_parquet(path, form or "parquet", is_packed=content.startswith(GZIP))
        length = footer_length(content[-END_BYTES:])
        return StubFile(path.name, content, read_footer(content[-END_BYTES - length : -END_BYTES]), head)
    except OSError as error:
        raise StubFileRefused(f"{path} cannot be read: {error.strerror}") from None
    except NotParquet as error:
        raise StubFileRefused(f"{path} is not a table: {error}; tables are CSV, JSON, NDJSON and Parquet") from None


def _as_parquet(path: Path, form: str, *, is_packed: bool) -> tuple[bytes, Sequence[Any]]:
    """Returns the rows of a file as Parquet, read as in a ``duckdb`` task, and its first rows.

    Raises:
        StubFileRefused: The file cannot be read.
    """
    import duckdb  # only for a table

    from noetl_stream.tools.duckdb.task_session import message_of

    source = FileSource("rows", "table", str(path), str(path), form, packed=is_packed)
    with TemporaryDirectory() as folder, duckdb.connect() as database:
        written = Path(folder, "rows.parquet")
        try:
            make_view(source, lambda query: database.execute(query).fetchall())
            database.execute(f"copy (from rows) to {quote_text(str(written))} (format parquet)")
            first = database.execute(f"from rows limit {HEAD_ROWS}")
        except (duckdb.Error, ToolFailure) as error:
            raise StubFileRefused(f"{path} is not a table: {message_of(error)}") from None
        head: Sequence[Any] = []
        with suppress(ToolFailure):  # JSON cannot represent the rows
            head = fitting_rows(plain_rows([column[0] for column in first.description or ()], first.fetchall()))
        return written.read_bytes(), head
