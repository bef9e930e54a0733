"""Time and randomness, injected so that tests control them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since the epoch. Shown, never used in decisions."""

    def monotonic_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def random_bytes(self, count: int) -> bytes: ...
