"""File locks, which the kernel releases when their holder ends, however it ends.

There are three. ``start.lock`` (exclusive) covers every start, stop and probe. ``in-use.lock`` (shared) is held by each
user of the stack; a user that can make it exclusive is the only one. ``<server>/server.lock`` (exclusive) is inherited
by the server and its children, so it is free only when all of them have ended.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE

POLL_S = 0.01
START_WAIT_S = 180.0
"""Longer than any start or stop may take."""


class FileLock:
    """An open lock file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)

    def share(self) -> None:
        """Takes the lock shared, or makes it shared. Waits while another process holds it exclusively."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Takes the lock exclusively, or makes it exclusive, without waiting.

        If it returns ``False``, a shared lock held before may be lost: call :meth:`share` again.
        """
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def try_exclusive_within(self, wait_s: float) -> bool:
        """Takes the lock exclusively, retrying for up to ``wait_s`` seconds."""
        deadline = time.monotonic() + wait_s
        while not self.try_exclusive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def close(self) -> None:
        """Releases the lock, unless a child process inherited the open file, which then holds it until it ends."""
        os.close(self.descriptor)


@contextmanager
def exclusive_lock(path: Path, busy: str, wait_s: float = START_WAIT_S) -> Iterator[FileLock]:
    """Holds ``path`` exclusively during the block.

    Raises:
        LocalStackError: It was not released within ``wait_s`` seconds; ``busy`` is the message.
    """
    lock = FileLock(path)
    try:
        if not lock.try_exclusive_within(wait_s):
            raise LocalStackError(busy, hint=f"wait for it to finish, or check who holds {path}")
        yield lock
    finally:
        lock.close()
