"""Kills processes together with all their descendants, whatever their session or parent (LANGUAGE §12).

This works on Linux. Elsewhere only the process group is killed; processes that left the group survive.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_SET_CHILD_SUBREAPER: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl(2)``: orphaned descendants become children of the process."""
# Loaded here, since a freshly forked process should do as little as possible. PyDLL keeps the GIL.
_PRCTL: Final = ctypes.PyDLL(None).prctl if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants, even after ``exec``.

    Use as ``preexec_fn``; otherwise :func:`kill_trees` does not find processes whose parent has ended.
    """
    if _PRCTL is not None:
        _PRCTL(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class TreeKiller:
    """Kills process trees in batches: one scan of the process table serves all that are requested at the same time."""

    def __init__(self) -> None:
        self._requested: set[int] = set()
        self._killing: asyncio.Task[None] | None = None

    async def kill(self, process_id: int) -> None:
        """Like :func:`kill_trees`. Completes even if the caller is cancelled."""
        self._requested.add(process_id)
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill_requested())
        await asyncio.shield(self._killing)

    async def _kill_requested(self) -> None:
        requested, self._requested, self._killing = self._requested, set(), None
        kill_trees(requested)


def kill_trees(process_ids: Collection[int]) -> None:
    """Kills processes that have not been waited for, their groups and all their descendants."""
    if sys.platform == "linux":
        _kill_descendants(set(process_ids))
    for process_id in process_ids:
        kill_group(process_id)


def kill_group(process_id: int) -> None:
    """Kills what remains of the group of a process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def _kill_descendants(roots: set[int]) -> None:
    # Stop first and kill once no more are found: a stopped process starts nothing, and its orphans stay here.
    stopped: set[int] = set()
    found = roots
    while found:
        for process_id in found:
            _signal(process_id, signal.SIGSTOP)
        stopped |= found
        found = _descendants(roots) - stopped
    for process_id in stopped - roots:
        _signal(process_id, signal.SIGKILL)


def _descendants(roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for folder in _PROCESSES.iterdir():
        if folder.name.isdecimal() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    pending = list(roots)
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending += below
    return found


def _parent(folder: Path) -> int | None:
    """The parent id of a process, from its folder in ``/proc``; ``None`` once it has ended."""
    try:
        status = (folder / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # After the program's name, which is in parentheses and may contain some: the state and the parent.
    return int(status.rpartition(b")")[2].split(maxsplit=2)[1])


def _signal(process_id: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process_id, number)
