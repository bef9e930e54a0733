"""Captures the output of tools' child processes, and kills them with all their descendants (LANGUAGE §12).

Descendants are found in any session and under any parent. This works on Linux. Elsewhere, processes survive that left
the group and whose parent has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection
from typing import Final

import psutil

_READ_BYTES: Final = 16 * 1024
"""The bytes read in one turn of the loop: a line takes a log 2 µs, and each byte may be one."""

_PIPE_READS: Final = 65
"""The number of reads that drain a pipe: more than the largest pipe of an ordinary user holds (1 MiB)."""


Heard = Callable[[bytes], None]


def ignore_output(data: bytes) -> None:
    """Ignores output that is only captured."""


class TreeKiller:
    """Kills process trees in batches: one scan of the process table serves all requests of the same time."""

    def __init__(self) -> None:
        self._requested: set[int] = set()
        self._killing: asyncio.Task[None] | None = None

    async def kill(self, process_id: int) -> None:
        """Kills process trees like :func:`kill_trees`. Completes even if the caller is cancelled."""
        self._requested.add(process_id)
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill_requested())
        await asyncio.shield(self._killing)

    async def _kill_requested(self) -> None:
        requested, self._requested, self._killing = self._requested, set(), None
        kill_trees(requested)


def kill_trees(process_ids: Collection[int]) -> None:
    """Kills children of this process that have not been waited for, their groups and all their descendants."""
    with contextlib.suppress(OSError):  # descriptors are used up; the zygote ends orphans
        _kill_descendants(set(process_ids))
    for process_id in process_ids:
        kill_group(process_id)


def kill_group(process_id: int) -> None:
    """Kills the processes left in the group of a process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def _kill_descendants(roots: set[int]) -> None:
    # Stop first and kill once no more are found: a stopped process starts nothing, and its orphans stay here.
    # A scan misses a process whose parent ends during it; the next one finds it. So two in a row must find nothing.
    stopped: set[int] = set()
    found, empty_scans = roots, 0
    while empty_scans < 2:
        for process_id in found:
            _signal(process_id, signal.SIGSTOP)
        stopped |= found
        found = _descendants(roots) - stopped
        empty_scans = 0 if found else empty_scans + 1
    for process_id in stopped - roots:
        _signal(process_id, signal.SIGKILL)


def _descendants(roots: set[int]) -> set[int]:
    """Finds the descendants of children of this process, in one scan of the process table."""
    children: dict[int, list[int]] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            children.setdefault(process.ppid(), []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending += below
    return found


def _signal(process_id: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process_id, number)


class CapturedOutput:
    """Captures the output of a process up to a limit, then reads and drops the rest, so that writers never block.

    Reads and owns ``descriptor``, the read end of a pipe.

    Attributes:
        heard: Called with all output as it arrives, even beyond the limit.
    """

    def __init__(self, descriptor: int, max_bytes: int, heard: Heard = ignore_output) -> None:
        os.set_blocking(descriptor, False)
        self._pipe = os.fdopen(descriptor, "rb", buffering=0)
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._read)
        self.heard = heard
        self._kept = bytearray()
        self._dropped = 0

    def drain(self) -> None:
        """Reads the output written so far, even if writing continues."""
        for _ in range(_PIPE_READS):
            if not self._read():
                break

    def take(self) -> tuple[str, int]:
        """Returns the text written since the last call, and the number of its bytes that were dropped."""
        self.drain()
        text, dropped = self._kept.decode("utf-8", errors="replace"), self._dropped
        self._kept.clear()
        self._dropped = 0
        return text, dropped

    def close(self) -> None:
        """Stops reading the output, even if the write end is still open."""
        if not self._pipe.closed:
            self.drain()
            self._loop.remove_reader(self._pipe)
            self._pipe.close()

    def _read(self) -> bool:
        data = None if self._pipe.closed else self._pipe.read(_READ_BYTES)
        if data is None:  # nothing more yet
            return False
        if not data:
            self._loop.remove_reader(self._pipe)
            return False
        self.heard(data)
        room = self._max_bytes - len(self._kept)
        self._kept += data[:room]
        self._dropped += max(0, len(data) - room)
        return True
