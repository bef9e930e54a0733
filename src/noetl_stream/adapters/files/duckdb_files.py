"""Files for DuckDB, of which it reads only the ranges that a query needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from fsspec import AbstractFileSystem

from noetl_stream.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL: Final = "noetl"


class DuckdbFiles(AbstractFileSystem):  # type: ignore[misc]
    """A file system for files that DuckDB cannot read itself. A file never changes.

    Args:
        open_file: Opens a file by its name.

    Attributes:
        failures: The errors of files, of which DuckDB passes on only a text.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(self, open_file: Callable[[str], BinaryIO]) -> None:
        super().__init__()
        self._open_file = open_file
        self.failures: list[NoetlError] = []

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        with self._open(self._strip_protocol(path)) as file:
            return {"name": path, "size": file.seek(0, os.SEEK_END), "type": "file"}

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _WatchedFile:
        with _noted_in(self.failures):
            return _WatchedFile(self._open_file(path), self.failures)


class _WatchedFile(RawIOBase):
    """A file whose errors are recorded."""

    def __init__(self, file: BinaryIO, failures: list[NoetlError]) -> None:
        self._file = cast(BufferedReader, file)
        self._failures = failures

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        with _noted_in(self._failures):
            return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _noted_in(failures: list[NoetlError]) -> Iterator[None]:
    """Adds an error to a list, and raises it."""
    try:
        yield
    except NoetlError as error:
        failures.append(error)
        raise
