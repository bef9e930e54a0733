"""Confines a child process before it runs code of a playbook (docs/explanation/worker.md *Isolation*).

Parts that a platform lacks are left out; :mod:`measures` reports which ones hold here.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.landlock import READ, WRITE, WRITE_UNLISTED, Grant, landlock_version, restrict_self
from noetl_stream.tools.children.linux import die_with_parent, drop_capabilities, hide_process, refuse_new_privileges
from noetl_stream.tools.children.namespaces import (
    IPC,
    MOUNTS,
    NETWORK,
    PROCESSES,
    enter,
    enter_user_namespace,
    fork_into,
    start_loopback,
)
from noetl_stream.tools.children.own_limits import limit, yield_to_others
from noetl_stream.tools.children.seccomp import filters_calls, refuse_calls, uncounted_memory
from noetl_stream.tools.children.view import IN_MEMORY, SHARED_MEMORY, Stage, StagePlace, prepare_stage, step_onto

CHILD_USERS_FROM: Final = 60_706
CHILD_USERS: Final = 478
"""User ids for children: no distribution assigns them, and a container's user namespace has them too."""

_SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/proc", "/sys")
_SYSTEM_FILES: Final = (
    *("alternatives", "ca-certificates", "crypto-policies", "fonts", "group", "gai.conf", "host.conf", "hosts"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias", "magic", "mime.types", "nsswitch.conf"),
    *("os-release", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "terminfo", "timezone"),
)
"""The readable files in ``/etc``, whose other files may be for this user alone."""
_ZEROS: Final = "/dev/zero"
_DEVICES: Final = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_MOST_MAPPINGS: Final = "/proc/sys/vm/max_map_count"
_DEFAULT_MOST_MAPPINGS: Final = 65_530


class ChildHome(NamedTuple):
    """The folder of one child, its ``HOME``, ``TMPDIR`` and working folder, and its owner.

    Attributes:
        user: The child's own user id; ``None`` if it is the worker's.
        number: The user id that a child with the worker's user sees in its user namespace.
    """

    path: str
    user: int | None
    number: int


class Apart(NamedTuple):
    """The means to separate children from the system: files, processes and memory of their own.

    Attributes:
        stage: The files that they see.
        has_users: Whether they can have users of their own.
    """

    stage: Stage
    has_users: bool


def home_of(path: str, slot: int, settings: ChildSettings, *, has_user: bool = True) -> ChildHome:
    """Returns the folder of the child in ``slot``, with a user of its own if available and ``has_user``."""
    user = os.geteuid()
    number = user if user else CHILD_USERS_FROM + slot % CHILD_USERS
    return ChildHome(path, user_of(slot, settings) if has_user else None, number)


def user_of(slot: int, settings: ChildSettings) -> int | None:
    """Returns the user id of the child in ``slot``; ``None`` if it is the worker's."""
    if settings.user == "worker" or os.geteuid() != 0:
        return None
    return CHILD_USERS_FROM + slot % CHILD_USERS


def make_home(home: ChildHome) -> None:
    """Makes the folder of a child, which no other user can read."""
    os.mkdir(home.path, 0o700)  # noqa: PTH102
    if home.user is not None:
        os.chown(home.path, home.user, home.user)


def stage_of(homes: str) -> str:
    """Returns the mount point of a zygote's stage: not within a folder that anybody empties."""
    return f"{homes}.stage"


def go_apart(settings: ChildSettings, homes: str) -> Apart:
    """Prepares this process, which has one thread, to start separated children; their folders are in ``homes``.

    Raises:
        OSError: The kernel refuses it.
    """
    has_users = _enter_mount_namespace()
    folder = stage_of(homes)
    os.mkdir(folder, 0o700)  # noqa: PTH102
    return Apart(prepare_stage(folder, homes, _places(settings)), has_users)


def _enter_mount_namespace() -> bool:
    """Returns whether this process can still give its children other users."""
    if os.geteuid() == 0:
        try:
            enter(MOUNTS)
        except OSError:
            pass
        else:
            return True
    processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        enter_user_namespace(os.geteuid(), processes)
    finally:
        os.close(processes)
    enter(MOUNTS)
    return False


def fork_child(settings: ChildSettings, apart: Apart | None) -> int:
    """Forks this process for a child.

    Raises:
        OSError: The kernel refuses it.
    """
    if apart is None:
        return os.fork()
    return fork_into(PROCESSES | MOUNTS | IPC | (0 if settings.network == "host" else NETWORK))


def seen_at(home: ChildHome, name: str, source: str, apart: Apart | None) -> str:
    """Returns the path at which a child sees a folder of its own, of which it sees no others."""
    return source if apart is None else os.path.join(os.path.dirname(home.path), name)  # noqa: PTH118, PTH120


def confine(
    settings: ChildSettings, home: ChildHome, apart: Apart | None = None, folders: Mapping[str, str] = {}
) -> bool:
    """Confines this process, which has one thread, for good. With ``apart``, it was made by :func:`fork_child`. It can
    read ``folders``; returns the path at which it sees each.

    Returns whether it sees no processes but its own.

    Raises:
        OSError: The system refuses a part of the confinement that it offers.
    """
    yield_to_others()
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_DATA, settings.memory_bytes)
    limit(resource.RLIMIT_NOFILE, settings.files)
    sees_own_processes = apart is not None and _leave_system(settings, home, apart, folders)
    has_process_limit = home.user is not None or apart is not None
    if has_process_limit:
        limit(resource.RLIMIT_NPROC, settings.processes)
    if home.user is not None:
        _become(home.user)
    hide_process()
    refuse_new_privileges()
    version = landlock_version()
    if version:
        given = (Grant(place, READ) for place in folders.values())
        restrict_self((*_grants(settings, home, apart), *given), version)
    if filters_calls():
        refuse_calls(uncounted_memory(settings.memory_bytes // _most_mappings()) if apart is not None else ())
    drop_capabilities()
    die_with_parent()
    return sees_own_processes


def _leave_system(settings: ChildSettings, home: ChildHome, apart: Apart, folders: Mapping[str, str]) -> bool:
    """Leaves the files and the user of the system. Returns whether the child sees no other processes."""
    processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if settings.network != "host":
            start_loopback()
        sees_own_processes = step_onto(apart.stage, settings.memory_bytes, home.path, folders)
        os.chdir(home.path)
        if home.user is None:
            enter_user_namespace(home.number, processes)
    finally:
        os.close(processes)
    return sees_own_processes


def _most_mappings() -> int:
    """Returns the number of memory mappings that a process may have."""
    try:
        with open(_MOST_MAPPINGS, "rb") as file:  # noqa: PTH123
            return int(file.read())
    except (OSError, ValueError):
        return _DEFAULT_MOST_MAPPINGS


def _become(user: int) -> None:
    """Changes the user for good: root loses its other users, groups and capabilities by this."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def _grants(settings: ChildSettings, home: ChildHome, apart: Apart | None) -> Iterator[Grant]:
    for path in (*_readable_paths(), *settings.readable):
        yield Grant(path, READ)
    for path in (*_DEVICES, _ZEROS, home.path, *settings.paths):
        yield Grant(path, WRITE)
    if apart is None:
        yield Grant(SHARED_MEMORY, WRITE_UNLISTED)  # semaphores of multiprocessing; their names are random
        return
    for path in IN_MEMORY:
        yield Grant(path, WRITE)


def _places(settings: ChildSettings) -> Iterator[StagePlace]:
    for path in (*_readable_paths(), *settings.python_path, *settings.readable):
        yield StagePlace(path, writable=False)
    for path in (*_DEVICES, *settings.paths):
        yield StagePlace(path, writable=True)


def _readable_paths() -> Iterator[str]:
    # The folders of a virtual environment and its base are those of sys.path and of the interpreter.
    yield from {*_SYSTEM_FOLDERS, *import_folders()}
    for name in _SYSTEM_FILES:
        yield f"/etc/{name}"


def import_folders() -> list[str]:
    """Returns the folders of the interpreter and the modules of this process, also of editable installations."""
    finders = [module for name, module in sys.modules.items() if name.startswith("__editable__")]  # of setuptools
    mapped = [place for finder in finders for place in getattr(finder, "MAPPING", {}).values()]
    modules = [f"{place}.py" for place in mapped]  # a place is a package, or a module without its suffix
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry), *mapped, *modules]


def closed_to(user: int, stage: Stage | None = None) -> str | None:
    """Returns the first folder of :func:`import_folders` that this user cannot reach; ``None`` if it can run Python.

    With ``stage``, the user sees only its contents: the folders around them may then be closed to others.
    """
    child = os.fork() if stage is None else fork_into(MOUNTS)
    if child == 0:
        unreachable = 0
        try:
            if stage is not None:
                step_onto(stage)
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
