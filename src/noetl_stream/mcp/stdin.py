"""Reads lines of stdin so that the process can end while none comes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

from noetl_stream.errors import UsageError

PIECE_BYTES: Final = 64 * 1024
MAX_LINE_BYTES: Final = 16 * 1024 * 1024


async def lines_of_stdin() -> AsyncIterator[str]:
    """Yields each line of stdin without its end, until it is closed.

    Raises:
        UsageError: a line is longer than :data:`MAX_LINE_BYTES`.
    """
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[bytes](1)

    def read() -> None:
        while True:
            piece = os.read(0, PIECE_BYTES)  # not by sys.stdin, whose lock would keep the interpreter from ending
            asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
            if not piece:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    line = bytearray()
    while piece := await pieces.get():
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield (line + end).decode("utf-8", "replace")
            line.clear()
        line += rest
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(f"a line of stdin is longer than {MAX_LINE_BYTES} bytes", hint="send shorter messages")
