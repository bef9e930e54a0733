"""Object storage as DuckDB reads it: only the ranges that a query needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from fsspec import AbstractFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROTOCOL: Final = "noetl"


class DuckdbFiles(AbstractFileSystem):  # type: ignore[misc]
    """A file system through which DuckDB reads object storage. Files never change: each has a name of its own.

    Args:
        reader: Opens a file, given its name and size.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(self, reader: Callable[[str, int], BinaryIO], sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._reader = reader
        self._sizes = sizes

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._sizes[self._strip_protocol(path)], "type": "file"}

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> BinaryIO:
        return self._reader(path, self._sizes[path])
