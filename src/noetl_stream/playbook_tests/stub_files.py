"""Small files of a test that stand for references in the results of stubs: ``{file: orders.csv}``."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.sealing.data_references import PARQUET
from noetl_stream.tools.contract import DataStore
from noetl_stream.tools.scratch.parquet_footer import END_BYTES, Footer, NotParquet, footer_length, read_footer

MAX_STUB_BYTES: Final = 16 * 1024 * 1024
"""The largest file in a stub."""

_PIECE_BYTES: Final = 1024 * 1024


class StubFileRefused(ValueError):
    """A file that a stub cannot have; the message is the reason."""


class StubFile(msgspec.Struct, frozen=True):
    """A file of a test, or a table, which has a ``footer``."""

    path: Path
    footer: Footer | None = None

    async def saved(self, data: DataStore) -> dict[str, Any]:
        """Stores it, and returns the reference."""
        if self.footer is not None:
            columns, rows = self.footer
            return await data.save(self._pieces(), media_type=PARQUET, columns=columns, rows=rows)
        media_type = mimetypes.guess_type(self.path.name)[0] or "application/octet-stream"
        return await data.save(self._pieces(), name=self.path.name, media_type=media_type)

    async def _pieces(self) -> AsyncIterator[bytes]:
        content = self.path.read_bytes()
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]


def with_files(value: Any, folder: Path) -> Any:
    """Replaces ``{file: PATH}`` and ``{table: PATH}`` in a plain result, if there is such a file, relative to
    ``folder``. Other such mappings are data.

    Raises:
        StubFileRefused: The file is too large, or is no Parquet file.
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
        if not is_table:
            return StubFile(path)
        content = path.read_bytes()
        length = footer_length(content[-END_BYTES:])
        return StubFile(path, read_footer(content[-END_BYTES - length : -END_BYTES]))
    except OSError as error:
        raise StubFileRefused(f"{path} cannot be read: {error.strerror}") from None
    except NotParquet as error:
        raise StubFileRefused(f"{path} is no table in Parquet: {error}") from None
