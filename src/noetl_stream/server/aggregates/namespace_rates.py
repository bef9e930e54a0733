"""Rates of starts by the triggers of a namespace, as set by the operator; each server enforces its share.

A server decides for the triggers of its partitions, so its share of the rate is its share of the partitions. Counts are
kept in memory: a server that takes over begins with a whole burst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl_stream.engine.aggregates.pacing import US_PER_MS, Bucket, Pace
from noetl_stream.trigger.rates import TriggerRates

BURST_PART: Final = 6
"""The part of a minute's starts that may come at once after a rest."""

MOST_KEPT: Final = 1_000
"""The number of namespaces above which idle ones are forgotten."""


class NamespaceRates:
    """The rates of starts by triggers, by namespace.

    Args:
        share: The part of all partitions that this server owns.
        namespace_of: The namespace of a playbook's path.
    """

    def __init__(self, rates: TriggerRates, share: Callable[[], float], namespace_of: Callable[[str], str]) -> None:
        self.rates = rates
        self._share = share
        self._namespace_of = namespace_of
        self._buckets: dict[str, Bucket] = {}

    def free_ms(self, path: str, at_ms: int) -> int:
        """The time at which triggers of the namespace of ``path`` may start the next execution; 0 means now."""
        bucket = self._buckets.get(self._namespace_of(path))
        return 0 if bucket is None else self._pace().due_ms(bucket.at(at_ms))

    def count(self, path: str, starts: int, at_ms: int) -> None:
        """Counts executions that triggers of a namespace start now, or later when their rate allows."""
        if not starts:
            return
        namespace, pace = self._namespace_of(path), self._pace()
        bucket = self._buckets.get(namespace, Bucket()).at(at_ms)
        for _ in range(starts):
            bucket = pace.after_start(bucket)
        self._buckets[namespace] = bucket
        if len(self._buckets) > MOST_KEPT:
            full = at_ms * US_PER_MS
            self._buckets = {name: one for name, one in self._buckets.items() if one.full_us > full}

    def _pace(self) -> Pace:
        per_minute = max(1, round(self.rates.of_namespace * self._share()))
        return Pace(per_minute, max(1, per_minute // BURST_PART))
