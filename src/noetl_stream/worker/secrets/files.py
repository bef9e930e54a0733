"""Reads files for ``kind: file`` of the keychain, only below the folders that the operator names (LANGUAGE §11).

A path is followed one name at a time, each opened in the folder opened before it. The file that was checked is
therefore the one read: no link leads out, not even one swapped in meanwhile. ``openat2`` would do the same, on Linux
only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from noetl_stream.settings.tools import KEYCHAIN_FOLDERS_VARIABLE

MAX_LINKS: Final = 40
"""The most links that are followed on the way to one file, as on Linux."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""The flags that open a file. ``O_NONBLOCK``: opening a FIFO must not wait for its writer."""


class FileRefused(Exception):
    """A file may not or cannot be read. The message continues a sentence that begins with the path."""


def read_secret_file(path: str, folders: Sequence[Path], max_bytes: int) -> str:
    """Returns the text of the regular file ``path``, an absolute path below one of ``folders``.

    Links count as their targets, which must be below the same folder; a link with an absolute target is refused.

    Raises:
        FileRefused: the file is not below ``folders``, not a regular file, not UTF-8, too large, or cannot be opened.
    """
    folder = next((folder for folder in folders if PurePosixPath(path).is_relative_to(folder)), None)
    if folder is None:
        raise FileRefused(f"is not in a folder that the worker's operator allows ({KEYCHAIN_FOLDERS_VARIABLE})")
    try:
        with _open_below(folder, PurePosixPath(path).relative_to(folder)) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileRefused("is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
    except OSError as error:
        raise FileRefused(f"cannot be read on this worker: {error.strerror}") from None
    if len(data) > max_bytes:
        raise FileRefused(f"is larger than {max_bytes} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FileRefused("is not UTF-8 text") from None


@contextmanager
def _open_below(folder: Path, path: PurePosixPath) -> Iterator[int]:
    """Opens ``folder/path`` and yields its descriptor, closed at the end.

    Raises:
        FileRefused: the path leads out of the folder.
        OSError: the file cannot be opened.
    """
    names = list(reversed(path.parts))
    links = 0
    way = [os.open(folder, _FOLDER & ~os.O_NOFOLLOW)]  # the operator's own folder may be a link
    try:
        while names:
            name = names.pop()
            if name == "..":
                os.close(way.pop())
                if not way:
                    raise _leads_out(folder)
                continue
            target = _target_of(name, way[-1])
            if target is None:
                way.append(os.open(name, _FOLDER if names else _FILE, dir_fd=way[-1]))
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.is_absolute():
                raise _leads_out(folder)
            names.extend(reversed(target.parts))
        yield way[-1]
    finally:
        for descriptor in way:
            os.close(descriptor)


def _target_of(name: str, folder: int) -> PurePosixPath | None:
    """Returns the target of the link ``name``; ``None`` if it is not a link. ``O_NOFOLLOW`` refuses one made later."""
    try:
        return PurePosixPath(os.readlink(name, dir_fd=folder))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _leads_out(folder: Path) -> FileRefused:
    return FileRefused(f"leads out of {folder}, the folder that the worker's operator allows")
