"""The confinement of child processes on this machine, for operators."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from noetl_stream.errors import UsageError, page
from noetl_stream.settings.children import ChildSettings, Confinement
from noetl_stream.tools.cgroups import own_cgroups
from noetl_stream.tools.children.confinement import CHILD_USERS, CHILD_USERS_FROM, closed_to, user_of
from noetl_stream.tools.children.landlock import SIGNALS_VERSION, landlock_version
from noetl_stream.tools.children.levels import Separation, confinement_level, least_level, reaches, try_separation
from noetl_stream.tools.children.seccomp import filters_calls

log = logging.getLogger(__name__)

_EACH: Final = "one for each run, or for those that share it (python_shared)"
_REUSE: Final = {
    "shared": f"{_EACH}; user and folder are shared by runs of one playbook and principal",
    "execution": f"{_EACH}; user and folder are shared by runs of one execution",
    "task": "one for each run, with a user and folder of its own",
}


class Measure(NamedTuple):
    """A part of the confinement. ``note`` is its extent, or the reason why it does not hold on this machine."""

    name: str
    holds: bool
    note: str


class Confined(NamedTuple):
    """The level of children's confinement on this machine, with its measures."""

    level: Confinement
    measures: list[Measure]


@cache
def confinement_of(settings: ChildSettings) -> Confined:
    """Returns the confinement of children of a worker that runs as this user on this system, found by trying."""
    homes = tempfile.mkdtemp(prefix="noetl-children-")
    try:
        separation = try_separation(settings, homes)
    finally:
        os.rmdir(homes)  # noqa: PTH106
    level = confinement_level(separation)
    return Confined(level, [_level_measure(level, separation), *_measures(settings, separation)])


def require_confinement(settings: ChildSettings) -> None:
    """Logs the level of confinement, and the parts that do not hold here.

    Raises:
        UsageError: The level is below the least that the operator accepts.
    """
    level, measures = confinement_of(settings)
    missing = "; ".join(f"{one.name}: {one.note}" for one in measures if not one.holds)
    if not reaches(level, least_level(settings)):
        ordered = f"NOETL_CHILD_NETWORK={settings.network}"
        if settings.network == "host":
            ordered = f"NOETL_CHILD_CONFINEMENT={settings.confinement}"
        message = f"{ordered} needs level {least_level(settings)}, but tasks can be confined to level {level} here"
        raise UsageError(f"{message}: {missing}", hint=page("explanation/worker"))
    log.log(
        logging.INFO if level == "full" else logging.WARNING,
        "python and shell tasks are confined to level %s%s",
        level,
        f"; what does not hold here: {missing}" if missing else "",
    )


def _level_measure(level: Confinement, separation: Separation) -> Measure:
    why_not = f"; full is out of reach: {separation.why_not}" if separation.why_not else ""
    return Measure("level", level == "full", f"{level}{why_not}")


def _measures(settings: ChildSettings, separation: Separation) -> Iterator[Measure]:
    version, is_linux, filters = landlock_version(), sys.platform == "linux", filters_calls()
    landlock = f"Landlock {version}" if version else "the kernel offers no Landlock" if is_linux else "only Linux"
    needs_signals = f"Landlock {SIGNALS_VERSION} is needed" if is_linux else "only Linux"
    user = _own_user(settings, separation)
    apart = separation.holds
    files = "a root of its own" if apart else landlock
    paths = ":".join(settings.paths) or "none but its own folder"
    signals = version >= SIGNALS_VERSION
    limits = (
        f"memory {settings.memory_bytes:,} bytes, CPU {settings.cpu_s:,} s, {settings.files:,} files, no core dumps"
    )
    yield Measure("processes", True, _REUSE[settings.isolation])
    by_proxy = ", HTTP_PROXY and its kin" if settings.network == "proxy" else ""
    yield Measure("environment", True, f"PATH, LANG, HOME, TMPDIR{by_proxy}; no descriptors of the worker")
    yield user
    yield Measure("files", apart or version > 0, f"{files}; may write: {paths}" if apart or version else landlock)
    yield Measure("memory of others", is_linux, "the worker's /proc is closed" if is_linux else "only Linux")
    yield _or_missing("names of others", separation.hides_processes, "a /proc of its own", "/proc shows all processes")
    yield Measure(
        "signals",
        apart or user.holds or signals,
        "a namespace of its own" if apart else landlock if signals else "by its user" if user.holds else needs_signals,
    )
    yield Measure("local sockets", signals, f"{landlock}, abstract ones too" if signals else needs_signals)
    yield _or_missing("calls", filters, "a filter of system calls", "no filter of system calls")
    yield Measure("privileges", is_linux, "no capabilities, and no new ones" if is_linux else "only Linux")
    yield Measure("limits", True, limits)
    yield _or_missing(
        "shared memory", apart, f"{settings.memory_bytes:,} bytes, in /tmp and /dev/shm of its own", "without a limit"
    )
    groups = own_cgroups()
    together = f"{settings.memory_bytes:,} bytes of all its processes, with /tmp and /dev/shm, in a control group"
    has_group = bool(groups.folders)
    yield _or_missing("memory together", has_group, together, f"each process alone: {groups.why_not}")
    has_user = user_of(0, settings) is not None and not separation.closed
    has_limit = has_group or has_user or (apart and os.geteuid() != 0)  # root has no limit
    yield _or_missing("limit of processes", has_limit, f"{settings.processes:,}", "needs a user of its own")
    yield _network(settings, apart)


def _or_missing(name: str, holds: bool, note: str, otherwise: str) -> Measure:
    return Measure(name, holds, note if holds else otherwise)


def _network(settings: ChildSettings, apart: bool) -> Measure:
    if settings.network == "host":
        return Measure("network", True, "the machine's (NOETL_CHILD_NETWORK=host)")
    rest = "a proxy that checks addresses" if settings.network == "proxy" else "none"
    held = f"{rest} (NOETL_CHILD_NETWORK={settings.network})"
    return _or_missing("network", apart, held, "the machine's: it cannot be taken away")


def _own_user(settings: ChildSettings, separation: Separation) -> Measure:
    name, apart = "user", separation.holds
    user = user_of(0, settings)
    if user is not None and (closed := separation.closed if apart else closed_to(user)):
        why = f"the worker's for python, since only root can read {closed}; shell has its own"
    elif user is not None:
        return Measure(name, True, f"one of {CHILD_USERS_FROM} to {CHILD_USERS_FROM + CHILD_USERS - 1} for each child")
    elif settings.user == "worker":
        why = "the worker's (NOETL_CHILD_USER=worker)"
    else:
        why = "the worker's, since it does not run as root"
    return Measure(name, apart, f"{why}; in a namespace of its own" if apart else why)
