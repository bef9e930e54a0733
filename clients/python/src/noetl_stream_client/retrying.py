"""Retries of requests: backoff with jitter, a budget and a deadline."""

from __future__ import annotations

import time
from typing import Final

FIRST_S: Final = 0.2
LONGEST_S: Final = 10.0
JITTER: Final = 0.2

SHARE: Final = 0.1
"""The retries earned by each first try."""
FLOOR_PER_S: Final = 1.0
"""The retries that are always allowed."""
MOST: Final = 20.0
"""The retries after a time without any."""

REFUSED_CONNECTIONS: Final = 3
"""The retries of a connection before any gateway has answered: its address may be wrong."""


class RetryBudget:
    """The retry budget of a client, shared by all calls, so that an overloaded gateway can recover.

    Args:
        most: The maximum saved after a time without retries.
    """

    def __init__(self, most: float = MOST) -> None:
        self._most = most
        self._left = most
        self._seen_s = time.monotonic()

    def note_first(self) -> None:
        """Counts a first try."""
        self._left = min(self._left + SHARE, self._most)

    def take(self) -> bool:
        """Returns whether a retry is allowed now, and counts it."""
        now_s = time.monotonic()
        self._left = min(self._left + (now_s - self._seen_s) * FLOOR_PER_S, self._most)
        self._seen_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Retries:
    """The retries of one request, until ``within_s`` seconds after its first failure, and not after ``end_s``."""

    def __init__(self, budget: RetryBudget, within_s: float, end_s: float | None = None) -> None:
        self._budget = budget
        self._within_s = within_s
        self._end_s = end_s
        self._until_s: float | None = None
        self._tries = 0
        budget.note_first()

    def pause_s(self, at_least_s: float = 0.0, most: int | None = None) -> float | None:
        """The pause before the next try; ``None`` if no try is left.

        Args:
            at_least_s: The pause that the gateway asks for.
            most: The maximum number of retries.
        """
        import random

        backoff_s = min(FIRST_S * 2.0**self._tries, LONGEST_S) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        pause_s, now_s = max(backoff_s, at_least_s), time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._within_s if self._end_s is None else min(now_s + self._within_s, self._end_s)
        if (most is not None and self._tries >= most) or now_s + pause_s > self._until_s:
            return None
        self._tries = min(self._tries + 1, 32)
        return pause_s if self._budget.take() else None
