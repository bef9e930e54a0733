"""How much longer work takes because others compute, too: what a bound in seconds is multiplied with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

WORK_S = 0.005
PAUSE_S = 0.05


class Span(NamedTuple):
    """When something began and ended, in seconds of the monotonic clock."""

    began_s: float
    ended_s: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s

    def shared_s(self, other: Span) -> float:
        """How long both lasted at once."""
        return max(0.0, min(self.ended_s, other.ended_s) - max(self.began_s, other.began_s))


class Contention:
    """A thread that works a little, again and again, and compares how long that takes with the CPU time it needs."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._works: list[Span] = []

    @contextmanager
    def measured(self) -> Iterator[Contention]:
        thread = threading.Thread(target=self._measure)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def during(self, span: Span) -> float:
        """How many times as long work took: 1 on a machine that has nothing else to do."""
        took = [one.took_s for one in self._works if one.ended_s > span.began_s and one.began_s < span.ended_s]
        return max(1.0, sum(took) / (WORK_S * len(took))) if took else 1.0

    def _measure(self) -> None:
        while not self._ended.wait(PAUSE_S):
            began, done = time.monotonic(), time.thread_time() + WORK_S
            while time.thread_time() < done:
                pass
            self._works.append(Span(began, time.monotonic()))
