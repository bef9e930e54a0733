"""Makes the data folder of a new home's Postgres, while ``run`` still checks its playbook."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import FileLock, Home, prepare_home
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.secrets import load_or_create_secrets
from noetl_stream.local.server_process import guard_path, guarded_data

UNDO_POLL_S: Final = 0.02


class Groundwork:
    """Holds the start lock of a new home, until its data folder is kept or undone.

    A child of this process makes the folder: a thread would wait for what the check imports.
    """

    def __init__(self, home: Home, lock: FileLock, pool: str) -> None:
        self._home = home
        self._lock = lock
        self._postgres = PostgresServer(home)
        self._maker = os.fork()
        if self._maker == 0:
            try:
                os.setsid()  # our Ctrl-C does not reach it
                self._make(pool)
            finally:
                os._exit(0)

    @classmethod
    def begin(cls, folder: Path, pool: str) -> Self | None:
        """Begins a new home's data folder; ``None`` if there is a home, or another process makes it.

        Raises:
            LocalStackError, OSError: The folder cannot be made.
        """
        if folder.exists():
            return None
        with ExitStack() as closing:
            home = prepare_home(folder)
            lock = FileLock(home.start_lock)
            closing.callback(lock.close)
            if not lock.try_exclusive() or not lock.is_current() or home.passwords.exists():
                return None
            closing.pop_all()
            return cls(home, lock, pool)

    def keep(self) -> None:
        """Waits until the folder is made. Joining the stack repeats failed steps, and reports why they fail."""
        os.waitpid(self._maker, 0)
        self._lock.close()

    def undo(self) -> None:
        """Removes the home, with its data folder."""
        os.kill(self._maker, signal.SIGKILL)
        os.waitpid(self._maker, 0)
        guard = FileLock(guard_path(self._postgres))
        while not guard.try_exclusive_within(UNDO_POLL_S):  # what it has started
            self._postgres.kill_leftovers()
        guard.close()
        from shutil import rmtree  # as in the server's module

        rmtree(self._home.root, ignore_errors=True)
        self._lock.close()

    def _make(self, pool: str) -> None:
        with suppress(LocalStackError, OSError):
            secrets = load_or_create_secrets(self._home, self._postgres.data, pool)
            with guarded_data(self._postgres) as guard:
                self._postgres.prepare(secrets, guard.descriptor)
