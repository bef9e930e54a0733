"""Operators that could make values without bound, each counted before it acts (LANGUAGE §14)."""

from __future__ import annotations

import re
from typing import Any, Final

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.access import kind_of, plain_for_text
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import ABSENT, NO_REFERENCES

_PLACEHOLDER: Final = re.compile(r"%%|%(?:\([^()%]*\))?[#0\- +]*([0-9]{1,9})?(?:\.([0-9]{1,9}))?[diouxXeEfFgGs]")
"""No ``%c``, which could make half a character; no ``%r`` and ``%a``, which write Python."""


def add(meter: Meter, left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        meter.write(len(left) + len(right))
    elif isinstance(left, int) and isinstance(right, int):
        meter.compute(max(left.bit_length(), right.bit_length()))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        meter.repeat(len(left) + len(right))
    return left + right


def subtract(meter: Meter, left: Any, right: Any) -> Any:
    """``left - right``."""
    if isinstance(left, int) and isinstance(right, int):
        meter.compute(max(left.bit_length(), right.bit_length()))
    return left - right


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """``left * right``: numbers, or a text or list repeated."""
    if isinstance(left, int) and isinstance(right, int):
        meter.compute(left.bit_length() + right.bit_length() - 1)
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
        meter.compute(max(abs(left) - 1, 0).bit_length() * max(right, 0))
    return left**right


def remainder(meter: Meter, left: Any, right: Any) -> Any:
    """``left % right``: of numbers, or a text with placeholders filled in."""
    return percent_format(meter, left, right) if isinstance(left, str) else left % right


def cut(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """``value[start:stop:step]`` of a text or list."""
    if not isinstance(value, str | list | tuple):
        raise EvaluationFailure(f"{kind_of(value)} cannot be cut with `[:]`")
    length = len(range(len(value))[start:stop:step])
    if isinstance(value, str):
        meter.write(length)
    else:
        meter.repeat(length)
    return value[start:stop:step]


def percent_format(meter: Meter, text: str, values: Any) -> str:
    """``text`` with its ``%`` placeholders filled from a list, a mapping or one value.

    Raises:
        EvaluationFailure: for a ``%`` that begins no placeholder, or one that takes its width from the values.
    """
    if values is ABSENT:
        raise EvaluationFailure("an absent value cannot fill a placeholder")
    widths = _widths(meter, text)
    settled = plain_for_text(values, NO_REFERENCES, meter)
    elements = settled.values() if isinstance(settled, dict) else settled if isinstance(settled, list) else [settled]
    longest = max((len(str(element)) for element in elements), default=0)
    meter.write(len(text) + sum(widths) + len(widths) * longest)
    return text % (tuple(settled) if isinstance(settled, list) else settled)


def _widths(meter: Meter, text: str) -> list[int]:
    """How many characters each placeholder asks for, beside those of its value."""
    marks, widths = text.count("%"), []
    meter.work(marks)
    for match in _PLACEHOLDER.finditer(text):
        marks -= match[0].count("%")
        widths += [sum(int(number) for number in match.groups() if number)] if match[0] != "%%" else []
    if marks:
        hint = "%s, %d and the like, with a width as in %5d; write %% for the sign itself"
        raise EvaluationFailure("a `%` begins no placeholder", hint=hint)
    return widths
