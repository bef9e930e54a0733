"""The files that a child sees: a root of its own with the permitted part of the system's files, and nothing else.

A zygote prepares a stage with the common mounts of all children. A child adds its own, and makes the stage its root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from noetl_stream.tools.children.mounts import (
    MEMORY_SOURCE,
    bind,
    change_root,
    has_mounts_beneath,
    keep_mounts_private,
    make_read_only,
    mount_memory,
    mount_processes,
    unmount,
)

TEMPORARY: Final = "/tmp"  # noqa: S108  # a folder in memory of the child's own
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108
FILES: Final = "files"
"""The name of a task's folder of files among the folders that a child can read."""
FILES_VARIABLE: Final = "NOETL_FILES"
"""The environment variable with the path at which a child sees that folder."""
IN_MEMORY: Final = (TEMPORARY, SHARED_MEMORY)
"""The folders that each child has in memory, for itself."""
_PROCESSES: Final = "/proc"
_REPLACED_OFTEN: Final = ("/etc/resolv.conf", "/etc/hosts")
"""Files that each new child gets in their present version: a bound file stays the one that it was."""
_DEVICE_LINKS: Final = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_STAGE_BYTES: Final = 1024**2
_MOST_LINKS: Final = 40
_ZEROS: Final = "/dev/zero"
_MOST_ZEROS: Final = 2**62


class StagePlace(NamedTuple):
    """A path, and whether children may write there."""

    path: str
    writable: bool


class Stage(NamedTuple):
    """A prepared stage.

    Attributes:
        path: The mount point.
        later: The places that each child mounts itself, since its folders in memory would hide them.
    """

    path: str
    later: list[StagePlace]


def prepare_stage(folder: str, homes: str, places: Iterable[StagePlace]) -> Stage:
    """Mounts a stage at ``folder``, in the mount namespace of this process, which is its own.

    Raises:
        OSError: The kernel refuses it.
    """
    keep_mounts_private()
    mount_memory(folder, _STAGE_BYTES, 0o755)
    links: dict[str, str] = {}
    real = sorted({StagePlace(path, place.writable) for place in places for path in _real_path(place.path, links)})
    hidden = (*IN_MEMORY, homes)
    later = [place for place in real if _is_beneath(place.path, hidden)]
    writable = [place for place in real if place.writable and place not in later]
    _make_tree(folder, links, (*hidden, _PROCESSES))
    _show_readable(folder, [place.path for place in real if not place.writable and place not in later])
    for place in writable:
        _make_mount_point(place.path, folder)
    make_read_only(folder)
    for place in writable:
        _show(place, folder)
    return Stage(folder, later)


def _make_tree(folder: str, links: Mapping[str, str], folders: Iterable[str]) -> None:
    for path in folders:
        os.makedirs(folder + path, exist_ok=True)  # noqa: PTH103
    for link, text in {**links, **_DEVICE_LINKS}.items():
        _link(folder + link, text)
    _make_zeros(folder + _ZEROS)


def _show_readable(folder: str, paths: Iterable[str]) -> None:
    shown: list[str] = []
    for path in paths:
        if not _is_beneath(path, (*shown, _PROCESSES)) and _make_mount_point(path, folder):
            bind(path, folder + path, read_only=True)
            shown.append(path)


def _show(place: StagePlace, folder: str) -> None:
    if _make_mount_point(place.path, folder):
        is_device = stat.S_ISCHR(os.stat(place.path).st_mode)  # noqa: PTH116
        bind(place.path, folder + place.path, read_only=not place.writable, devices=is_device)


def step_onto(
    stage: Stage, memory_bytes: int = _STAGE_BYTES, home: str | None = None, folders: Mapping[str, str] = {}
) -> bool:
    """Makes the stage the root of this process, whose mount namespace is its own, with its memory and its folder.
    ``folders`` are those to read, by the path at which each is seen, beside that folder.

    Returns whether its ``/proc`` shows its own processes only: the kernel may refuse that.

    Raises:
        OSError: The kernel refuses another part.
    """
    for path in IN_MEMORY:
        mount_memory(stage.path + path, memory_bytes // len(IN_MEMORY), 0o1777)
    for place in stage.later:
        _show(place, stage.path)
    if home is not None:
        around = stage.path + os.path.dirname(home)  # noqa: PTH120
        os.makedirs(around, exist_ok=True)  # noqa: PTH103
        mount_memory(around, _STAGE_BYTES, 0o755)
        _show(StagePlace(home, writable=True), stage.path)
    for source, target in folders.items():
        os.mkdir(stage.path + target)  # noqa: PTH102
        bind(source, stage.path + target, read_only=True)
    for path in _REPLACED_OFTEN:
        _refresh(path, stage.path)
    sees_own_processes = _show_processes(stage.path + _PROCESSES)
    change_root(stage.path)
    return sees_own_processes


def clear_stage(folder: str) -> bool:
    """Removes a stage and its folder. Returns whether nothing of it is left."""
    while has_mounts_beneath(folder):
        try:
            unmount(folder)
        except OSError:
            return False
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106  # never what is in it: it may be the system
    return not os.path.lexists(folder)


def folders_in_memory() -> list[str]:
    """Returns the ones of :data:`IN_MEMORY` that are this process's own instead of the system's."""
    own: dict[str, bool] = {}
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            words = line.split()
            own[words[4]] = words[words.index("-") + 2] == MEMORY_SOURCE  # the last one hides earlier ones
    return [folder for folder in IN_MEMORY if own.get(folder)]


def _refresh(path: str, folder: str) -> None:
    """Binds a file again if it was replaced since the stage was prepared."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        real = os.path.realpath(path)
        if os.stat(real).st_ino != os.stat(folder + real).st_ino:  # noqa: PTH116
            bind(real, folder + real, read_only=True)


def _show_processes(path: str) -> bool:
    try:
        mount_processes(path)
    except OSError:
        bind(_PROCESSES, path, read_only=True)
        return False
    return True


def _real_path(path: str, links: dict[str, str]) -> Iterator[str]:
    """Yields the path without symbolic links, if it exists. Those on the way are added to ``links``."""
    done, pending, followed = "/", path.split("/"), 0
    while pending:
        place = os.path.normpath(os.path.join(done, pending.pop(0)))  # noqa: PTH118
        try:
            is_link = stat.S_ISLNK(os.lstat(place).st_mode)
        except OSError:
            return
        if not is_link:
            done = place
            continue
        followed += 1
        if followed > _MOST_LINKS:
            return
        links[place] = text = os.readlink(place)  # noqa: PTH115
        pending = text.split("/") + pending
        if text.startswith("/"):
            done = "/"
    yield done


def _make_mount_point(path: str, folder: str) -> bool:
    """Makes a place on the stage to mount ``path`` on. Returns whether there is one."""
    target = folder + path
    if os.path.exists(target):  # noqa: PTH110
        return True
    with contextlib.suppress(OSError):  # the place is on an existing mount already, or missing
        if os.path.isdir(path):  # noqa: PTH112
            os.makedirs(target)  # noqa: PTH103
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return True
    return False


def _link(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with contextlib.suppress(FileExistsError):
        os.symlink(text, path)  # noqa: PTH211


def _make_zeros(path: str) -> None:
    """Makes a file of zeros. Programs could map the device as memory that no limit counts."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444)
    try:
        os.ftruncate(descriptor, _MOST_ZEROS)
    finally:
        os.close(descriptor)


def _is_beneath(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
