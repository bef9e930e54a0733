"""Rates of starts: an average per minute, with a burst after a rest."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

US_PER_MS: Final = 1_000
_US_PER_MINUTE: Final = 60_000_000

MAX_WAIT_MS: Final = 600_000
"""The longest time that a start waits for its turn."""

MOST_LAG_MS: Final = 30_000
"""The tolerated step back in time, since inputs may be folded late. A larger one means that a clock was ahead before.
"""


class Bucket(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The use of a rate: the time in microseconds when a whole burst may start again, and the last time counted."""

    full_us: int = 0
    at_ms: int = 0

    def set_back_ms(self, at_ms: int) -> int:
        """The lead of the clock when the bucket last counted; 0 without one."""
        return self.at_ms - at_ms if self.at_ms - at_ms > MOST_LAG_MS else 0

    def at(self, at_ms: int) -> Bucket:
        """The bucket at a time. If the clock was ahead, its times are moved back as far."""
        if back_ms := self.set_back_ms(at_ms):
            return Bucket(self.full_us - back_ms * US_PER_MS, at_ms)
        return Bucket(self.full_us, max(self.at_ms, at_ms))


class Pace(NamedTuple):
    per_minute: int
    burst: int

    @property
    def interval_us(self) -> int:
        """The time between two starts."""
        return max(1, _US_PER_MINUTE // self.per_minute)

    def due_ms(self, bucket: Bucket) -> int:
        """The time of the next start; a time in the past means now."""
        return -(-(bucket.full_us - (self.burst - 1) * self.interval_us) // US_PER_MS)

    def after_start(self, bucket: Bucket) -> Bucket:
        """The bucket after one more start."""
        full_us = max(bucket.full_us, bucket.at_ms * US_PER_MS) + self.interval_us
        return Bucket(full_us, bucket.at_ms)
