"""The level to which children can be confined on this machine, found by trying."""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

from noetl_stream.settings.children import CONFINEMENTS, ChildSettings, Confinement
from noetl_stream.tools.children.confinement import (
    Apart,
    ChildHome,
    closed_to,
    confine,
    fork_child,
    go_apart,
    home_of,
    make_home,
    stage_of,
    user_of,
)
from noetl_stream.tools.children.landlock import landlock_version
from noetl_stream.tools.children.seccomp import filters_calls

_APART, _APART_SEEING_OTHERS, _FAILED = 0, 1, 2
_WHY_BYTES: Final = 4096


class Separation(NamedTuple):
    """Whether children can be apart from the system, with files, processes and memory of their own.

    Attributes:
        holds: Whether they can.
        hides_processes: Whether the processes of others are then invisible in ``/proc``.
        why_not: The reason why they cannot be separated.
        closed: The folder of Python that children with users of their own could not reach.
    """

    holds: bool
    hides_processes: bool
    why_not: str = ""
    closed: str = ""


def confinement_level(separation: Separation) -> Confinement:
    """Returns the level of confinement of children on this machine."""
    if separation.holds and filters_calls():
        return "full"
    return "landlock" if landlock_version() else "none"


def least_level(settings: ChildSettings) -> Confinement:
    """Returns the level below which no child may run."""
    return settings.confinement if settings.network == "host" else "full"


def reaches(level: Confinement, least: Confinement) -> bool:
    """Returns whether ``level`` confines at least as far as ``least``."""
    return CONFINEMENTS.index(level) >= CONFINEMENTS.index(least)


def try_separation(settings: ChildSettings, homes: str) -> Separation:
    """Confines a process in every way in which a child would be, and returns the level reached.

    Args:
        homes: A folder of this process, in which the process has its own.
    """
    reading, writing = os.pipe()
    try:
        trial = os.fork()
        if trial == 0:
            _try_as_zygote(settings, homes, writing)
        os.close(writing)
        said = os.read(reading, _WHY_BYTES).decode(errors="replace")
        exit_code = os.waitstatus_to_exitcode(os.waitpid(trial, 0)[1])
    finally:
        os.close(reading)
        for folder in (stage_of(homes), _home_in(homes)):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106  # the stage was in a namespace that has ended
    if exit_code in (_APART, _APART_SEEING_OTHERS):
        return Separation(True, exit_code == _APART, closed=said)
    return Separation(False, False, why_not=said or f"a process of the trial ended with {exit_code}")


def _home_in(homes: str) -> str:
    return f"{homes}/trial"


def _try_as_zygote(settings: ChildSettings, homes: str, errors: int) -> None:
    try:
        apart = go_apart(settings, homes)
        user = user_of(0, settings) if apart.has_users else None
        closed = closed_to(user, apart.stage) if user is not None else None
        child = fork_child(settings, apart)
        if child == 0:
            home = home_of(_home_in(homes), 0, settings, has_user=user is not None and closed is None)
            _try_as_child(settings, home, apart, errors)
        if closed is not None:
            os.write(errors, closed.encode())
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(exit_code if exit_code >= 0 else _FAILED)
    except BaseException as error:
        os.write(errors, str(error).encode()[:_WHY_BYTES])
    finally:
        os._exit(_FAILED)


def _try_as_child(settings: ChildSettings, home: ChildHome, apart: Apart, errors: int) -> None:
    try:
        make_home(home)
        hides_processes = confine(settings, home, apart)
        os._exit(_APART if hides_processes else _APART_SEEING_OTHERS)
    except BaseException as error:
        os.write(errors, str(error).encode()[:_WHY_BYTES])
    finally:
        os._exit(_FAILED)
