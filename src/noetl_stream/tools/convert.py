"""Converts values from playbook code and databases to plain JSON (LANGUAGE §12 *python*, *postgres*).

Dates, times and UUIDs become text, ``Decimal`` a number, tuples and sets lists, dataclasses and models of pydantic
mappings, members of enumerations their values. Sets are sorted if possible, so that results are reproducible. Anything
else is an error with its path. Child processes load this module too, so it imports the standard library only, and
msgspec where there is one: an environment of a playbook may have none.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final
from uuid import UUID


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


decode_json: Callable[[bytes], Any] = json.loads
encode_json: Callable[[Any], bytes] = _encode
with contextlib.suppress(ImportError):
    import msgspec

    decode_json, encode_json = msgspec.json.decode, msgspec.json.encode

MAX_DEPTH: Final = 200
"""The most levels of lists and mappings."""
MAX_DIGITS: Final = 4_000
"""The most digits of a whole number: Python writes and reads no more than 4,300."""
_MAX_BITS: Final = (10**MAX_DIGITS - 1).bit_length()

_SHOWN_PATH: Final = 240
"""The most characters of a position in errors; its beginning is enough where values nest deeply."""

Conversions = Mapping[type, Callable[[Any], Any]]
_NONE: Final[Conversions] = {}
_WAYS: Final = {
    "to_dicts": "to_dicts()",  # polars
    "to_pylist": "to_pylist()",  # Arrow
    "iterrows": "to_dict('records')",  # pandas
    "tolist": "tolist()",  # NumPy
    "to_list": "to_list()",
    "to_dict": "to_dict()",
}
"""The call that converts objects of a library to plain values, by a method that they have; the first that fits."""


class NotJson(Exception):
    """A value that JSON cannot hold. ``path`` is its position (``result.rows[3].ratio``)."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def to_json(value: Any, *, name: str = "result", also: Conversions = _NONE) -> Any:
    """Converts ``value`` to new plain JSON.

    Args:
        name: The start of the path in errors.
        also: More types and their conversions, such as the databases' intervals and bytes.

    Raises:
        NotJson: A value is NaN, infinity, text with NUL or a lone surrogate, a key that is not text, nested deeper than
            :data:`MAX_DEPTH`, or of another type. Holds the first such value.
    """
    try:
        return _plain(value, also, 0)
    except NotJson as error:
        error.path = name + _path_text(error.path)
        raise


def _path_text(path: str) -> str:
    return path if len(path) <= _SHOWN_PATH else f"{path[:_SHOWN_PATH]}…"


def _plain(value: Any, also: Conversions, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _integer(value)
    if kind is float:
        return _float(value)
    if depth > MAX_DEPTH:
        raise NotJson("", f"nested more than {MAX_DEPTH} levels deep, or circular")
    if kind is dict:
        return _mapping(value, also, depth)
    if kind is list or kind is tuple:
        return _list(value, also, depth)
    return _convert_other(value, also, depth)


def _convert_other(value: Any, also: Conversions, depth: int) -> Any:
    for kind, convert in also.items():
        if isinstance(value, kind):
            return _plain(convert(value), also, depth + 1)
    match value:
        case Enum():
            return _plain(value.value, also, depth + 1)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case UUID():
            return str(value)
        case Decimal():
            return _decimal(value)
        case set() | frozenset():
            return _sort_items(_list(value, also, depth))
        case Mapping():
            return _mapping(value, also, depth)
        case list() | tuple():
            return _list(value, also, depth)
        case str():
            return _text(str.__str__(value))
        case int():
            return _integer(int(value))
        case float():
            return _float(float(value))
    if is_dataclass(value):
        return _mapping({one.name: getattr(value, one.name) for one in fields(value)}, also, depth)
    if hasattr(type(value), "model_fields") and hasattr(value, "model_dump"):  # pydantic itself is not imported here
        return _plain(value.model_dump(), also, depth + 1)
    raise NotJson("", f"{_type_name(value)} cannot be converted to JSON{_hint(value)}")


def _mapping(value: Mapping[Any, Any], also: Conversions, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJson("", f"a key must be text, not {_type_name(key)}: {key!r:.60}; write str(key)")
        try:
            plain[_text(str.__str__(key))] = _plain(item, also, depth + 1)
        except NotJson as error:
            error.path = (f".{key}" if key.isidentifier() else f"[{key!r:.60}]") + error.path
            raise
    return plain


def _list(value: Iterable[Any], also: Conversions, depth: int) -> list[Any]:
    plain: list[Any] = []
    for item in value:
        try:
            plain.append(_plain(item, also, depth + 1))
        except NotJson as error:
            error.path = f"[{len(plain)}]{error.path}"
            raise
    return plain


def _text(value: str) -> str:
    if "\0" in value:
        raise NotJson("", "text must not contain a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotJson("", "text must not contain a lone surrogate") from None
    return value


def _integer(value: int) -> int:
    if value.bit_length() > _MAX_BITS:
        raise NotJson("", f"number longer than {MAX_DIGITS} digits; write str(...)")
    return value


def _float(value: float) -> float:
    if not isfinite(value):
        raise NotJson("", f"{value} is not a valid JSON number")
    return value


def _decimal(value: Decimal) -> int | float:
    if not value.is_finite():
        raise NotJson("", f"{value} is not a valid JSON number")
    if value.adjusted() > MAX_DIGITS:
        raise NotJson("", f"number longer than {MAX_DIGITS} digits")
    exponent = value.as_tuple().exponent
    number = float(value)
    if isinstance(exponent, int) and exponent < 0 and Decimal(repr(number)) == value:
        return number
    if value == value.to_integral_value():
        return int(value)
    raise NotJson("", "a JSON number cannot keep all its digits; write str(value), or float(value) to round it")


def _sort_items(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return items


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _hint(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return "; decode it, or write base64.b64encode(value).decode()"
    if isinstance(value, datetime.timedelta):
        return "; write value.total_seconds()"
    for method, call in _WAYS.items():
        if hasattr(value, method):
            return f"; write value.{call}"
    if hasattr(value, "__iter__"):
        return "; write list(value)"
    return ""
