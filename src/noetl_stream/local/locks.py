"""Locks that the kernel releases when their holder dies, however it dies: no lists of pids to go stale.

Three uses. ``start.lock`` (exclusive) covers every start, stop and probe. ``in-use.lock`` (shared) is held by each user
of the stack for its lifetime; whoever can turn it exclusive is the only one. ``<server>/server.lock`` (exclusive) is
handed down to the server and its children, so it is free only when all of them are gone.
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
"""Longer than the longest start or stop that its holder allows itself."""


class FileLock:
    """One open lock file. Not for sharing between threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)

    def share(self) -> None:
        """Takes or turns the lock to shared. Waits while another holds it exclusively."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def take_alone(self) -> bool:
        """Takes or turns the lock to exclusive without waiting.

        When this says ``False`` a shared lock held before may be gone: call :meth:`share` again.
        """
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take_alone_within(self, wait_s: float) -> bool:
        """Takes the lock exclusively, asking again for up to ``wait_s`` seconds."""
        deadline = time.monotonic() + wait_s
        while not self.take_alone():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def close(self) -> None:
        """Lets go, unless a child process inherited the open file: then the lock stays for its lifetime."""
        os.close(self.descriptor)


@contextmanager
def held_alone(path: Path, busy: str, wait_s: float = START_WAIT_S) -> Iterator[FileLock]:
    """Holds ``path`` exclusively for the block.

    Raises:
        LocalStackError: it did not become free within ``wait_s`` seconds; ``busy`` is the message.
    """
    lock = FileLock(path)
    try:
        if not lock.take_alone_within(wait_s):
            raise LocalStackError(busy, hint=f"the lock is {path}")
        yield lock
    finally:
        lock.close()
