"""Folders that belong to one process, marked by a lock during its life."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from noetl_stream.tools.children.mounts import remove_folder


def remove_folders_left(prefix: str, within: str | None = None) -> None:
    """Removes the folders of processes that were killed. A living process holds the lock of its folder."""
    for folder in Path(within or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # it is locked, somebody else's, or gone
            lock = locked(str(folder))
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    remove_folder(str(folder))
            finally:
                os.close(lock)


def made_folder(prefix: str, within: str | None = None) -> tuple[str, int]:
    """Returns a new folder, and the descriptor that holds its lock."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=within)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):  # another process removes it before it is locked
            lock = locked(folder)
            if Path(folder).exists():
                return folder, lock
            os.close(lock)


def locked(folder: str, kind: int = fcntl.LOCK_EX) -> int:
    """A descriptor of a folder that holds its lock.

    Raises:
        OSError: It is no folder, or another process holds its lock.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
