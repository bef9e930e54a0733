"""Homes of embedded servers, without the seconds that the first start of a Postgres takes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli_program import processes_of

SHARED_FILES = Path(tempfile.gettempdir()).resolve() / f"noetl-files-{os.getpid()}"
"""The folder that tasks of the shared stack may use. Everybody may write to it: tasks may have users of their own."""


@contextmanager
def folder_for_home(name: str, parent: str | None = None) -> Iterator[Path]:
    """A folder for a home, in ``parent`` or the usual place; at the end it is removed, and whatever a failed test left
    running there is killed.

    Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"noetl-{name}-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        for process in processes_of(folder):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shared_files() -> Iterator[Path]:
    """Makes :data:`SHARED_FILES`, and removes it."""
    SHARED_FILES.mkdir()
    SHARED_FILES.chmod(0o777)
    try:
        yield SHARED_FILES
    finally:
        shutil.rmtree(SHARED_FILES, ignore_errors=True)


def copy_home(used: Path, copy: Path) -> Path:
    """Copies a home whose servers are stopped."""
    subprocess.run(["cp", "-a", str(used), str(copy)], check=True)
    (copy / "stack.json").unlink()
    return copy
