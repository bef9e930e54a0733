"""Durations, days and times as documents write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from noetl_stream.schedule.recurrence import DAY_S, END_MS
from noetl_stream.schedule.zones import instant, midnight

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": DAY_S}
DURATION: Final = r"^[1-9][0-9]{0,7}[smhd]$"
DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?$"


def read_duration(text: str) -> int | None:
    """The seconds of a duration: ``30s``, ``15m``, ``6h`` or ``2d``; ``None`` if it is not written so."""
    return int(text[:-1]) * SECONDS[text[-1]] if re.fullmatch(DURATION, text) else None


def read_day(text: str) -> date | None:
    """The day in ``2026-12-25``; ``None`` if it is not one from 1970 to 2199."""
    found = _moment(text, DAY)
    return found.date() if found is not None and _is_near(found.replace(tzinfo=UTC)) else None


def read_time(text: str, zone: tzinfo) -> int | None:
    """The instant in ``2026-11-05T09:00``, with or without seconds and offset; ``None`` if it is not written so.

    Args:
        zone: The zone of a time without an offset.
    """
    found = _moment(text, TIME)
    if found is None or not _is_near(found.replace(tzinfo=found.tzinfo or UTC)):
        return None
    if found.tzinfo is None:
        return instant(found, zone)
    return round(found.timestamp()) * 1000


def read_bound(text: str, zone: tzinfo, *, is_last: bool) -> int | None:
    """The instant in a day or time that bounds a window: see :func:`bound_ms`. ``None`` if it is neither."""
    day = read_day(text)
    if day is not None:
        return bound_ms(day, zone, is_last=is_last)
    at_ms = read_time(text, zone)
    return None if at_ms is None else at_ms + is_last


def bound_ms(bound: date, zone: tzinfo, *, is_last: bool) -> int:
    """The instant of a day or time that bounds a range.

    Args:
        zone: The zone of a day, and of a time without an offset.
        is_last: Whether the bound ends the range, which includes its whole day or time: the first instant after it.
    """
    if not isinstance(bound, datetime):
        return midnight(bound + timedelta(days=is_last), zone)
    if bound.tzinfo is None:
        return instant(bound.replace(microsecond=0), zone) + is_last
    return int(bound.timestamp() * 1000) + is_last


def needs_zone(text: str) -> bool:
    """Whether a time means different instants in different zones."""
    found = _moment(text, TIME)
    return found is None or found.tzinfo is None


def _moment(text: str, form: str) -> datetime | None:
    if not re.fullmatch(form, text, re.ASCII):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _is_near(moment: datetime) -> bool:
    return moment.year >= 1970 and moment.timestamp() * 1000 < END_MS
