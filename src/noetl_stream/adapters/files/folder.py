"""Files in a folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from noetl_stream.errors import NotFound
from noetl_stream.ports.files import file_errors

PARTIAL: Final = ".partial"


class FolderFiles:
    """:class:`~noetl_stream.ports.files.Files` that only their owner can read; the port documents the methods."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place, self.name = str(folder), folder.name

    def below(self, name: str) -> FolderFiles:
        return FolderFiles(self._folder / name)

    def sizes(self, under: str = "") -> dict[str, int]:
        if not self._folder.is_dir():
            raise NotFound(f"{self.place} is not a folder")
        with file_errors(self._folder):
            return {
                str(path.relative_to(self._folder)): path.stat().st_size
                for path in sorted((self._folder / under).rglob("*"))
                if path.is_file()
            }

    def open(self, name: str) -> BinaryIO:
        with file_errors(self._folder):
            return (self._folder / name).open("rb")

    def create(self, name: str) -> _NewFile:
        with file_errors(self._folder):
            return _NewFile(self._path_with_folder(name))

    def put(self, made: Path, name: str) -> None:
        """Moves a file from :meth:`scratch` to its name."""
        with file_errors(self._folder):
            _keep(made, self._path_with_folder(name))

    def remove(self, name: str) -> None:
        with file_errors(self._folder):
            path = self._folder / name
            path.unlink()
            with contextlib.suppress(OSError):  # a folder that is not empty stays
                for folder in path.parents[: name.count("/") + 1]:
                    folder.rmdir()

    def scratch(self) -> TemporaryDirectory[str]:
        """Makes a folder for unfinished files, on the same disk."""
        return TemporaryDirectory(
            prefix=".making-", dir=self._path_with_folder("any").parent, ignore_cleanup_errors=True
        )

    def open_parts(self, name: str, _size: int) -> BinaryIO:
        """Opens a file for random reads."""
        return self.open(name)

    def _path_with_folder(self, name: str) -> Path:
        """Returns the path of a file, and creates its folders."""
        path = self._folder / name
        missing = []
        for folder in path.parents:
            if folder.exists():
                break
            missing.append(folder)
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        return path


class _NewFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._path_with_folder = path.with_name(path.name + PARTIAL)
        self._path_with_folder.unlink(missing_ok=True)
        self._file = os.fdopen(os.open(self._path_with_folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def write(self, data: bytes) -> int:
        with file_errors(self._path_with_folder):
            return self._file.write(data)

    def close(self) -> None:
        with file_errors(self._path_with_folder):
            self._file.close()
            _keep(self._path_with_folder, self._path)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path_with_folder.unlink()


def _keep(made: Path, path: Path) -> None:
    made.chmod(0o600)
    _sync(made)
    made.rename(path)
    for folder in (path.parent, path.parent.parent):
        _sync(folder)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
