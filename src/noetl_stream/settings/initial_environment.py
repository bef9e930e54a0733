"""Erases variables from the memory that a process was started with, which ``/proc/<pid>/environ`` shows for ever."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

ENVIRONMENT_START: Final = 47
"""Where ``env_start`` is in ``/proc/self/stat``, behind the program's name; ``env_end`` follows (proc_pid_stat(5))."""

FILLER: Final = ord("*")
"""Not NUL: a second one in a row ends the list for programs that read it."""


def erase_variables(names: Collection[str]) -> None:
    """Overwrites the values. The variables must have been unset, so that nothing uses that memory any more.

    Does nothing where the system has no ``/proc``.
    """
    import ctypes  # only roles erase variables

    try:
        numbers = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = (int(number) for number in numbers[ENVIRONMENT_START : ENVIRONMENT_START + 2])
    except (OSError, ValueError):
        return
    if start == 0:
        return
    wanted = {name.encode() for name in names}
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in wanted:
            ctypes.memset(at + len(name) + 1, FILLER, len(value))
        at += len(entry) + 1
