"""The home folder of an embedded stack: its paths and permissions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.local.diagnosis import OTHER_FOLDER_HINT

PRIVATE_FOLDER_MODE = 0o700
PASSABLE_FOLDER_MODE = 0o711
"""As root only: lets Postgres' system user traverse the folders to its data, without listing them."""

PRIVATE_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Home:
    """Paths in a home folder. ``root`` is absolute and without symbolic links, since it identifies server processes."""

    root: Path

    @property
    def start_lock(self) -> Path:
        return self.root / "start.lock"

    @property
    def in_use_lock(self) -> Path:
        return self.root / "in-use.lock"

    @property
    def record(self) -> Path:
        return self.root / "stack.json"

    @property
    def passwords(self) -> Path:
        return self.root / "passwords.json"

    @property
    def credential_key(self) -> Path:
        return self.root / "credential.key"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"


def prepare_home(folder: Path) -> Home:
    """Creates missing folders and checks that we own them.

    Raises:
        LocalStackError: The home belongs to another user.
        OSError: A folder cannot be created.
    """
    home = Home(folder.resolve())
    mode = PASSABLE_FOLDER_MODE if os.geteuid() == 0 else PRIVATE_FOLDER_MODE
    make_folder(home.root, mode)
    owner = home.root.stat().st_uid
    if owner != os.geteuid():
        # With files of two owners, neither user could start the stack again.
        raise LocalStackError(
            f"the home {home.root} belongs to user {owner}, but this process runs as user {os.geteuid()}",
            hint=f"run as that user, or {OTHER_FOLDER_HINT}",
        )
    make_folder(home.nats, PRIVATE_FOLDER_MODE)
    make_folder(home.postgres, mode)
    return home


def make_folder(path: Path, mode: int) -> None:
    """Creates ``path`` with exactly ``mode``. An existing folder keeps its mode."""
    if path.is_dir():
        return
    path.mkdir(parents=True)
    path.chmod(mode)


def write_private(path: Path, text: str) -> None:
    """Replaces ``path`` atomically, readable by its owner only, and synced to disk."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Syncs renames in ``path`` to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
