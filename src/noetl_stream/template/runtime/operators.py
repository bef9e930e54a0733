"""Operators whose results can grow without bound, counted before they run (LANGUAGE §14)."""

from __future__ import annotations

import re
from typing import Any, Final

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.attribute_access import kind_of, plain_for_text
from noetl_stream.template.runtime.meter import CHARS_PER_SEARCH, Meter
from noetl_stream.template.runtime.scope import ABSENT, NO_REFERENCES

_PLACEHOLDER: Final = re.compile(r"%%|%(?:\([^()%]*+\))?+[#0\- +]*+([0-9]{1,9}+)?+(?:\.([0-9]{1,9}+))?+[diouxXeEfFgGs]")
"""A placeholder of text. Excludes ``%c``, which could produce a lone surrogate, and ``%r`` and ``%a``, which write
Python.
"""


def add(meter: Meter, left: Any, right: Any) -> Any:
    """Adds: ``left + right``, of numbers, texts or lists."""
    if isinstance(left, str) and isinstance(right, str):
        meter.write(len(left) + len(right))
    elif isinstance(left, int) and isinstance(right, int):
        meter.compute(max(left.bit_length(), right.bit_length()))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        meter.repeat(len(left) + len(right))
    return left + right


def subtract(meter: Meter, left: Any, right: Any) -> Any:
    """Subtracts: ``left - right``."""
    if isinstance(left, int) and isinstance(right, int):
        meter.compute(max(left.bit_length(), right.bit_length()))
    return left - right


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """Multiplies: ``left * right``, of numbers, or repeats a text or list."""
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
    """Raises to a power: ``left ** right``."""
    if isinstance(left, int) and isinstance(right, int):
        meter.compute(max(abs(left) - 1, 0).bit_length() * max(right, 0))
    return left**right


def remainder(meter: Meter, left: Any, right: Any) -> Any:
    """Calculates ``left % right``: of numbers, or text with its placeholders filled in."""
    return percent_format(meter, left, right) if isinstance(left, str) else left % right


def cut(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Slices a text or list: ``value[start:stop:step]``."""
    if not isinstance(value, str | list | tuple):
        raise EvaluationFailure(f"cannot slice {kind_of(value)}")
    length = len(range(len(value))[start:stop:step])
    if isinstance(value, str):
        meter.write(length)
    else:
        meter.repeat(length)
    return value[start:stop:step]


def percent_format(meter: Meter, text: str, values: Any) -> str:
    """Fills the ``%`` placeholders of ``text`` from a list, a mapping or one value.

    Raises:
        EvaluationFailure: A ``%`` does not start a placeholder, or takes its width from the values.
    """
    if values is ABSENT:
        raise EvaluationFailure("cannot fill a placeholder with an absent value")
    widths = _widths(meter, text)
    plain_value = plain_for_text(values, NO_REFERENCES, meter)
    listed = plain_value if isinstance(plain_value, list) else [plain_value]
    elements = plain_value.values() if isinstance(plain_value, dict) else listed
    longest = max((len(str(element)) for element in elements), default=0)
    meter.write(len(text) + sum(widths) + len(widths) * longest)
    return text % (tuple(plain_value) if isinstance(plain_value, list) else plain_value)


def _widths(meter: Meter, text: str) -> list[int]:
    """The width of each placeholder, not counting its value."""
    meter.spend(len(text) // CHARS_PER_SEARCH)
    marks, widths = text.count("%"), []
    meter.work(marks)
    for match in _PLACEHOLDER.finditer(text):
        marks -= match[0].count("%")
        widths += [sum(int(number) for number in match.groups() if number)] if match[0] != "%%" else []
    if marks:
        hint = "use %s, %d and the like, with a width as in %5d; write %% for a percent sign"
        raise EvaluationFailure("`%` does not start a placeholder", hint=hint)
    return widths
