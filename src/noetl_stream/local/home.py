"""The home folder: where everything of an embedded stack lies, and who may touch it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.local.diagnosis import OTHER_FOLDER_HINT

PRIVATE_FOLDER_MODE = 0o700
PASSABLE_FOLDER_MODE = 0o711
"""Under root only: Postgres' system user passes through to its data, and can list nothing on the way."""

PRIVATE_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Home:
    """Names in a home folder. ``root`` is absolute, without symbolic links: server processes are known by it."""

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
    """Makes the folders that are not there yet and checks that they are ours.

    Raises:
        LocalStackError: the home belongs to another user of this system.
        OSError: the folder cannot be made.
    """
    home = Home(folder.resolve())
    mode = PASSABLE_FOLDER_MODE if os.geteuid() == 0 else PRIVATE_FOLDER_MODE
    make_folder(home.root, mode)
    owner = home.root.stat().st_uid
    if owner != os.geteuid():
        # Files of two owners side by side would lock either user out at the next start.
        raise LocalStackError(
            f"the home {home.root} belongs to user {owner} and this runs as user {os.geteuid()}",
            hint=f"run as that user, or {OTHER_FOLDER_HINT}",
        )
    make_folder(home.nats, PRIVATE_FOLDER_MODE)
    make_folder(home.postgres, mode)
    return home


def make_folder(path: Path, mode: int) -> None:
    """Makes ``path`` with exactly ``mode``; a folder that is there keeps the mode it has."""
    if path.is_dir():
        return
    path.mkdir(parents=True)
    path.chmod(mode)


def write_private(path: Path, text: str) -> None:
    """Replaces ``path`` as a whole, readable by its owner alone, and on disk when this returns."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes renames in ``path`` survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
