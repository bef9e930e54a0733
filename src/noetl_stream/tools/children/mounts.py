"""Mounts of this process's mount namespace (``mount(2)``, ``mount_setattr(2)``)."""

from __future__ import annotations

import ctypes
import os
import shutil
from typing import Final

from noetl_stream.tools.children.linux import LIBC, check_result, system_call

_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS, _READ_ONLY = 2, 4, 8, 1
_RECURSIVE, _PRIVATE = 16384, 1 << 18
_DETACH, _FOLLOW_NO_LINK = 2, 8
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_HERE: Final = -100
_CLONE_TREE, _EMPTY_PATH, _WHOLE_TREE = 1, 0x1000, 0x8000
_MOVE_FROM_EMPTY_PATH: Final = 4
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NO_SETUID, _ATTRIBUTE_NO_DEVICES = 1, 2, 4


MEMORY_SOURCE: Final = "noetl-task"
"""The source of folders in memory in ``/proc/self/mountinfo``."""


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def keep_mounts_private() -> None:
    """Keeps later mounts within this mount namespace, and those of others out of it."""
    _mount(None, "/", None, _PRIVATE | _RECURSIVE)


def mount_memory(path: str, size: int, mode: int) -> None:
    """Mounts an empty folder in memory of at most ``size`` bytes."""
    _mount(MEMORY_SOURCE, path, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={size},mode={mode:o}")


def mount_processes(path: str) -> None:
    """Mounts a ``/proc`` of this process's namespace, for reading.

    Raises:
        OSError: The kernel refuses it, as where parts of the present one are hidden.
    """
    _mount("proc", path, "proc", _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)


def unmount(path: str) -> None:
    """Unmounts everything at and beneath ``path``.

    Raises:
        OSError: Nothing is mounted there.
    """
    assert LIBC is not None
    check_result(LIBC.umount2(os.fsencode(path), ctypes.c_int(_DETACH | _FOLLOW_NO_LINK)))


def bind(source: str, target: str, *, read_only: bool, devices: bool = False) -> None:
    """Mounts ``source``, with everything mounted in it, at ``target`` too: without setuid bits, and as ordered.

    It is restricted before anything can reach it there.

    Raises:
        OSError: The kernel refuses it, or is older than 5.12.
    """
    tree = system_call(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE_TREE | _WHOLE_TREE | os.O_CLOEXEC)
    try:
        _restrict(tree, b"", _EMPTY_PATH, _attributes(read_only=read_only, devices=devices))
        system_call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _MOVE_FROM_EMPTY_PATH)
    finally:
        os.close(tree)


def make_read_only(path: str) -> None:
    """Makes the mounts at and beneath ``path`` read-only."""
    _restrict(_HERE, os.fsencode(path), 0, _attributes(read_only=True, devices=False))


def _attributes(*, read_only: bool, devices: bool) -> _Attributes:
    wanted = _ATTRIBUTE_NO_SETUID
    wanted |= 0 if devices else _ATTRIBUTE_NO_DEVICES
    wanted |= _ATTRIBUTE_READ_ONLY if read_only else 0
    return _Attributes(wanted, 0, 0, 0)


def _restrict(folder: int, path: bytes, flags: int, attributes: _Attributes) -> None:
    size = ctypes.sizeof(attributes)
    system_call(_SET_ATTRIBUTES, folder, path, flags | _WHOLE_TREE, ctypes.byref(attributes), size)


def change_root(root: str) -> None:
    """Makes a mounted folder the root of this mount namespace; the present one becomes unreachable."""
    os.chdir(root)
    system_call(_PIVOT_ROOT[os.uname().machine], b".", b".")
    unmount(".")
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    assert LIBC is not None
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    check_result(LIBC.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def has_mounts_beneath(path: str) -> bool:
    """Returns whether something is mounted at or beneath ``path`` in this mount namespace, or may be."""
    if LIBC is None:
        return False
    real = os.path.realpath(path).replace(" ", "\\040")
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123
            places = [line.split(" ")[4] for line in mounts]
    except (OSError, IndexError):
        return True
    return any(place == real or place.startswith(f"{real}/") for place in places)


def remove_folder(path: str) -> None:
    """Removes a folder with its contents, but not while something is mounted there, which may be the system's."""
    if not has_mounts_beneath(path):
        shutil.rmtree(path, ignore_errors=True)
