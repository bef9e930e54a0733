"""The operator's settings for the child processes of ``python`` and ``shell`` tasks."""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

Isolation = Literal["shared", "execution", "task"]
"""The runs that may share a child of ``python`` and its folder: those of a trust domain, an execution, or none."""
ChildUser = Literal["own", "worker"]

Confinement = Literal["none", "landlock", "full"]
"""The confinement of children. ``landlock``: to named files; ``full``: to files, processes and memory of their own."""
ChildNetwork = Literal["host", "proxy", "none"]

ISOLATIONS: Final[tuple[Isolation, ...]] = ("shared", "execution", "task")
CHILD_USERS: Final[tuple[ChildUser, ...]] = ("own", "worker")
CONFINEMENTS: Final[tuple[Confinement, ...]] = ("none", "landlock", "full")
"""The levels of confinement, the weakest first."""
CHILD_NETWORKS: Final[tuple[ChildNetwork, ...]] = ("host", "proxy", "none")

PYTHON_CHILDREN_VARIABLE: Final = "NOETL_PYTHON_CHILDREN"
PYTHON_PATH_VARIABLE: Final = "NOETL_PYTHON_PATH"
DEFAULT_PYTHON_CHILDREN: Final = max(4, os.cpu_count() or 1)


class ChildSettings(msgspec.Struct, frozen=True):
    """The settings of child processes: their isolation and their bounds.

    Attributes:
        user: ``own``: a worker that runs as root gives each child a user of its own. ``worker``: the worker's.
        paths: Absolute paths of folders and files that children may read and write in addition to what programs need.
        memory_bytes: Private memory of one process.
        cpu_s: CPU time of one run.
        processes: Processes and threads of one child, where it has a user of its own.
        files: Open files of one process.
        python_children: Processes of `python` tasks at the same time; further tasks wait.
        confinement: The least confinement of children with which a worker starts.
        network: ``host``: children use the machine's network. ``none``: only a loopback interface of their own.
            ``proxy``: that, and a proxy there which lets them reach what tasks may connect to.
        python_path: Absolute paths of folders whose modules `python` tasks can import in addition to installed ones.
        readable: Absolute paths of folders that children may read in addition: the interpreters of environments.
    """

    isolation: Isolation = "shared"
    user: ChildUser = "own"
    paths: tuple[str, ...] = ()
    memory_bytes: int = 4 * 1024**3
    cpu_s: int = 3600
    processes: int = 256
    files: int = 1024
    python_children: int = DEFAULT_PYTHON_CHILDREN
    confinement: Confinement = "none"
    network: ChildNetwork = "host"
    python_path: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
