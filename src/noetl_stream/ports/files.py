"""Files that an operator keeps: in a folder, or in object storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from noetl_stream.errors import UsageError


class NewFile(Protocol):
    """A file in the making: nobody sees it before :meth:`close`, and then it is whole and durable."""

    def write(self, data: bytes) -> int: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Leaves it unwritten. Raises nothing."""


class Files(Protocol):
    """Files below one place, by names such as ``tables/event.copy.gz``. All methods block.

    Any method, and any read, raises :class:`~noetl_stream.errors.UsageError` for what is missing or refused there, and
    :class:`~noetl_stream.errors.Unreachable` when object storage is away: within a minute and a half.

    Attributes:
        place: As commands show it.
        name: The last part of it.
    """

    place: str
    name: str

    def below(self, name: str) -> Self:
        """The files of a folder in this one."""

    def sizes(self, under: str = "") -> Mapping[str, int]:
        """Bytes of all files, or of those in the folder ``under``, by name.

        Raises:
            NotFound: the place does not exist.
        """

    def open(self, name: str) -> BinaryIO:
        """Reads a file, which can seek. Reads of a folder raise ``OSError``."""

    def create(self, name: str) -> NewFile:
        """Begins a file, with the folders that it needs."""

    def remove(self, name: str) -> None:
        """Removes a file, and folders that are empty then."""


@contextmanager
def file_errors(place: Path | str) -> Iterator[None]:
    """Raises :class:`~noetl_stream.errors.UsageError` for what the system refuses there."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename or place}: {error.strerror or error}") from error
