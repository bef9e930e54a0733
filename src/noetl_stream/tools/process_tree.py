"""Ending processes with all they started, whatever session or parent these went to (LANGUAGE §12).

Elsewhere than on Linux, what left the group of a process lives on once its own parent has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from typing import Final

import psutil

_SET_CHILD_SUBREAPER: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl(2)``: orphans among what a process started become its own children."""
# Loaded here: a process that has just forked should do as little as it can. PyDLL keeps the interpreter's lock.
_PRCTL: Final = ctypes.PyDLL(None).prctl if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Makes this process the parent of what its descendants leave behind, also after it became another program.

    For ``preexec_fn``: without it :func:`kill_trees` would not find a process whose parent has ended.
    """
    if _PRCTL is not None:
        _PRCTL(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class TreeKiller:
    """Kills trees that are to end at the same moment together: the process table is looked through for all of them."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._killing: asyncio.Task[None] | None = None

    async def kill(self, process_id: int) -> None:
        """See :func:`kill_trees`. It is done even if the wait for it is cancelled."""
        self._asked.add(process_id)
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill_asked())
        await asyncio.shield(self._killing)

    async def _kill_asked(self) -> None:
        asked, self._asked, self._killing = self._asked, set(), None
        kill_trees(asked)


def kill_trees(process_ids: Collection[int]) -> None:
    """Kills children of this process that it has not waited for yet, their groups and all their descendants."""
    _kill_descendants(set(process_ids))
    for process_id in process_ids:
        kill_group(process_id)


def kill_group(process_id: int) -> None:
    """Kills what is left of the process group that a process led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def _kill_descendants(roots: set[int]) -> None:
    # Stopped first, and killed when no more are found: what stands still starts nothing, and its orphans stay here.
    # A look misses a process whose parent ends during it. The next one finds it, so the last two must find nothing.
    stopped: set[int] = set()
    found, looks_in_vain = roots, 0
    while looks_in_vain < 2:
        for process_id in found:
            _signal(process_id, signal.SIGSTOP)
        stopped |= found
        found = _descendants(roots) - stopped
        looks_in_vain = 0 if found else looks_in_vain + 1
    for process_id in stopped - roots:
        _signal(process_id, signal.SIGKILL)


def _descendants(roots: set[int]) -> set[int]:
    """Of children of this process: one look through the process table, however many they are."""
    children: dict[int, list[int]] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            children.setdefault(process.ppid(), []).append(process.pid)
    found: set[int] = set()
    open_ids = list(roots)
    while open_ids:
        below = children.get(open_ids.pop(), [])
        found.update(below)
        open_ids += below
    return found


def _signal(process_id: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process_id, number)
