"""Clocks of hosts that are wrong, and are set."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from noetl_stream.ports.clock import Clock

WRONG_BY_MS: Final = (0, 0, -300_000, 300_000, -3_600_000, 3_600_000)


class WrongClock:
    """A clock that is ``ahead_ms`` of the right one, and may be set. Its monotonic time is right."""

    def __init__(self, real: Clock, ahead_ms: int) -> None:
        self._real = real
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._real.now_ms() + self.ahead_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class WrongClocks:
    """Those of all hosts that were given one."""

    def __init__(self, real: Clock, random: Random) -> None:
        self._real = real
        self._random = random
        self._clocks: list[WrongClock] = []

    def new(self) -> WrongClock:
        """A clock that is up to five minutes wrong."""
        clock = WrongClock(self._real, self._random.randint(-300_000, 300_000))
        self._clocks.append(clock)
        return clock

    def set(self) -> None:
        """Sets all of them, some right, some wrong."""
        for clock in self._clocks:
            clock.ahead_ms = self._random.choice(WRONG_BY_MS)
