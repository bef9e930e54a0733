"""Filters for dates and times: texts in ISO 8601, zones by their IANA names, and no clock."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.attribute_access import kind_of
from noetl_stream.zones import instant, zone_named, zone_of_place

MAX_CHARS: Final = 100
"""The longest text that is read as a time, and the longest pattern."""

_Made = TypeVar("_Made")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_EXAMPLE: Final = "2026-11-05 or 2026-11-05T09:00:00+01:00"
_DIRECTIVES: Final = frozenset("aAbBdFGHIjmMpSTuVyYz%")
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600}
_DAYS: Final = {"day": 1, "week": 7}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_UNITS: Final = (*_SECONDS, *_DAYS, *_MONTHS)


def date_add(value: Any, amount: Any, unit: Any, zone: Any = None) -> str:
    """Adds an amount of a unit. Days and longer units keep the time of day, in the zone or at the offset of the value;
    hours and shorter ones are elapsed time.

    A day that the month does not have becomes its last one. A date stays a date if whole days are added.
    """
    moment, unit = _moment("date_add", value, zone), _unit("date_add", unit)
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise EvaluationFailure(f"`date_add` takes a whole number as amount, not {kind_of(amount)}")
    if unit in _SECONDS:
        return _within_years("date_add", lambda: _text(_later(moment, amount * _SECONDS[unit])))
    wall = _within_years("date_add", lambda: _added(moment.replace(tzinfo=None), amount, unit))
    if _is_date(value) and zone is None:
        return wall.date().isoformat()
    return _within_years("date_add", lambda: _text(_at(wall, moment.tzinfo, zone)))


def date_trunc(value: Any, unit: Any, zone: Any = None) -> str:
    """Truncates to the beginning of a unit, in the zone or at the offset of the value. A week begins on Monday."""
    moment, unit = _moment("date_trunc", value, zone), _unit("date_trunc", unit)
    if unit not in _SECONDS:
        begin = _first_day(moment.date(), unit)
        if _is_date(value) and zone is None:
            return begin.isoformat()
        return _text(_at(datetime.combine(begin, time()), moment.tzinfo, zone))
    seconds = moment.hour * 3_600 + moment.minute * 60 + moment.second
    wall = datetime.combine(moment.date(), time()) + timedelta(seconds=seconds - seconds % _SECONDS[unit])
    again = wall.replace(tzinfo=moment.tzinfo, fold=1)  # where the clocks show a time twice, the one before the value
    is_there = again.astimezone(UTC) <= moment.astimezone(UTC) and _later(again, 0).replace(tzinfo=None) == wall
    return _text(again if is_there else _at(wall, moment.tzinfo, zone))


def date_format(value: Any, pattern: Any, zone: Any = None) -> str:
    """Formats a time by a pattern of ``strftime``, in the zone or at the offset of the value."""
    return _moment("date_format", value, zone).strftime(_pattern("date_format", pattern))


def date_parse(value: Any, pattern: Any, zone: Any = "UTC") -> str:
    """Reads a time by a pattern of ``strptime``, in the zone unless the pattern has an offset."""
    try:
        found = datetime.strptime(_short("date_parse", value), _pattern("date_parse", pattern))
    except ValueError as error:
        raise EvaluationFailure(f"`date_parse`: {error}") from None
    return found.isoformat() if found.tzinfo is not None else _text(_at(found, UTC, zone))


def _moment(name: str, value: Any, zone: Any) -> datetime:
    """The time of a text: by the clocks of the zone if one is given, else at its own offset."""
    text = _short(name, value)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise EvaluationFailure(f"`{name}` takes a time such as {_EXAMPLE}, not {text!r}") from None
    if found.tzinfo is None:
        return _at(found, UTC, zone)
    return found if zone is None else _within_years(name, lambda: found.astimezone(_zone(name, zone)))


def _at(wall: datetime, own: tzinfo | None, zone: Any) -> datetime:
    """The moment when clocks of the zone show ``wall``, the first of two; without a zone, with the offset ``own``."""
    if zone is None:
        return wall.replace(tzinfo=own)
    rules = _zone("zone", zone)
    return (_EPOCH + timedelta(milliseconds=instant(wall.replace(microsecond=0), rules))).astimezone(rules)


def _later(moment: datetime, seconds: int) -> datetime:
    return (moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(moment.tzinfo)


def _text(moment: datetime) -> str:
    is_in_zone = isinstance(moment.tzinfo, ZoneInfo)
    return (moment.replace(microsecond=0) if is_in_zone else moment).isoformat()


def _added(moment: datetime, amount: int, unit: str) -> datetime:
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
    word = str(unit).removesuffix("s")
    if not isinstance(unit, str) or word not in _UNITS:
        raise EvaluationFailure(f"`{name}` takes a unit, one of {', '.join(_UNITS)}, not {unit!r:.40}")
    return word


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


LATER: Final = object()
"""The value of an argument that is only known when a template is rendered."""
_CALLS: Final = {name: inspect.signature(called) for name, called in TIME_FILTERS.items()}
_EXAMPLES: Final = {
    "date_add": "date_add(1, 'day')",
    "date_trunc": "date_trunc('day')",
    "date_format": "date_format('%Y-%m-%d')",
    "date_parse": "date_parse('%d.%m.%Y')",
}
_LETTERS: Final = {
    **dict.fromkeys(("YYYY", "yyyy"), "%Y"),
    **dict.fromkeys(("DD", "dd"), "%d"),
    **dict.fromkeys(("HH", "hh"), "%H"),
    "MM": "%m",
    "mm": "%M",
    "ss": "%S",
}
"""Letters of patterns of other languages, with the directives of ``strftime``."""


def call_problem(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[str, str] | None:
    """The message and hint for a call of a filter of dates that can never succeed, or whose pattern has no directive.

    Args:
        args: Those behind the value, :data:`LATER` where they are computed.
    """
    signature, example = _CALLS[name], f"write `{_EXAMPLES[name]}`"
    try:
        given = signature.bind(LATER, *args, **keywords).arguments
    except TypeError:
        _, *names = signature.parameters
        return f"`{name}` takes ({', '.join(names)}), the last of which may be left out", example
    known = {word: value for word, value in given.items() if value is not LATER}
    try:
        if "unit" in known:
            _unit(name, known["unit"])
        if "pattern" in known and "%" not in _pattern(name, known["pattern"]):
            meant = re.sub("|".join(_LETTERS), lambda found: _LETTERS[found[0]], known["pattern"])
            hint = f"write `{name}('{meant}')`" if meant != known["pattern"] and "'" not in meant else example
            return f"`{name}`: the pattern {known['pattern']!r} has no directive such as `%Y`", hint
        if known.get("zone") is not None:
            _zone(name, known["zone"])
    except EvaluationFailure as failure:
        zone = zone_of_place(str(known.get("zone")))
        return str(failure), f"did you mean `{zone}`?" if zone and zone != known["zone"] else example
    return None
