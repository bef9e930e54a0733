"""Backoff and budget of retries: their delays and their number, so that overloaded stores can recover (PROTOCOL §2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

MAX_BACKOFF_S: Final = 30.0
JITTER: Final = 0.2
"""The jitter of a retry, so that those of many processes do not come together."""

SHARE: Final = 0.1
"""The retries that each first try permits."""
FLOOR_MESSAGES_PER_S: Final = 100.0
FLOOR_BYTES_PER_S: Final = 1024.0 * 1024
"""The retries that are always permitted, so that held messages are sent even without new ones."""


def backoff_s(first_s: float, tries: int, longest_s: float = MAX_BACKOFF_S) -> float:
    """Returns the wait before a retry: it doubles each time, with jitter.

    Args:
        tries: The number of earlier retries.
    """
    return min(first_s * 2.0 ** min(tries, 16), longest_s) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311


def pauses(first_s: float, longest_s: float = MAX_BACKOFF_S) -> Iterator[float]:
    """Yields the waits before successive retries, in seconds and without end: see :func:`backoff_s`."""
    return (backoff_s(first_s, tries, longest_s) for tries in count())


class RetryBudget:
    """The retries that a connection may send: a tenth of its first tries, and never less than a floor.

    Args:
        now_s: Returns the time in seconds.
        messages: The retries that may be sent at once after a time without any.
        size: Their most bytes.
    """

    def __init__(self, now_s: Callable[[], float], messages: int, size: int) -> None:
        self._now_s = now_s
        self._seen_s = now_s()
        self._most = (float(messages), float(size))
        self._messages, self._bytes = self._most

    def note_first(self, size: int, messages: int = 1) -> None:
        """Counts first tries, of this many bytes together."""
        self._messages += SHARE * messages
        self._bytes += SHARE * size

    def take(self, size: int) -> bool:
        """Returns whether a retry of this many bytes may be sent now, and counts it. One may exceed the rest."""
        now_s = self._now_s()
        passed_s, self._seen_s = now_s - self._seen_s, now_s
        self._messages = min(self._messages + passed_s * FLOOR_MESSAGES_PER_S, self._most[0])
        self._bytes = min(self._bytes + passed_s * FLOOR_BYTES_PER_S, self._most[1])
        if self._messages < 1.0 or self._bytes <= 0.0:
            return False
        self._messages -= 1.0
        self._bytes -= size
        return True
