"""The confinement of child processes on this machine, for operators."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.confinement import CHILD_USERS, CHILD_USERS_FROM, closed_to, user_of
from noetl_stream.tools.children.landlock import SIGNALS_VERSION, landlock_version
from noetl_stream.tools.children.seccomp import filters_calls

log = logging.getLogger(__name__)

_EACH: Final = "one for each run, or for those that share it (python_shared)"
_REUSE: Final = {
    "shared": f"{_EACH}; user and folder are shared by runs of one playbook and principal",
    "execution": f"{_EACH}; user and folder are shared by runs of one execution",
    "task": "one for each run, with a user and folder of its own",
}


class Measure(NamedTuple):
    """A part of the confinement. ``note``: its extent, or why it does not hold on this machine."""

    name: str
    holds: bool
    note: str


def measures(settings: ChildSettings) -> list[Measure]:
    """Returns the parts of the confinement for children of a worker that runs as this user on this system."""
    version = landlock_version()
    is_linux = sys.platform == "linux"
    landlock = f"Landlock {version}" if version else "the kernel offers no Landlock" if is_linux else "only Linux"
    needs_signals = f"Landlock {SIGNALS_VERSION} is needed" if is_linux else "only Linux"
    user = _own_user(settings)
    filters = filters_calls()
    paths = ":".join(settings.paths) or "none besides its own folder"
    limits = (
        f"memory {settings.memory_bytes:,} bytes, CPU {settings.cpu_s:,} s, {settings.files:,} files, no core dumps"
    )
    return [
        Measure("processes", True, _REUSE[settings.isolation]),
        Measure("environment", True, "PATH, LANG, HOME, TMPDIR; no descriptors of the worker"),
        user,
        Measure("files", version > 0, f"{landlock}; may write: {paths}" if version else landlock),
        Measure("memory of others", is_linux, "the worker's /proc is closed" if is_linux else "only Linux"),
        Measure(
            "signals",
            user.holds or version >= SIGNALS_VERSION,
            landlock if version >= SIGNALS_VERSION else "by its user" if user.holds else needs_signals,
        ),
        Measure("limits of others", filters, "a filter of system calls" if filters else "no filter of system calls"),
        Measure("privileges", is_linux, "no capabilities, and no new ones" if is_linux else "only Linux"),
        Measure("limits", True, limits),
        Measure(
            "limit of processes", user.holds, f"{settings.processes:,}" if user.holds else "needs a user of its own"
        ),
    ]


def log_isolation(settings: ChildSettings) -> None:
    """Logs the parts of the confinement that do not hold here, in one line."""
    missing = "; ".join(f"{one.name}: {one.note}" for one in measures(settings) if not one.holds)
    if missing:
        log.warning("child processes of python and shell tasks are not isolated here by %s", missing)


def _own_user(settings: ChildSettings) -> Measure:
    name = "user"
    user = user_of(0, settings)
    if settings.user == "worker":
        return Measure(name, False, "the worker's (NOETL_CHILD_USER=worker)")
    if user is None:
        return Measure(name, False, "the worker's, since it does not run as root")
    closed = closed_to(user)
    if closed is not None:
        return Measure(name, False, f"the worker's for python, since only root can read {closed}; shell has its own")
    return Measure(name, True, f"one of {CHILD_USERS_FROM} to {CHILD_USERS_FROM + CHILD_USERS - 1} for each child")
