"""Checks documents while they are written: after a pause, one at a time, and only the latest text of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from noetl_stream.playbook.diagnostics import Diagnostic

PAUSE_S: Final = 0.25
"""How long a document must be unchanged before it is run_check."""

Check = Callable[[str, str], Iterable[Diagnostic]]
"""A function that returns the diagnostics of a text, given with the name of its file."""


class _Wanted(NamedTuple):
    version: int
    timer: asyncio.TimerHandle


class DocumentChecks:
    """Runs at most one check, in a thread; of those that wait, all but the last of each document are skipped.

    Args:
        check: Returns the diagnostics of a text.
        tell: Called with the diagnostics of the latest text.
        fail: Called with an error of ``check``.
    """

    def __init__(
        self,
        check: Check,
        tell: Callable[[str, tuple[Diagnostic, ...]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._check = check
        self._tell = tell
        self._fail = fail
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._wanted: dict[str, _Wanted] = {}
        self._asked = 0

    def ask(self, uri: str, file: str, text: str, pause_s: float = PAUSE_S) -> None:
        """Checks a text after a pause, unless another of the same document comes first."""
        self.forget(uri)
        self._asked += 1
        version = self._asked
        loop = asyncio.get_running_loop()
        timer = loop.call_later(pause_s, lambda: loop.create_task(self._run(uri, version, file, text)))
        self._wanted[uri] = _Wanted(version, timer)

    def forget(self, uri: str) -> None:
        """Cancels the check of a document."""
        before = self._wanted.pop(uri, None)
        if before is not None:
            before.timer.cancel()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, uri: str, version: int, file: str, text: str) -> None:
        def run_check() -> tuple[Diagnostic, ...] | None:
            return tuple(self._check(text, file)) if self._is_wanted(uri, version) else None

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, run_check)
        except Exception as error:
            self._fail(error)
            return
        if found is not None and self._is_wanted(uri, version):
            self._tell(uri, found)

    def _is_wanted(self, uri: str, version: int) -> bool:
        wanted = self._wanted.get(uri)
        return wanted is not None and wanted.version == version
