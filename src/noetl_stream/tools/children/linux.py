"""System calls of Linux that the standard library does not offer. Elsewhere they do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVILEGES: Final = 38
_CAPABILITY_VERSION: Final = 0x2008_0522
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 1024 * 1024
_HEAPS: Final = 2

# Loaded here, since a freshly forked process should do as little as possible. PyDLL keeps the GIL.
LIBC: Final = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants, even after ``exec``."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def hide_process() -> None:
    """Closes this process's memory, environment and descriptors in ``/proc`` to other processes without privileges.

    It also prevents core dumps, and debuggers and profilers of the same user can no longer attach.
    """
    _prctl(_SET_DUMPABLE, 0)


def show_process() -> None:
    """Undoes :func:`hide_process`."""
    _prctl(_SET_DUMPABLE, 1)


def refuse_new_privileges() -> None:
    """Forbids programs that this process executes to gain privileges, as by setuid bits and file capabilities."""
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)


def die_with_parent() -> None:
    """Makes the kernel kill this process with its parent. To be called after a change of the user, which undoes it."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def drop_capabilities() -> None:
    """Drops root's rights to files and processes of others, for good once new privileges are refused."""
    if LIBC is not None:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        check_result(LIBC.capset(header, (ctypes.c_uint32 * 6)()))


def return_large_buffers() -> None:
    """Configures glibc to return large buffers to the system as soon as they are freed, and to use few heaps.

    By default, glibc stops this after the first free: each thread then has a heap that retains freed memory.
    """
    mallopt = getattr(LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_ARENA_MAX, _HEAPS)


def _prctl(option: int, value: int) -> None:
    if LIBC is not None:
        check_result(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def check_result(result: int) -> None:
    """Raises the ``OSError`` of a failed system call."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def system_call(number: int, *arguments: object) -> int:
    """Makes a system call that the C library does not know, and returns its result."""
    assert LIBC is not None
    words = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    result: int = LIBC.syscall(ctypes.c_long(number), *words)
    check_result(result)
    return result


def write_at_once(path: str, text: str, folder: int | None = None) -> None:
    """Writes a file of the kernel, which takes a text as a whole. ``path`` may be relative to a descriptor."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
