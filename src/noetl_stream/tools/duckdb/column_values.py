"""Values on their way out of DuckDB: those that its Python library would change leave as text, and are parsed here.

The library takes ``infinity`` for the last day of the year 9999, a month for 30 days and JSON for text, drops
nanoseconds, and needs a package that is not installed for times with a zone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from noetl_stream.tools.duckdb.tables import quote_identifier
from noetl_stream.tools.sql import Inexpressible, parsed_json

_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?: (\d\d:\d\d:\d\d)(?:\.(\d+))?)?(?:\+00)?")
_TIME: Final = re.compile(r"(\d\d:\d\d:\d\d)(?:\.(\d+))?([+-]\d\d)?(:.+)?")
_INTERVAL: Final = re.compile(r"(?:(-?\d+) days? ?)?(?:(-?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?")
_MAYBE_INFINITE: Final = (datetime.date.min, datetime.date.max, datetime.datetime.min, datetime.datetime.max)
_OUTSIDE: Final = Inexpressible("the date is infinite, or outside of the years 1 to 9999")
_MONTHS: Final = Inexpressible("an interval with months has no number of seconds")
_NOT_SELECTED: Final = Inexpressible("its type can be read from a SELECT only")
_ONE_OF_MANY: Final = Inexpressible("a UNION with such a type cannot be read")


@dataclass(frozen=True, slots=True)
class Carrier:
    """The form in which values of a type leave DuckDB: cast to ``kind``, and parsed by ``read``, except null."""

    kind: str
    read: Callable[[Any], Any]


def carriers_of(kinds: Iterable[Any]) -> dict[int, Carrier]:
    """Returns the carriers of columns that need one, by index, given the types that DuckDB's library describes."""
    carriers = {index: carrier_of(kind) for index, kind in enumerate(kinds)}
    return {index: carrier for index, carrier in carriers.items() if carrier is not None}


def read_rows(rows: Sequence[Sequence[Any]], carriers: Mapping[int, Carrier]) -> Sequence[Sequence[Any]]:
    """Returns rows with the values that left with ``carriers``."""
    if not carriers:
        return rows
    return [[_read(carriers[at], value) if at in carriers else value for at, value in enumerate(row)] for row in rows]


def is_same(given: Any, held: Any) -> bool:
    """Returns whether DuckDB's Python library has returned a parameter as it was given."""
    match given:
        case list():
            same_length = isinstance(held, list | tuple) and len(held) == len(given)
            return same_length and all(map(is_same, given, held))
        case dict():
            same_keys = isinstance(held, dict) and held.keys() == given.keys()
            return same_keys and all(is_same(value, held[key]) for key, value in given.items())
        case bool() | None:
            return held is given
        case int() | float() if isinstance(held, int | float) and not isinstance(held, bool):
            return Decimal(repr(held)) == Decimal(repr(given))
    return bool(held == given)


def carrier_of(kind: Any) -> Carrier | None:
    """Returns the carrier of a type, or ``None`` if its values leave unchanged."""
    name = str(kind)
    return _CARRIERS.get(name) or _nested_carrier(kind)


def _nested_carrier(kind: Any) -> Carrier | None:
    if kind.id not in _NESTED:
        return None
    children = dict(kind.children) if kind.id != "tuple" else dict(enumerate(child for _, child in kind.children))
    size = children.pop("size", None)
    carriers = {name: carrier_of(child) for name, child in children.items()}
    if not any(carriers.values()):
        return None
    parts = {name: carriers[name] or Carrier(str(child), lambda it: it) for name, child in children.items()}
    match kind.id:
        case "list" | "array":
            bound = "" if size is None else str(size)
            return Carrier(f"{parts['child'].kind}[{bound}]", lambda items: [_read(parts["child"], it) for it in items])
        case "struct":
            members = ", ".join(f"{quote_identifier(str(name))} {part.kind}" for name, part in parts.items())
            return Carrier(f"STRUCT({members})", lambda row: {name: _read(parts[name], it) for name, it in row.items()})
        case "tuple":
            members = ", ".join(part.kind for part in parts.values())
            return Carrier(f"TUPLE({members})", lambda row: [_read(parts[at], it) for at, it in enumerate(row)])
        case "map":
            kinds = f"{children['key']}, {parts['value'].kind}"
            return Carrier(f"MAP({kinds})", lambda row: {key: _read(parts["value"], it) for key, it in row.items()})
    return Carrier("VARCHAR", lambda _: _ONE_OF_MANY)


def _read(carrier: Carrier, value: Any) -> Any:
    return None if value is None else carrier.read(value)


def _moment(value: Any) -> str | Inexpressible:
    """Reads a moment as ISO text: of a query, or of a statement that returns what it has changed."""
    if isinstance(value, datetime.date) and value not in _MAYBE_INFINITE:
        return value.isoformat()
    return _text_moment(value)


def _text_moment(value: Any) -> str | Inexpressible:
    """Returns a moment as ISO text with six decimal places of a second, as in Postgres, or nine if needed."""
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return _OUTSIDE if isinstance(value, str) else _NOT_SELECTED
    day, time, fraction = found.groups()
    zone = "+00:00" if value.endswith("+00") else ""
    return f"{day}T{time}{_decimals(fraction)}{zone}" if time else day


def _time(value: Any) -> str | Inexpressible:
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        return value.isoformat()
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return _NOT_SELECTED
    time, fraction, hours, minutes = found.groups()
    return f"{time}{_decimals(fraction)}{hours or ''}{minutes or (':00' if hours else '')}"


def _decimals(fraction: str | None) -> str:
    if not fraction:
        return ""
    return f".{fraction.ljust(6 if len(fraction) <= 6 else 9, '0')}"


def _interval(value: Any) -> Decimal | Inexpressible:
    found = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return _MONTHS if isinstance(value, str) else _NOT_SELECTED
    days, sign, hours, minutes, seconds = found.groups(default="0")
    time = Decimal(seconds) + int(minutes) * 60 + int(hours) * 3600
    return Decimal("0.0") + int(days) * 86_400 + (-time if sign == "-" else time)


def _json(value: str) -> Any:
    try:
        return parsed_json(value)
    except ValueError as error:
        return Inexpressible(f"cannot read its JSON: {error}")


_NESTED: Final = frozenset({"list", "array", "struct", "tuple", "map", "union"})
_MOMENTS: Final = Carrier("VARCHAR", _moment)
_CARRIERS: Final = {
    **dict.fromkeys(["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"], _MOMENTS),
    "TIMESTAMP_NS": Carrier("VARCHAR", _text_moment),
    "TIME_NS": Carrier("VARCHAR", _time),
    "TIME WITH TIME ZONE": Carrier("VARCHAR", _time),
    "INTERVAL": Carrier("VARCHAR", _interval),
    "JSON": Carrier("JSON", _json),
    "VARIANT": Carrier("JSON", _json),
    "BIGNUM": Carrier("BIGNUM", int),
}
