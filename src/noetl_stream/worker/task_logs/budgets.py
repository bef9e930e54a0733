"""Budgets of the bytes that the tasks of each namespace may write into LOGS through one worker."""

from __future__ import annotations

import math
from typing import Final

from noetl_stream.lru import LruCache
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.ports.clock import Clock

NAMESPACES_KEPT: Final = 1_000
REFILLED_S: Final = 60.0


class LogBudgets:
    """Budgets of bytes by namespace: a minute's share at once after a rest, and the same per minute from then on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: LruCache[str, tuple[float, float]] = LruCache(NAMESPACES_KEPT)

    def left(self, share: NamespaceShare) -> float:
        """The bytes that a namespace may write now; infinity without a bound, negative above it."""
        if not share.log_bytes:
            return math.inf
        left, at_s = self._left.get(share.namespace) or (math.inf, 0.0)
        refilled = (self._clock.monotonic_s() - at_s) / REFILLED_S * share.log_bytes
        return min(share.log_bytes, left + refilled)

    def spend(self, share: NamespaceShare, size: int) -> None:
        """Counts bytes written by a namespace."""
        if share.log_bytes:
            self._left.put(share.namespace, (self.left(share) - size, self._clock.monotonic_s()))
