"""Captures the output of a process up to a limit, then reads and drops the rest so that writers never block."""

from __future__ import annotations

import asyncio
import os
from typing import Final

_READ_BYTES: Final = 64 * 1024


class CapturedOutput:
    """Reads and owns ``descriptor``, the read end of a pipe."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)
        self._kept = bytearray()
        self._dropped = 0
        self._open = True

    def take(self) -> tuple[str, int]:
        """The text written since the last call, and how many bytes of it were dropped."""
        while self._read():
            pass
        text, dropped = self._kept.decode("utf-8", errors="replace"), self._dropped
        self._kept.clear()
        self._dropped = 0
        return text, dropped

    def close(self) -> None:
        """Stops reading, even if the write end is still open."""
        if self._open:
            self._stop()
            os.close(self._descriptor)
            self._open = False

    def _read(self) -> bool:
        if not self._open:
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._stop()
            return False
        room = self._max_bytes - len(self._kept)
        self._kept += data[:room]
        self._dropped += max(0, len(data) - room)
        return True

    def _stop(self) -> None:
        self._loop.remove_reader(self._descriptor)
