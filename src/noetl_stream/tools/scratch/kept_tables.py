"""Tables that tasks read in parts: fetched once for all iterations of a loop that a worker runs.

A kept table has one content on the disk, and a link in the folder of each task that reads it. Children cannot write to
it where Landlock confines them, whatever their user is; elsewhere nothing is kept.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.tools.children.landlock import landlock_version
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.scratch.folders import made_folder
from noetl_stream.tools.scratch.parquet_footer import NotParquet, footer_of

KEPT_S: Final = 600.0
"""The time for which a table is kept after its last use."""
KEPT_SHARE: Final = 4
"""The part of one task's bytes that all kept tables may use."""

_TRUNCATION_VERSION: Final = 3
"""The version of Landlock from which on a child can neither write to a file nor truncate it."""

_Key = tuple[str, str]


class _Kept(NamedTuple):
    """A table on the disk, with its fingerprint against writes, and the timer that ends it."""

    path: Path
    state: tuple[int, int, int]
    expiry: asyncio.TimerHandle


class KeptTables:
    """The tables that one worker process keeps.

    Args:
        prefix: The prefix of their folder's name.
        max_bytes: The most bytes of one task on the disk.
        kept_s: How long an unused table is kept.
    """

    def __init__(self, prefix: str, max_bytes: int, kept_s: float = KEPT_S) -> None:
        self._prefix, self._max_bytes, self._kept_s = prefix, max_bytes // KEPT_SHARE, kept_s
        self._holds = landlock_version() >= _TRUNCATION_VERSION
        self._kept: dict[_Key, _Kept] = {}
        self._turns: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._wanted: Counter[_Key] = Counter()
        self._root, self._lock, self._made = "", -1, 0

    async def linked(self, reference: DataReference, path: Path, write: Callable[[], Awaitable[None]]) -> None:
        """Makes ``path`` the file of a reference that its task may open: a kept one, or the output of ``write``."""
        if reference.rows is None or not self._holds:
            await write()
            return
        key = reference.key, reference.checksum
        turn = self._turns.setdefault(key, asyncio.Lock())
        self._wanted[key] += 1
        try:
            async with turn:
                if not self._link(key, path):
                    await write()
                    if self._wanted[key] > 1 or await asyncio.to_thread(_is_larger, path, reference):
                        self._keep(key, path)
        finally:
            self._wanted -= Counter([key])

    async def close(self) -> None:
        for key in list(self._kept):
            self._drop(key)
        if self._root:
            await asyncio.to_thread(remove_folder, self._root)
            os.close(self._lock)
            self._root = ""

    def _link(self, key: _Key, path: Path) -> bool:
        if key not in self._kept:
            return False
        kept = self._drop(key)
        with suppress(OSError):
            if _state(kept.path) == kept.state:
                os.link(kept.path, path)
                self._enter(key, kept.path, kept.state)
                return True
        kept.path.unlink(missing_ok=True)
        return False

    def _keep(self, key: _Key, path: Path) -> None:
        """Keeps a table in place of those that were unused for the longest time."""
        size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
        if (most := min(self._max_bytes, free // 2)) < size:
            return
        while self._kept and sum(kept.state[0] for kept in self._kept.values()) + size > most:
            self._remove(next(iter(self._kept)))
        with suppress(OSError):  # it is then fetched again
            if not self._root:
                self._root, self._lock = made_folder(self._prefix)
            self._made += 1
            link = Path(self._root, str(self._made))
            os.link(path, link)
            self._enter(key, link, _state(link))

    def _enter(self, key: _Key, path: Path, state: tuple[int, int, int]) -> None:
        expiry = asyncio.get_running_loop().call_later(self._kept_s, self._remove, key)
        self._kept[key] = _Kept(path, state, expiry)

    def _drop(self, key: _Key) -> _Kept:
        kept = self._kept.pop(key)
        kept.expiry.cancel()
        return kept

    def _remove(self, key: _Key) -> None:
        unlink = partial(self._drop(key).path.unlink, missing_ok=True)
        asyncio.get_running_loop().run_in_executor(None, unlink)  # this may take long


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_mode


def _is_larger(path: Path, reference: DataReference) -> bool:
    try:
        return footer_of(path).rows != reference.rows
    except NotParquet:
        return False
