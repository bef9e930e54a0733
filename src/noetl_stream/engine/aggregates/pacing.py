"""Rates of starts: so many a minute on average, and a burst after a rest."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

US_PER_MS: Final = 1_000
_US_PER_MINUTE: Final = 60_000_000

MAX_WAIT_MS: Final = 600_000
"""How long a start waits for its turn at most."""

MOST_LAG_MS: Final = 30_000
"""How far times may go back because inputs are folded late. Beyond that, a clock was ahead and is right again."""


class Bucket(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a rate has given out: when a whole burst may start again, in microseconds, and the time it counted last."""

    full_us: int = 0
    at_ms: int = 0

    def set_back_ms(self, at_ms: int) -> int:
        """How far the clock was ahead that the bucket counted by; 0 if it was not."""
        return self.at_ms - at_ms if self.at_ms - at_ms > MOST_LAG_MS else 0

    def at(self, at_ms: int) -> Bucket:
        """The bucket at a time. Where the clock was ahead, its times are moved back with it."""
        if back_ms := self.set_back_ms(at_ms):
            return Bucket(self.full_us - back_ms * US_PER_MS, at_ms)
        return Bucket(self.full_us, max(self.at_ms, at_ms))


class Pace(NamedTuple):
    """A rate of starts."""

    per_minute: int
    burst: int

    @property
    def interval_us(self) -> int:
        """The time between two starts."""
        return max(1, _US_PER_MINUTE // self.per_minute)

    def due_ms(self, bucket: Bucket) -> int:
        """When the bucket gives out the next start; a time in the past is now."""
        return -(-(bucket.full_us - (self.burst - 1) * self.interval_us) // US_PER_MS)

    def after_start(self, bucket: Bucket) -> Bucket:
        """The bucket once it gave out one more start."""
        full_us = max(bucket.full_us, bucket.at_ms * US_PER_MS) + self.interval_us
        return Bucket(full_us, bucket.at_ms)
