"""Control groups of Linux (``cgroups(7)``): the total resources of a child's processes, with its files in memory.

A group of version 2 must be delegated to the worker, which then lives in a group of its own beside those of children: a
group that delegates its controllers has no processes itself. Groups of version 1 belong to root.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import cache
from itertools import product
from typing import Final, NamedTuple

from noetl_stream.tools.children.linux import write_at_once

_MOUNTED: Final = "/sys/fs/cgroup"
_OF_WORKER: Final = "noetl-worker"
_CHILD: Final = re.compile(r"noetl-([0-9]+)-[0-9]+")
_FIRST_VERSION: Final = ("memory", "pids")
"""The needed controllers of version 1, each with a tree of its own."""
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The inode of the initial process namespace in Linux (``PROC_PID_INIT_INO``)."""

_TRIAL_BYTES: Final = 2**20
_NEEDED: Final = frozenset({"memory", "pids"})
_USED: Final = _NEEDED | {"cpu", "io"}
"""The equal share of each group in processors and disks, however many processes it has."""
_OF_CHILDREN: Final = "noetl-tasks"
_CHILDREN_SHARES: Final = 1_024
"""The processor share of all children of a machine in version 1: that of one process outside."""
_WORKER_WEIGHT: Final = 10_000
"""The processor share of the worker in version 2: that of a hundred children."""


class Cgroup(NamedTuple):
    """The group of one child: its folder in each tree, the first for memory. Without folders, nothing happens."""

    folders: tuple[str, ...]

    def make(self, memory_bytes: int, processes: int) -> None:
        """Makes the group with these bounds.

        Raises:
            OSError: The kernel refuses it.
        """
        bounds = {
            "memory.max": memory_bytes,
            "memory.swap.max": 0,
            "memory.limit_in_bytes": memory_bytes,
            "memory.memsw.limit_in_bytes": memory_bytes,
            "pids.max": processes,
        }
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            for file, value in bounds.items():
                with contextlib.suppress(FileNotFoundError):  # each version and tree has some of them
                    write_at_once(f"{folder}/{file}", str(value))

    def join(self) -> None:
        """Moves this process into the group, and with it those that it will start.

        Raises:
            OSError: The kernel refuses it.
        """
        for folder in self.folders:
            write_at_once(f"{folder}/cgroup.procs", "0")

    def remove(self) -> bool:
        """Removes the group, which has to be empty. Returns whether nothing of it is left."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        return not any(map(os.path.exists, self.folders))

    def killed_for_memory(self) -> int:
        """Returns the number of its processes that the kernel has killed because its memory was used up."""
        for folder, file in product(self.folders[:1], ("memory.events", "memory.oom_control")):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in _read(f"{folder}/{file}").splitlines())
                return int(counts["oom_kill"])
        return 0


class Cgroups(NamedTuple):
    """The folders in which groups of children can be made, one for each tree, the first for memory; or the error."""

    folders: tuple[str, ...] = ()
    why_not: str = ""

    def of_child(self, starter: int, number: int) -> Cgroup:
        """Returns the group of a child, by the process id of its starter and its number there."""
        return Cgroup(tuple(f"{folder}/noetl-{starter}-{number}" for folder in self.folders))


def memory_words(memory_bytes: int) -> str:
    """Returns the error for a task whose processes were killed because its group has used all its memory."""
    allowed = f"{memory_bytes:,} bytes, with what is in /tmp and /dev/shm"
    return f"its processes used all the memory that the operator allows: {allowed} (NOETL_CHILD_MEMORY_BYTES)"


@cache
def own_cgroups() -> Cgroups:
    """Returns folders in which this process can make groups of children, by trying; with version 2 it moves aside."""
    try:
        lines = _read("/proc/self/cgroup").split()
        paths = {name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")}
        if all(name in paths for name in _FIRST_VERSION):
            places = Cgroups(tuple(f"{_MOUNTED}/{name}{paths[name]}".rstrip("/") for name in _FIRST_VERSION))
            if "cpu" in paths:
                places = Cgroups((*places.folders, processor_folder(f"{_MOUNTED}/cpu{paths['cpu']}".rstrip("/"))))
        else:
            places = Cgroups((delegated_folder(f"{_MOUNTED}{paths['']}".rstrip("/")),))
        trial = places.of_child(os.getpid(), 0)
        trial.make(_TRIAL_BYTES, 1)
        trial.remove()
    except (OSError, KeyError, ValueError) as error:
        return Cgroups(why_not=getattr(error, "strerror", None) or str(error))
    if _sees_all_processes():
        remove_orphans(places)
    return places


def processor_folder(folder: str) -> str:
    """Makes the group of version 1 within which all children share a part of the processors; returns its folder."""
    own = f"{folder}/{_OF_CHILDREN}"
    os.makedirs(own, exist_ok=True)  # noqa: PTH103
    write_at_once(f"{own}/cpu.shares", str(_CHILDREN_SHARES))
    return own


def _sees_all_processes() -> bool:
    """Whether this process can see the makers of all groups: some may be in another process namespace."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE  # noqa: PTH116
    except OSError:
        return False


def remove_orphans(places: Cgroups) -> None:
    """Removes empty groups whose makers were killed before they could."""
    for folder in places.folders:
        for found in filter(None, map(_CHILD.fullmatch, os.listdir(folder))):  # noqa: PTH208
            if not os.path.exists(f"/proc/{found[1]}"):  # noqa: PTH110
                Cgroup((f"{folder}/{found[0]}",)).remove()


def delegated_folder(folder: str) -> str:
    """Prepares the folder of this process's group of version 2 for groups of children beside its own.

    Raises:
        OSError: The group was not delegated to this process alone.
    """
    if os.path.basename(folder) == _OF_WORKER:  # noqa: PTH119  # it has moved before, or was started by one that has
        return os.path.dirname(folder)  # noqa: PTH120
    if not os.path.exists(f"{folder}/cgroup.events"):  # noqa: PTH110
        raise OSError("no control group of its own")
    there = set(_read(f"{folder}/cgroup.controllers").split())
    if not there >= _NEEDED:
        raise OSError("its control group has no controllers of memory and processes")
    own = Cgroup((f"{folder}/{_OF_WORKER}",))
    os.makedirs(own.folders[0], exist_ok=True)  # noqa: PTH103
    try:
        own.join()
        write_at_once(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(there & _USED)))
        if "cpu" in there:
            write_at_once(f"{own.folders[0]}/cpu.weight", str(_WORKER_WEIGHT))
    except OSError:
        with contextlib.suppress(OSError):  # as when other programs are in it, such as a shell
            write_at_once(f"{folder}/cgroup.procs", "0")
        own.remove()
        raise
    return folder


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123
        return file.read()
