"""Files kept by an operator: in a folder, or in object storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from noetl_stream.errors import UsageError


class NewFile(Protocol):
    """A new file: it is invisible before :meth:`close`, and then whole and durable."""

    def write(self, data: bytes) -> int: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Discards it. Raises nothing."""


class Files(Protocol):
    """Files below one place, by names such as ``tables/event.copy.gz``. All methods block.

    Any method, and any read, raises :class:`~noetl_stream.errors.UsageError` if a file is missing or refused, and
    :class:`~noetl_stream.errors.Unreachable` if object storage is away: within a minute and a half.

    Attributes:
        place: The place as commands show it.
        name: The last part of the place.
    """

    place: str
    name: str

    def below(self, name: str) -> Self:
        """The files of a folder within this one."""

    def sizes(self, under: str = "") -> Mapping[str, int]:
        """Bytes of all files, or of those in the folder ``under``, by name.

        Raises:
            NotFound: the place does not exist.
        """

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading and seeking. Reads of a folder raise ``OSError``."""

    def create(self, name: str) -> NewFile:
        """Begins a file, and creates its folders."""

    def remove(self, name: str) -> None:
        """Removes a file, and folders that become empty."""


@contextmanager
def file_errors(place: Path | str) -> Iterator[None]:
    """Converts errors of the system to :class:`~noetl_stream.errors.UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename or place}: {error.strerror or error}") from error
