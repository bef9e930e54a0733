"""When a timer is due: a time that every store and clock can hold, however long a playbook would wait."""

from __future__ import annotations

from typing import Final

LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the last that has a written form (ISO 8601): whatever would be later is due then."""


def due_ms(from_ms: int, seconds: float) -> int:
    """So many seconds after ``from_ms``, in milliseconds since the epoch."""
    return min(from_ms + round(min(seconds, LATEST_MS) * 1000), LATEST_MS)
