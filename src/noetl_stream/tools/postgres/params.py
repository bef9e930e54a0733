"""Converts JSON values to statement parameters, by the type that Postgres expects (LANGUAGE §12 *postgres*)."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from noetl_stream.tools.postgres.codecs import encoded_date, encoded_interval, encoded_time, encoded_timestamp

Converter = Callable[[Any], Any]

_NUMERIC_DIGITS: Final = 131_072
"""The digits of ``numeric`` before the point."""
_NUMERIC_PLACES: Final = 16_383
_JSON: Final = ("json", "jsonb")
_FRACTION: Final = re.compile(r"[.,]\d{6}(\d*)")


def bind_value(value: Any, type_name: str) -> Any:
    """Converts ``value`` to the driver's form of ``type_name`` (``int4``, ``timestamptz[]``).

    Raises:
        ValueError: The value does not fit; gives the reason.
    """
    if value is None:
        return None
    if type_name.endswith("[]"):
        if not isinstance(value, list):
            raise ValueError(f"{type_name} must be a list, not {_kind(value)}")
        element = type_name.removesuffix("[]")
        if element in _JSON:
            return [bind_value(item, element) for item in value]  # a list in it is a value, not a dimension
        if [] in value:
            raise ValueError(f"{type_name} cannot hold an empty list in a list; write $name::jsonb")
        return [bind_value(item, type_name if isinstance(item, list) else element) for item in value]
    if (convert := _CONVERSIONS.get(type_name)) is not None:
        return convert(value)
    if not isinstance(value, str):
        raise ValueError(_mismatch(type_name, value))
    return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _whole_number(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {_kind(value)}")
    return value


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {_kind(value)}")
    return value


def _numeric(value: Any) -> Decimal:
    # Text is accepted here only, since a JSON number cannot carry arbitrary precision.
    if not isinstance(value, str):
        return Decimal(repr(_number(value)))
    try:
        number = Decimal(value)
    except ArithmeticError:
        raise ValueError("text is not a number") from None
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and (number.adjusted() >= _NUMERIC_DIGITS or -exponent > _NUMERIC_PLACES):
        raise ValueError(f"numeric has at most {_NUMERIC_DIGITS:,} digits and {_NUMERIC_PLACES:,} decimal places")
    return number


def _double(value: Any) -> float:
    number = _number(value)
    if isinstance(number, int) and abs(number) > 2**53 and not _is_double(number):
        raise ValueError("a double cannot hold all digits of the number; write $name::numeric")
    return number


def _is_double(number: int) -> bool:
    try:
        return Decimal(repr(float(number))) == number
    except OverflowError:
        return False


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_kind(value)}")
    return value


def _interval(value: Any) -> tuple[int, int, int]:
    if isinstance(value, str):
        raise ValueError("interval must be a number of seconds; for text, write $name::text::interval")
    return encoded_interval(_number(value))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"bytea must be base64 text, not {_kind(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("bytea must be base64 text") from None


def _moment(
    type_name: str, parse: Callable[[str], Any], encoded: Converter, zone: Literal["none", "required", "any"]
) -> Converter:
    def convert(value: Any) -> Any:
        hint = f"write $name::text::{type_name}"
        try:
            moment = parse(value)
        except (TypeError, ValueError):
            message = f"{type_name} must be ISO text (2026-01-31T10:00:00Z); for other formats, {hint}"
            raise ValueError(message) from None
        if any(more.strip("0") for more in _FRACTION.findall(value)):
            raise ValueError(f"{type_name} has at most 6 decimal places; to have Postgres round it, {hint}")
        if zone == "required" and moment.tzinfo is None:
            # Without a zone the text would get the worker's, which depends on the machine.
            moment = moment.replace(tzinfo=datetime.UTC)
        if zone == "none" and moment.tzinfo is not None:
            raise ValueError(f"{type_name} has no time zone, but the text does; write $name::{type_name}tz")
        return encoded(moment)

    return convert


def _mismatch(type_name: str, value: Any) -> str:
    if isinstance(value, dict | list):
        return f"Postgres expects {type_name}; write $name::jsonb for {_kind(value)}"
    cast = "boolean" if isinstance(value, bool) else "bigint" if isinstance(value, int) else "numeric"
    return f"Postgres expects {type_name}, not {_kind(value)}; write $name::{cast}, or pass text"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "null"


_CONVERSIONS: Final[dict[str, Converter]] = {
    "json": _json,
    "jsonb": _json,
    "int2": _whole_number,
    "int4": _whole_number,
    "int8": _whole_number,
    "oid": _whole_number,
    "float4": _double,
    "float8": _double,
    "numeric": _numeric,
    "bool": _truth,
    "interval": _interval,
    "bytea": _bytes,
    "date": _moment("date", datetime.date.fromisoformat, encoded_date, "any"),
    "time": _moment("time", datetime.time.fromisoformat, encoded_time, "none"),
    "timetz": _moment("timetz", datetime.time.fromisoformat, encoded_time, "required"),
    "timestamp": _moment("timestamp", datetime.datetime.fromisoformat, encoded_timestamp, "none"),
    "timestamptz": _moment("timestamptz", datetime.datetime.fromisoformat, encoded_timestamp, "required"),
}
