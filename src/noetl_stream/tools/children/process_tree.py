"""Who started whom."""

from __future__ import annotations

import contextlib
import os
from typing import Final

_KERNEL_LISTS_CHILDREN: Final = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110  # imported by children


def children_of(process_id: int) -> list[int]:
    """The children of a process, of all its threads; none if it has ended."""
    if not _KERNEL_LISTS_CHILDREN:
        return _listed_by_psutil(process_id)
    found: list[int] = []
    folder = f"/proc/{process_id}/task"
    with contextlib.suppress(OSError):
        for thread in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError), open(f"{folder}/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def _listed_by_psutil(process_id: int) -> list[int]:
    import psutil  # large: most children never need it

    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(process_id).children()]
    return []
