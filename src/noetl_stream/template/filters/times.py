"""Filters for dates and times: texts in ISO 8601, zones by their IANA names, and no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final, TypeVar

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.attribute_access import kind_of
from noetl_stream.zones import instant, iso_in, zone_named

MAX_CHARS: Final = 100
"""The longest text that is read as a time, and the longest pattern."""

_Made = TypeVar("_Made")

_EXAMPLE: Final = "2026-11-05 or 2026-11-05T09:00:00+01:00"
_DIRECTIVES: Final = frozenset("aAbBdFGHIjmMpSTuVyYz%")
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600}
_DAYS: Final = {"day": 1, "week": 7}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_UNITS: Final = (*_SECONDS, *_DAYS, *_MONTHS)


def date_add(value: Any, amount: Any, unit: Any, zone: Any = None) -> str:
    """Adds an amount of a unit. Days and longer units keep the time of day, in the zone or at the offset of the value.

    A day that the month has not is its last one. A date stays a date if whole days are added.
    """
    moment, unit = _moment("date_add", value, zone), _unit("date_add", unit)
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise EvaluationFailure(f"`date_add` takes a whole number as amount, not {kind_of(amount)}")
    is_date = _is_date(value) and unit not in _SECONDS and zone is None
    return _within_years("date_add", lambda: _text(_added(moment, amount, unit), zone, is_date=is_date))


def date_trunc(value: Any, unit: Any, zone: Any = None) -> str:
    """Truncates to the beginning of a unit, in the zone or at the offset of the value. A week begins on Monday."""
    moment, unit = _moment("date_trunc", value, zone), _unit("date_trunc", unit)
    if unit in _SECONDS:
        seconds = moment.hour * 3_600 + moment.minute * 60 + moment.second
        begin = datetime.combine(moment.date(), time(), moment.tzinfo) + timedelta(
            seconds=seconds - seconds % _SECONDS[unit]
        )
    else:
        begin = datetime.combine(_first_day(moment.date(), unit), time(), moment.tzinfo)
    return _text(begin, zone, is_date=_is_date(value) and unit not in _SECONDS and zone is None)


def date_format(value: Any, pattern: Any, zone: Any = None) -> str:
    """Formats a time by a pattern of ``strftime``, in the zone or at the offset of the value."""
    return _moment("date_format", value, zone).strftime(_pattern("date_format", pattern))


def date_parse(value: Any, pattern: Any, zone: Any = "UTC") -> str:
    """Reads a time by a pattern of ``strptime``, in the zone unless the pattern has an offset."""
    try:
        found = datetime.strptime(_short("date_parse", value), _pattern("date_parse", pattern))
    except ValueError as error:
        raise EvaluationFailure(f"`date_parse`: {error}") from None
    return found.isoformat() if found.tzinfo is not None else _text(found, zone, is_date=False)


def _moment(name: str, value: Any, zone: Any) -> datetime:
    """The time of a text: on the wall clock of the zone if one is given, else at its own offset."""
    text = _short(name, value)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise EvaluationFailure(f"`{name}` takes a time such as {_EXAMPLE}, not {text!r}") from None
    if zone is None:
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if found.tzinfo is None:
        return found
    return _within_years(name, lambda: found.astimezone(_zone(name, zone)).replace(tzinfo=None))


def _text(moment: datetime, zone: Any, *, is_date: bool) -> str:
    if is_date:
        return moment.date().isoformat()
    if zone is None:
        return moment.isoformat()
    rules = _zone("zone", zone)
    return iso_in(instant(moment.replace(tzinfo=None, microsecond=0), rules), rules)


def _added(moment: datetime, amount: int, unit: str) -> datetime:
    if unit in _SECONDS:
        return moment + timedelta(seconds=amount * _SECONDS[unit])
    if unit in _DAYS:
        return moment + timedelta(days=amount * _DAYS[unit])
    months = moment.year * 12 + moment.month - 1 + amount * _MONTHS[unit]
    year, month = divmod(months, 12)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def _first_day(day: date, unit: str) -> date:
    if unit in _DAYS:
        return day - timedelta(days=day.weekday() if unit == "week" else 0)
    month = (day.month - 1) // _MONTHS[unit] * _MONTHS[unit] + 1
    return day.replace(month=month, day=1)


def _within_years(name: str, made: Callable[[], _Made]) -> _Made:
    try:
        return made()
    except (OverflowError, ValueError):
        raise EvaluationFailure(f"`{name}`: the result is outside the years 1 to 9999") from None


def _is_date(value: str) -> bool:
    return len(value) == 10


def _short(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationFailure(f"`{name}` takes a time such as {_EXAMPLE}, not {kind_of(value)}")
    if len(value) > MAX_CHARS:
        raise EvaluationFailure(f"`{name}` takes texts of at most {MAX_CHARS} characters, not {len(value):,}")
    return value


def _pattern(name: str, pattern: Any) -> str:
    text = _short(name, pattern)
    unknown = sorted(set(re.findall(r"%(.?)", text)) - _DIRECTIVES)
    if unknown:
        known = ", ".join(f"%{one}" for one in sorted(_DIRECTIVES, key=str.lower))
        raise EvaluationFailure(f"`{name}` does not know `%{unknown[0]}`; it knows {known}")
    return text.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")


def _unit(name: str, unit: Any) -> str:
    found = unit.removesuffix("s") if isinstance(unit, str) else ""
    if found not in _UNITS:
        raise EvaluationFailure(f"`{name}` takes a unit, one of {', '.join(_UNITS)}, not {unit!r:.40}")
    return found


def _zone(name: str, zone: Any) -> tzinfo:
    try:
        return zone_named(zone)
    except (KeyError, TypeError):
        raise EvaluationFailure(f"`{name}`: there is no time zone {zone!r:.60}: write its IANA name") from None


TIME_FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "date_add": date_add,
    "date_trunc": date_trunc,
    "date_format": date_format,
    "date_parse": date_parse,
}
