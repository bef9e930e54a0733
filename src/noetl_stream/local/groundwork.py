"""The data folder of a new home's Postgres, made while ``run`` still checks its playbook."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Final, Self

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import FileLock, Home, prepare_home
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.secrets import load_or_create_secrets
from noetl_stream.local.server import guarded

UNDO_POLL_S: Final = 0.02


class Groundwork:
    """Holds the start lock of a home that was not there before, until it is kept or undone."""

    def __init__(self, home: Home, lock: FileLock, pool: str) -> None:
        self._home = home
        self._lock = lock
        self._postgres = PostgresServer(home)
        self._making = Thread(target=self._make, args=(pool,), name="groundwork")
        self._making.start()

    @classmethod
    def begin(cls, folder: Path, pool: str) -> Self | None:
        """``None`` if there is a home, or somebody else makes it.

        Raises:
            LocalStackError, OSError: It cannot be made.
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
        """Waits until it is made. Whoever joins the stack repeats what failed, and reports why."""
        self._making.join()
        self._lock.close()

    def undo(self) -> None:
        """Removes the home."""
        while self._making.is_alive():
            self._postgres.kill_leftovers()
            self._making.join(UNDO_POLL_S)
        from shutil import rmtree  # as in the server's module

        rmtree(self._home.root, ignore_errors=True)
        self._lock.close()

    def _make(self, pool: str) -> None:
        with suppress(LocalStackError, OSError):
            secrets = load_or_create_secrets(self._home, self._postgres.data, pool)
            with guarded(self._postgres) as guard:
                self._postgres.prepare(secrets, guard.descriptor)
