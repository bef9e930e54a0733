"""The home folder of an embedded stack: its paths, permissions and file locks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local.startup_errors import OTHER_FOLDER_HINT
from noetl_stream.settings.sources.variables import parse_settings

PRIVATE_FOLDER_MODE = 0o700
PASSABLE_FOLDER_MODE = 0o711
"""The mode of folders above Postgres' data, for root: its system user can traverse but not list them."""

PRIVATE_FILE_MODE = 0o600

WRITABLE_BY_OTHERS = 0o022
OPEN_TO_OTHERS = 0o077

LOCK_POLL_S = 0.01
START_WAIT_S = 180.0
"""The wait for the start lock: longer than any start or stop may take."""


class Home:
    """Paths in a home folder. ``root`` is absolute and without symbolic links, since it identifies server processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start_lock = root / "start.lock"
        self.in_use_lock = root / "in-use.lock"
        self.record = root / "stack.json"
        self.passwords = root / "passwords.json"
        self.nkeys = root / "nkeys.json"
        self.services = root / "pg_service.conf"
        self.prepared = root / "prepared"
        self.checked = root / "checked.json"
        self.credential_key = root / "credential.key"
        self.server_key = root / "server.key"
        self.access_key = root / "access.key"
        self.backup_key = root / "backup.key"
        self.archive_key = root / "archive.key"
        self.nats = root / "nats"
        self.postgres = root / "postgres"


def prepare_home(folder: Path) -> Home:
    """Creates missing folders of the home and checks that this user owns them, and that nobody else may write there.

    Raises:
        LocalStackError: The home belongs to another user, or others may write in it.
        OSError: A folder cannot be created.
    """
    home = Home(folder.resolve())
    mode = PASSABLE_FOLDER_MODE if os.geteuid() == 0 else PRIVATE_FOLDER_MODE
    make_folder(home.root, mode)
    owner = home.root.stat().st_uid
    if owner != os.geteuid():
        # With files of two owners, neither user could start the stack again.
        message = f"the home {home.root} belongs to user {owner}, but this process runs as user {os.geteuid()}"
        raise LocalStackError(message, hint=f"run as that user, or {OTHER_FOLDER_HINT}")
    make_folder(home.nats, PRIVATE_FOLDER_MODE)
    make_folder(home.postgres, mode)
    for private in (home.root, home.nats, home.postgres):
        if private.stat().st_mode & WRITABLE_BY_OTHERS:
            message = f"other users may write in {private}, which holds keys and data"
            raise LocalStackError(message, hint=f"run: chmod go-w {private}")
    return home


def make_folder(path: Path, mode: int) -> None:
    """Creates ``path`` with exactly ``mode``. An existing folder keeps its mode."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:  # perhaps just now, by another process
        if not path.is_dir():
            raise
    else:
        path.chmod(mode)


def write_private(path: Path, text: str) -> None:
    """Replaces the file ``path`` atomically, readable by its owner only, and synced to disk. Safe concurrently."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def read_private(path: Path) -> str:
    """Returns the text of a file written by :func:`write_private`.

    Raises:
        FileNotFoundError: There is no such file.
        LocalStackError: The file belongs to another user, or others may read or write it.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid():
            message = f"{path} belongs to user {status.st_uid}, but this process runs as user {os.geteuid()}"
            raise LocalStackError(message, hint=f"run as that user, or {OTHER_FOLDER_HINT}")
        if status.st_mode & OPEN_TO_OTHERS:
            raise LocalStackError(f"other users may open {path}, which holds secrets", hint=f"run: chmod 600 {path}")
        return file.read()


def read_settings_file(file: Path) -> dict[str, str]:
    """Returns the settings in a settings file.

    Raises:
        FileNotFoundError, NotADirectoryError: There is no such file.
        UsageError: The file cannot be read, or is no list of settings.
        LocalStackError: The file belongs to another user, or others may read or write it.
    """
    try:
        return parse_settings(read_private(file), file)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UsageError(f"cannot read the settings in {file}: {error.strerror}") from None


def sync_folder(path: Path) -> None:
    """Syncs renames in the folder ``path`` to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileLock:
    """An open lock file. Not thread-safe. The kernel releases the lock when its holder ends, however it ends.

    There are three. ``start.lock`` (exclusive) covers every start, stop and probe. ``in-use.lock`` (shared) is held by
    each user of the stack; a user that can make it exclusive is the only one. ``<server>/server.lock`` (exclusive) is
    inherited by the server and its children, so it is free only when all of them have ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)

    def share(self) -> None:
        """Takes the lock as shared, or makes it shared. Waits while another process holds it exclusively."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Takes the lock exclusively, or makes it exclusive, without waiting.

        Returns whether that succeeded. If not, a shared lock held before may be lost: call :meth:`share` again.
        """
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def try_exclusive_within(self, wait_s: float) -> bool:
        """Takes the lock exclusively, retrying for up to ``wait_s`` seconds; returns whether that succeeded."""
        deadline = time.monotonic() + wait_s
        while not self.try_exclusive():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_POLL_S)
        return True

    def is_current(self) -> bool:
        """Returns whether the lock file is still at its path: a new home may be removed while others wait for it."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Releases the lock, unless a child process inherited the open file, which then holds it until it ends."""
        os.close(self.descriptor)


@contextmanager
def exclusive_lock(path: Path, busy: str, wait_s: float = START_WAIT_S) -> Iterator[FileLock]:
    """Holds the lock file ``path`` exclusively during the block.

    Raises:
        LocalStackError: The lock was not released within ``wait_s`` seconds; ``busy`` is the message.
    """
    with closing(FileLock(path)) as lock:
        if not lock.try_exclusive_within(wait_s):
            raise LocalStackError(busy, hint=f"wait for it to finish, or check who holds {path}")
        yield lock
