"""Landlock of Linux (``landlock(7)``): a process without privileges restricts itself to named files, for good.

A process in a Landlock domain can also no longer trace processes outside it, read their memory and environment, or,
from version 6 on, send them signals.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

from noetl_stream.tools.children.linux import LIBC, system_call

SIGNALS_VERSION: Final = 6
"""The first Landlock version that confines signals and abstract Unix sockets."""

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_RULE_PATH_BENEATH: Final = 1
_SCOPE_ABSTRACT_UNIX_SOCKET: Final = 1
_SCOPE_SIGNAL: Final = 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_FIRST_VERSION: Final = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
WRITE: Final = _FIRST_VERSION | _REFER | _TRUNCATE | _IOCTL_DEVICE
"""All rights to files, reading included."""
WRITE_UNLISTED: Final = WRITE & ~_READ_DIR
"""All rights to files except listing the folder, so that only processes that know a name can use it."""


class Grant(NamedTuple):
    """A path, and the rights to the files beneath it."""

    path: str
    rights: int


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Returns the Landlock version of the kernel; 0 without Landlock."""
    if LIBC is None:
        return 0
    try:
        return system_call(_CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict_self(grants: Iterable[Grant], version: int) -> None:
    """Limits this thread and its future children to ``grants``. A path that does not exist grants nothing.

    :func:`~.linux.refuse_new_privileges` must be called before.

    Raises:
        OSError: The kernel refuses it.
    """
    handled = _handled_rights(version)
    scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if version >= SIGNALS_VERSION else 0
    _restrict(_Ruleset(handled, 0, scoped), grants)


def stay_apart(version: int) -> None:
    """Forbids this thread and its future children to signal other processes, from version 6 on."""
    if version >= SIGNALS_VERSION:
        _restrict(_Ruleset(0, 0, _SCOPE_SIGNAL), ())


def _restrict(attributes: _Ruleset, grants: Iterable[Grant]) -> None:
    ruleset = system_call(_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        for grant in grants:
            _grant(ruleset, grant, attributes.files)
        system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _handled_rights(version: int) -> int:
    handled = _FIRST_VERSION
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        handled |= right if version >= since else 0
    return handled


def _grant(ruleset: int, grant: Grant, handled: int) -> None:
    try:
        parent = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = grant.rights & handled
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, parent)
        system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)
