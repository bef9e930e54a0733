"""Temporary files of the gate, in memory where there is room.

Tests make and remove databases by the thousand files. On a disk that is most of their time: ext4 looks past each inode
that was deleted in the last minutes before it gives a new file one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import psutil

IN_MEMORY: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 6 * 2**30
"""What must be free. The gate keeps less than a quarter of it."""

PREFIX: Final = "noetl-"


def use_memory() -> Path | None:
    """From now on this process and those it starts have their temporary files in a folder of its own in memory.

    Returns:
        The folder; None where files stay on the disk: there is no room, or somebody has chosen a folder.
    """
    if "TMPDIR" in os.environ or not _is_roomy():
        return None
    _remove_left()
    folder = IN_MEMORY / f"{PREFIX}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)  # as /tmp: servers run as users of their own
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def _is_roomy() -> bool:
    try:
        about = os.statvfs(IN_MEMORY)
    except OSError:
        return False
    free = min(about.f_bavail * about.f_frsize, psutil.virtual_memory().available)
    return free >= NEEDED_BYTES and not about.f_flag & os.ST_NOEXEC


def _remove_left() -> None:
    """Removes the folders of runs that were killed, or that kept them for whoever looks for what has failed."""
    for folder in IN_MEMORY.glob(f"{PREFIX}[0-9]*"):
        number = folder.name.removeprefix(PREFIX)
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)
