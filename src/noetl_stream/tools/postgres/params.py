"""Converts JSON values to statement parameters, by the type that Postgres expects (LANGUAGE §12 *postgres*)."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

Converter = Callable[[Any], Any]


def bind_value(value: Any, type_name: str) -> Any:
    """The driver's form of ``value`` where Postgres expects ``type_name`` (``int4``, ``timestamptz[]``).

    Raises:
        ValueError: The value does not fit; gives the reason.
    """
    if value is None:
        return None
    if type_name.endswith("[]"):
        if not isinstance(value, list):
            raise ValueError(f"{type_name} must be a list, not {_kind(value)}")
        element = type_name.removesuffix("[]")
        return [bind_value(item, type_name if isinstance(item, list) else element) for item in value]
    convert = _CONVERSIONS.get(type_name)
    if convert is not None:
        return convert(value)
    if not isinstance(value, str):
        raise ValueError(_mismatch(type_name, value))
    return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _whole(value: Any) -> int:
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
    if isinstance(value, str):
        try:
            return Decimal(value)
        except ArithmeticError:
            raise ValueError("text is not a number") from None
    return Decimal(repr(_number(value)))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_kind(value)}")
    return value


def _interval(value: Any) -> datetime.timedelta:
    if isinstance(value, str):
        raise ValueError("interval must be a number of seconds; for text, write $name::text::interval")
    return datetime.timedelta(seconds=_number(value))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"bytea must be base64 text, not {_kind(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("bytea must be base64 text") from None


def _moment(type_name: str, parse: Callable[[str], Any], zone: Literal["none", "required", "any"]) -> Converter:
    def convert(value: Any) -> Any:
        try:
            moment = parse(value)
        except (TypeError, ValueError):
            hint = f"for other formats, write $name::text::{type_name}"
            raise ValueError(f"{type_name} must be ISO text (2026-01-31T10:00:00Z); {hint}") from None
        if zone == "required" and moment.tzinfo is None:
            # Without a zone the text would get the worker's, which depends on the machine.
            return moment.replace(tzinfo=datetime.UTC)
        if zone == "none" and moment.tzinfo is not None:
            raise ValueError(f"{type_name} has no time zone, but the text does; write $name::{type_name}tz")
        return moment

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
    "int2": _whole,
    "int4": _whole,
    "int8": _whole,
    "oid": _whole,
    "float4": _number,
    "float8": _number,
    "numeric": _numeric,
    "bool": _truth,
    "interval": _interval,
    "bytea": _bytes,
    "date": _moment("date", datetime.date.fromisoformat, "any"),
    "time": _moment("time", datetime.time.fromisoformat, "none"),
    "timetz": _moment("timetz", datetime.time.fromisoformat, "required"),
    "timestamp": _moment("timestamp", datetime.datetime.fromisoformat, "none"),
    "timestamptz": _moment("timestamptz", datetime.datetime.fromisoformat, "required"),
}
