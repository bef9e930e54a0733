"""The real clock and the real dice."""

from __future__ import annotations

import asyncio
import os
import time


class SystemClock:
    """:class:`~noetl_stream.ports.clock.Clock` over the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
