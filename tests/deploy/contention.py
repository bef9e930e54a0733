"""How much longer work takes because others compute, too: what a bound in seconds is multiplied with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

WORK_S = 0.005
PAUSE_S = 0.05


class Contention:
    """A thread that works a little, again and again, and compares how long that takes with the CPU time it needs."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._took_s = self._worked_s = 0.0

    @contextmanager
    def measured(self) -> Iterator[Contention]:
        thread = threading.Thread(target=self._measure)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def mean(self) -> float:
        """Since this was asked last: 1 on a machine that has nothing else to do."""
        mean = max(1.0, self._took_s / max(self._worked_s, WORK_S))
        self._took_s = self._worked_s = 0.0
        return mean

    def _measure(self) -> None:
        while not self._ended.wait(PAUSE_S):
            began, done = time.monotonic(), time.thread_time() + WORK_S
            while time.thread_time() < done:
                pass
            self._took_s += time.monotonic() - began
            self._worked_s += WORK_S
