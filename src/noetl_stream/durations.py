"""Durations in words, as people read them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))


def duration_text(seconds: float | None) -> str:
    """A duration in its two largest units: ``0.42 s``, ``12.3 s``, ``3 min 5 s``, ``2 h 11 min``, ``4 d 3 h``.

    A whole number of a unit has no second one: ``30 s``, ``1 h``. ``None`` gives no text.
    """
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    for unit, length, smaller, part in _UNITS:
        if seconds >= length:
            rest = int(seconds % length) // part
            return f"{int(seconds) // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    digits = 100 if seconds < 10 else 10
    return f"{int(seconds * digits + 1e-6) / digits:g} s"
