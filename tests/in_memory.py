"""A place in memory for the data of Postgres, where there is room.

Tests make and remove databases by the hundred, of 300 files each. On a disk that takes five times as long: ext4 looks
past each inode that was deleted in the last minutes before it gives a new file one.

It is not for tests of isolation: tasks may write to ``/dev/shm``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

IN_MEMORY: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 2 * 2**30
"""What must be free there. A Postgres of tests takes a tenth of it; containers often have 64 MiB."""


def quick_folder() -> str | None:
    """Where folders with databases are made; None for the usual place."""
    try:
        about = os.statvfs(IN_MEMORY)
    except OSError:
        return None
    return str(IN_MEMORY) if about.f_bavail * about.f_frsize >= NEEDED_BYTES else None
