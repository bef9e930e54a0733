"""The memory that a process starts with, which ``/proc/<pid>`` shows for ever. On other systems nothing is done."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

ARGUMENTS_START: Final = 45
"""The index of ``arg_start`` in ``/proc/self/stat`` after the program's name; ``arg_end`` is next (proc_pid_stat(5)).
"""

ENVIRONMENT_START: Final = 47
"""The index of ``env_start`` in ``/proc/self/stat``; ``env_end`` follows."""

FILLER: Final = ord("*")
"""The byte that overwrites values. Not NUL: a second NUL in a row ends the list for programs that read it."""


def erase_variables(names: Collection[str]) -> None:
    """Overwrites the values of variables. Unset the variables first, so that nothing uses that memory any more."""
    import ctypes  # only roles erase variables

    start, size = _region(ENVIRONMENT_START)
    wanted = {name.encode() for name in names}
    at = start
    for entry in ctypes.string_at(start, size).split(b"\0") if size else ():
        name, equals, value = entry.partition(b"=")
        if equals and name in wanted:
            ctypes.memset(at + len(name) + 1, FILLER, len(value))
        at += len(entry) + 1


def show_arguments(words: Sequence[str]) -> None:
    """Overwrites the command line that ``ps`` shows; cuts it off at the length of the old one."""
    import ctypes

    start, size = _region(ARGUMENTS_START)
    if size:
        shown = os.fsencode("\0".join(words))[: size - 1]
        ctypes.memmove(start, shown.ljust(size, b"\0"), size)


def _region(index: int) -> tuple[int, int]:
    """The start and size of the region at ``index`` of ``/proc/self/stat``; 0 if unknown."""
    try:
        numbers = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = (int(number) for number in numbers[index : index + 2])
    except (OSError, ValueError):
        return 0, 0
    return start, end - start
