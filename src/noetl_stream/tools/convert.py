"""Plain JSON values out of what playbook code and databases hand back (LANGUAGE §12 *python*, *postgres*).

Converted: dates, times and UUIDs to text, ``Decimal`` to a number, tuples and sets to lists (sets in sorted order where
they have one, so that a second run of the same code gives the same result). Everything else is refused with its path.
This module is loaded into the child processes too, so it imports the standard library only.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

MAX_DEPTH: Final = 200
"""How many lists and mappings a value may nest in each other."""
MAX_DIGITS: Final = 4_000
"""The longest whole number made of a ``Decimal``; the text form of longer ones costs more than any use of them."""

Conversions = Mapping[type, Callable[[Any], Any]]
_NONE: Final[Conversions] = {}


class NotJson(Exception):
    """A value JSON has no form for. ``path`` says where it stands (``result.rows[3].ratio``)."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class _Refused(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []


def to_json(value: Any, *, name: str = "result", also: Conversions = _NONE) -> Any:
    """``value`` as plain JSON values: a new one, sharing nothing that can change.

    Args:
        name: What the path of a refused value starts with.
        also: Further types and what to convert instead of them (the databases' intervals and bytes).

    Raises:
        NotJson: at the first value that has no JSON form: NaN, infinity, a key that is not text, text with NUL or half
            a surrogate pair, nesting deeper than :data:`MAX_DEPTH`, any other type.
    """
    try:
        return _plain(value, also, 0)
    except _Refused as refused:
        raise NotJson(name + "".join(reversed(refused.steps)), refused.reason) from None


def _plain(value: Any, also: Conversions, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return _text(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return _float(value)
    if depth > MAX_DEPTH:
        raise _Refused(f"is nested more than {MAX_DEPTH} levels deep, or holds itself")
    if kind is dict:
        return _mapping(value, also, depth)
    if kind is list or kind is tuple:
        return _list(value, also, depth)
    return _other(value, also, depth)


def _other(value: Any, also: Conversions, depth: int) -> Any:
    for kind, convert in also.items():
        if isinstance(value, kind):
            return _plain(convert(value), also, depth + 1)
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case UUID():
            return str(value)
        case Decimal():
            return _decimal(value)
        case set() | frozenset():
            return _sorted(_list(value, also, depth))
        case Mapping():
            return _mapping(value, also, depth)
        case list() | tuple():
            return _list(value, also, depth)
        case str():
            return _text(str.__str__(value))
        case int():
            return int(value)
        case float():
            return _float(float(value))
    raise _Refused(f"{_type_name(value)} has no JSON form{_advice(value)}")


def _mapping(value: Mapping[Any, Any], also: Conversions, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Refused(f"a key must be text, and {key!r:.60} is {_type_name(key)}; write str(key)")
        try:
            plain[_text(str.__str__(key))] = _plain(item, also, depth + 1)
        except _Refused as refused:
            refused.steps.append(f".{key}" if key.isidentifier() else f"[{key!r:.60}]")
            raise
    return plain


def _list(value: Iterable[Any], also: Conversions, depth: int) -> list[Any]:
    plain: list[Any] = []
    for item in value:
        try:
            plain.append(_plain(item, also, depth + 1))
        except _Refused as refused:
            refused.steps.append(f"[{len(plain)}]")
            raise
    return plain


def _text(value: str) -> str:
    if "\0" in value:
        raise _Refused("text must not hold a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refused("text holds half a surrogate pair, which no encoding can carry") from None
    return value


def _float(value: float) -> float:
    if not isfinite(value):
        raise _Refused(f"{value} is no JSON number")
    return value


def _decimal(value: Decimal) -> int | float:
    if not value.is_finite():
        raise _Refused(f"{value} is no JSON number")
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= 0:
        if value.adjusted() > MAX_DIGITS:
            raise _Refused(f"a number of more than {MAX_DIGITS} digits")
        return int(value)
    return _float(float(value))


def _sorted(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return items


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return "; decode it, or write base64.b64encode(value).decode()"
    if isinstance(value, datetime.timedelta):
        return "; write value.total_seconds()"
    if hasattr(value, "to_dict"):
        return "; write value.to_dict(...)"
    if hasattr(value, "tolist"):
        return "; write value.tolist()"
    if hasattr(value, "__iter__"):
        return "; write list(value)"
    return ""
