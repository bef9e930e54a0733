"""Operators, and the methods that a template may call on a value, counted before they run (LANGUAGE §2, §14)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2.runtime import LoopContext

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.attribute_access import kind_of, plain_for_text
from noetl_stream.template.runtime.meter import (
    BITS_PER_OPERATION,
    CHARS_PER_OPERATION,
    CHARS_PER_SEARCH,
    Meter,
    chars_of,
)
from noetl_stream.template.runtime.scope import ABSENT, NO_REFERENCES

_PLACEHOLDER: Final = re.compile(r"%%|%(?:\([^()%]*+\))?+[#0\- +]*+([0-9]{1,9}+)?+(?:\.([0-9]{1,9}+))?+[diouxXeEfFgGs]")
"""A placeholder of text, except ``%c``, which could produce a lone surrogate, and ``%r`` and ``%a``, which are
Python's.
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
    if isinstance(left, str):
        return percent_format(meter, left, right)
    _count_division(meter, left)
    return left % right


def quotient(meter: Meter, left: Any, right: Any) -> Any:
    """Divides to a whole number: ``left // right``."""
    _count_division(meter, left)
    return left // right


def _count_division(meter: Meter, dividend: Any) -> None:
    if isinstance(dividend, int):
        meter.spend_either(0, dividend.bit_length() // BITS_PER_OPERATION)


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


def contains(meter: Meter, element: Any, container: Any, wanted: bool) -> bool:
    """Whether ``element in container`` is ``wanted``."""
    return (element in meter.search(container, chars_of(element))) is wanted


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
    meter.spend_either(0, 1)
    marks, widths = text.count("%"), []
    meter.work(marks)
    for match in _PLACEHOLDER.finditer(text):
        marks -= match[0].count("%")
        widths += [sum(int(number) for number in match.groups() if number)] if match[0] != "%%" else []
    if marks:
        hint = "use %s, %d and the like, with a width as in %5d; write %% for a percent sign"
        raise EvaluationFailure("`%` does not start a placeholder", hint=hint)
    return widths


MAPPING_METHODS: Final = frozenset({"items", "keys", "values", "get"})

TEXT_METHODS: Final = frozenset(
    {
        *("upper", "lower", "title", "capitalize", "casefold", "swapcase"),
        *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"),
        *("split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace"),
        *("startswith", "endswith", "find", "rfind", "index", "count"),
        *("isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isspace", "isupper", "islower", "isidentifier"),
        *("ljust", "rjust", "center", "zfill"),
    }
)

LOOP_METHODS: Final = frozenset({"cycle", "changed"})

METHODS: Final = MAPPING_METHODS | TEXT_METHODS | LOOP_METHODS

_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill"})
_STRIPPING: Final = frozenset({"strip", "lstrip", "rstrip"})
_SPLITTING: Final = frozenset({"split", "rsplit", "splitlines"})
_SEARCHING: Final = frozenset({"startswith", "endswith", "find", "rfind", "index", "count"})
_CUTTING: Final = _SPLITTING | {"partition", "rpartition"}
_FROM_THE_END: Final = frozenset({"rfind", "rsplit", "rpartition"})
_COMPARISONS_PER_OPERATION: Final = 1_024
PIECES_FACTOR: Final = 4
"""The additional cost of splitting a text over copying it."""


def call_method(meter: Meter, value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a method: the result of ``value.name(…)``.

    Raises:
        EvaluationFailure: The value has no such method, or is a mapping with this key.
    """
    meter.work(1)
    if isinstance(value, Mapping):
        if name in value:
            raise EvaluationFailure(f"`{name}` is a key here, and {kind_of(value[name])} cannot be called")
        if name in MAPPING_METHODS:
            return _call_mapping_method(meter, value, name, *args, **kwargs)
    elif isinstance(value, str) and name in TEXT_METHODS:
        return _call_text_method(meter, value, name, *args, **kwargs)
    elif isinstance(value, LoopContext) and name in LOOP_METHODS:
        meter.weigh(list(args))  # `changed` compares them with those of the previous iteration
        return getattr(value, name)(*args)
    raise EvaluationFailure(f"{kind_of(value)} has no method `{name}`")


def _call_mapping_method(meter: Meter, value: Mapping[str, Any], name: str, *args: Any, **kwargs: Any) -> Any:
    if name == "get":
        return _get(value, *args, **kwargs)
    if args or kwargs:
        raise EvaluationFailure(f"`{name}()` takes no arguments")
    meter.work(len(value))
    if name == "items":
        return [list(pair) for pair in value.items()]
    return list(value.keys() if name == "keys" else value.values())


def _get(value: Mapping[str, Any], key: Any, default: Any = None) -> Any:
    return value.get(key, default) if isinstance(key, str) else default


def _call_text_method(meter: Meter, text: str, name: str, *args: Any, **kwargs: Any) -> Any:
    if name == "replace":
        return replace(meter, text, *args, **kwargs)
    if name == "join":
        return _join(meter, text, *args)
    if name in _STRIPPING:
        return strip(meter, text, *args, method=name)
    _count(meter, text, name, (*args, *kwargs.values()))
    if name in ("startswith", "endswith"):
        args = tuple(_alternatives(meter, text, arg) for arg in args)
    result = getattr(text, name)(*args, **kwargs)
    if isinstance(result, list | tuple):
        meter.repeat(len(result))
        return list(result)
    return result


def _count(meter: Meter, text: str, name: str, args: Sequence[Any]) -> None:
    longest = max(map(chars_of, args), default=0)
    if name in _SEARCHING:
        meter.search_text(text, longest)
    else:
        meter.write(len(text) * (PIECES_FACTOR if name in _SPLITTING else 1))
        if name in _CUTTING:
            meter.compare_parts(text, longest, len(text) // CHARS_PER_SEARCH)
    for arg in args:
        if name in _FROM_THE_END and isinstance(arg, str):
            compare_all(meter, text, arg)
        elif name in _PADDING and isinstance(arg, int):
            meter.write(max(arg, 0))


def _join(meter: Meter, separator: str, elements: Any) -> str:
    meter.work(len(elements))
    texts = list(elements)
    for position, element in enumerate(texts):
        if not isinstance(element, str):
            hint = "use the filter `join`"
            raise EvaluationFailure(f"`join` takes texts, but element {position} is {kind_of(element)}", hint=hint)
    meter.write(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def replace(meter: Meter, text: str, old: str, new: str, count: int | None = None) -> str:
    """Replaces ``old`` by ``new`` in ``text``, everywhere or ``count`` times."""
    times = -1 if count is None else count
    meter.compare_parts(text, chars_of(old), len(text) // CHARS_PER_SEARCH)
    found = text.count(old) if times < 0 else min(text.count(old), times)
    meter.write(len(text) + found * len(new))
    return text.replace(old, new, times)


def strip(meter: Meter, text: str, chars: str | None = None, *, method: str = "strip") -> str:
    """Strips white space, or ``chars``, from both ends of ``text``."""
    meter.write(len(text))
    if isinstance(chars, str):
        chars = "".join(dict.fromkeys(chars))
        compare_all(meter, text, chars)
    stripped: str = getattr(text, method)(chars)
    return stripped


def compare_all(meter: Meter, text: str, other: str) -> None:
    """Counts an operation that compares, at worst, every pair of characters of the two texts."""
    meter.work(len(text) * len(other) // _COMPARISONS_PER_OPERATION)


def _alternatives(meter: Meter, text: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    meter.work(len(value))
    compared = sum(min(len(alternative), len(text)) for alternative in value if isinstance(alternative, str))
    meter.work(compared // CHARS_PER_OPERATION)
    return tuple(value)
