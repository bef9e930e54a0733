"""Operators that could make values without bound, each counted before it acts (LANGUAGE §14)."""

from __future__ import annotations

import re
from typing import Any, Final

from noetl_stream.template.access import plain
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.limits import Meter, exceeded
from noetl_stream.template.scope import ABSENT, NO_REFERENCES

_PLACEHOLDER: Final = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")


def add(meter: Meter, left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        meter.write(len(left) + len(right))
    elif isinstance(left, list) and isinstance(right, list):
        meter.repeat(len(left) + len(right))
    return left + right


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """``left * right``: numbers, or a text or list repeated."""
    if isinstance(left, int) and isinstance(right, int):
        _allow_bits(meter, left.bit_length() + right.bit_length())
    else:
        for repeated, times in ((left, right), (right, left)):
            if isinstance(times, int) and isinstance(repeated, str):
                meter.write(len(repeated) * max(times, 0))
            elif isinstance(times, int) and isinstance(repeated, list | tuple):
                meter.repeat(len(repeated) * max(times, 0))
    return left * right


def power(meter: Meter, left: Any, right: Any) -> Any:
    """``left ** right``."""
    if isinstance(left, int) and isinstance(right, int):
        _allow_bits(meter, left.bit_length() * max(right, 0))
    return left**right


def remainder(meter: Meter, left: Any, right: Any) -> Any:
    """``left % right``: of numbers, or a text with placeholders filled in."""
    return percent_format(meter, left, right) if isinstance(left, str) else left % right


def percent_format(meter: Meter, text: str, values: Any) -> str:
    """``text`` with its ``%`` placeholders filled from a list, a mapping or one value."""
    if values is ABSENT:
        raise EvaluationFailure("an absent value cannot fill a placeholder")
    given = plain(values, NO_REFERENCES, meter)
    filled = tuple(given) if isinstance(given, list) else given
    placeholders = list(_PLACEHOLDER.finditer(text))
    widths = [width for match in placeholders for width in match.groups() if width]
    if "*" in widths:
        raise EvaluationFailure("a width taken from the values (`*`) is not allowed")
    elements = list(given.values()) if isinstance(given, dict) else list(filled) if isinstance(given, list) else [given]
    longest = max((len(str(element)) for element in elements), default=0)
    meter.write(len(text) + sum(map(int, widths)) + len(placeholders) * longest)
    return text % filled


def _allow_bits(meter: Meter, bits: int) -> None:
    if bits > meter.limits.max_number_bits:
        raise exceeded("max_number_bits", meter.limits.max_number_bits)
