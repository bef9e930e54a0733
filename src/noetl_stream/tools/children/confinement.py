"""Confines a child process before it runs code of a playbook (docs/explanation/worker.md *Isolation*).

Each part that a platform lacks is left out; :mod:`measures` says which ones hold here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.landlock import (
    READ,
    WRITE,
    WRITE_UNLISTED,
    Grant,
    landlock_version,
    restrict_self,
)
from noetl_stream.tools.children.linux import die_with_parent, drop_capabilities, hide_process, refuse_new_privileges
from noetl_stream.tools.children.seccomp import filters_calls, refuse_calls

CHILD_USERS_FROM: Final = 60_706
CHILD_USERS: Final = 478
"""User ids for children: no distribution assigns them, and a container's user namespace has them too."""

_SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/proc", "/sys")
_SYSTEM_FILES: Final = (
    *("alternatives", "ca-certificates", "crypto-policies", "fonts", "group", "gai.conf", "host.conf", "hosts"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias", "magic", "mime.types", "nsswitch.conf"),
    *("os-release", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "terminfo", "timezone"),
)
"""The readable files in ``/etc``, where other files may be for this user alone."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # semaphores of multiprocessing; their names are random


class ChildHome(NamedTuple):
    """The folder of one child, its ``HOME``, ``TMPDIR`` and working folder, and the user that it belongs to."""

    path: str
    user: int | None


def user_of(slot: int, settings: ChildSettings) -> int | None:
    """Returns the user id of the child in ``slot``; ``None`` if it is the worker's."""
    if settings.user == "worker" or os.geteuid() != 0:
        return None
    return CHILD_USERS_FROM + slot % CHILD_USERS


def make_home(home: ChildHome) -> None:
    """Makes the folder of a child, which no other user can read."""
    os.mkdir(home.path, 0o700)  # noqa: PTH102  # this runs in a freshly forked process
    if home.user is not None:
        os.chown(home.path, home.user, home.user)


def confine(settings: ChildSettings, home: ChildHome) -> None:
    """Confines this process, which has one thread, for good.

    Raises:
        OSError: The system refuses a part of the confinement that it offers.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, settings.memory_bytes)
    _limit(resource.RLIMIT_NOFILE, settings.files)
    if home.user is not None:
        _limit(resource.RLIMIT_NPROC, settings.processes)
        _become(home.user)
    hide_process()
    refuse_new_privileges()
    version = landlock_version()
    if version:
        restrict_self(_grants(settings, home), version)
    if filters_calls():
        refuse_calls()
    drop_capabilities()
    die_with_parent()


def _become(user: int) -> None:
    """Changes the user for good: root loses its other users, groups and capabilities by this."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def limit_cpu_time(seconds: int) -> None:
    """Limits the further CPU time of this process: it ends with ``SIGXCPU``, and is killed a second later."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end_s = int(used.ru_utime + used.ru_stime) + 1 + seconds
    _limit(resource.RLIMIT_CPU, end_s, end_s + 1)


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    given = resource.getrlimit(kind)[1]
    wanted = (soft, soft if hard is None else hard)
    if given != resource.RLIM_INFINITY:
        wanted = (min(wanted[0], given), min(wanted[1], given))
    with contextlib.suppress(ValueError):  # macOS refuses some values
        resource.setrlimit(kind, wanted)


def _grants(settings: ChildSettings, home: ChildHome) -> Iterator[Grant]:
    # The folders of a virtual environment and of its base are those that sys.path and the interpreter are in.
    for path in {*_SYSTEM_FOLDERS, *import_folders()}:
        yield Grant(path, READ)
    for name in _SYSTEM_FILES:
        yield Grant(f"/etc/{name}", READ)
    for path in (*_DEVICES, home.path, *settings.paths):
        yield Grant(path, WRITE)
    yield Grant(_SHARED_MEMORY, WRITE_UNLISTED)


def import_folders() -> list[str]:
    """Returns the folders of the interpreter and the modules of this process, also of editable installations."""
    finders = [module for name, module in sys.modules.items() if name.startswith("__editable__")]  # of setuptools
    mapped = [place for finder in finders for place in getattr(finder, "MAPPING", {}).values()]
    modules = [f"{place}.py" for place in mapped]  # a place is a package, or a module without its ending
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry), *mapped, *modules]


def closed_to(user: int) -> str | None:
    """Returns the first folder of :func:`import_folders` that this user cannot reach; ``None`` if it can run Python."""
    child = os.fork()
    if child == 0:
        unreachable = 0
        try:
            _become(user)
            folders = import_folders()
            unreachable = next((n for n, path in enumerate(folders, 1) if not _readable(path)), 0)
        finally:
            os._exit(min(unreachable, 255))
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return import_folders()[number - 1] if number > 0 else None


def _readable(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return True  # nobody needs it
    except OSError:
        return False
    return os.access(path, os.R_OK)
