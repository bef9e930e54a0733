"""Leaky buckets: the use of a key in a row, and per second after that."""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock

REMEMBERED: Final = 10_000


class _Level(NamedTuple):
    amount: float
    at_s: float


class LeakyBuckets:
    """A leaky bucket for each key; of very many keys, the least recently used are forgotten.

    Args:
        most: The capacity of a bucket.
        leaks_per_s: The loss of a bucket each second.
    """

    def __init__(self, clock: Clock, most: float, leaks_per_s: float) -> None:
        self._clock = clock
        self._most = most
        self._leaks_per_s = leaks_per_s
        self._levels: LruCache[str, _Level] = LruCache(REMEMBERED)

    def full_for_s(self, key: str) -> float:
        """The seconds until there is room for one unit; 0 if there is."""
        return max(0.0, (self._amount(key) - self._most + 1) / self._leaks_per_s)

    def add(self, key: str, amount: float = 1.0) -> None:
        """Adds to the bucket, or takes out of it if negative."""
        self._levels.put(key, _Level(max(0.0, self._amount(key) + amount), self._clock.monotonic_s()))

    def _amount(self, key: str) -> float:
        level = self._levels.get(key)
        if level is None:
            return 0.0
        return max(0.0, level.amount - (self._clock.monotonic_s() - level.at_s) * self._leaks_per_s)
