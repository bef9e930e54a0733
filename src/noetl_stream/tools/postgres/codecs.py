"""Codecs of dates, times and intervals for Postgres, as the numbers that it stores.

The driver's own classes would lose values: it stores the days 9999-12-31 and 0001-01-01 as ``infinity`` and
``-infinity`` and reads these as those days, takes a month for 30 days, and fails a whole result for one year before 1.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from noetl_stream.tools.sql import Inexpressible

if TYPE_CHECKING:
    import asyncpg

_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_EPOCH_DAY: Final = datetime.date(2000, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(2000, 1, 1)  # of timestamps without a zone
_EPOCH_UTC: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_OUTSIDE: Final = Inexpressible("the date is infinite, or outside of the years 1 to 9999")
_MONTHS: Final = Inexpressible("an interval with months, or an infinite one, has no number of seconds")


def encoded_date(date: datetime.date) -> tuple[int]:
    """Encodes a date as days."""
    return (date.toordinal() - _EPOCH_DAY,)


def encoded_time(time: datetime.time) -> tuple[int, ...]:
    """Encodes a time of day; with a zone, followed by the seconds that the zone is behind UTC."""
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    offset = time.utcoffset()
    zone = () if offset is None else (-round(offset.total_seconds()),)
    return seconds * _SECOND_US + time.microsecond, *zone


def encoded_timestamp(moment: datetime.datetime) -> tuple[int]:
    """Encodes a timestamp, with or without a zone."""
    return ((moment - (_EPOCH if moment.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND,)


def encoded_interval(seconds: float) -> tuple[int, int, int]:
    """Encodes an interval of seconds.

    Raises:
        ValueError: Postgres keeps microseconds, and not as many.
    """
    microseconds = Decimal(repr(seconds)).scaleb(6)
    if microseconds != int(microseconds) or abs(microseconds) >= 2**63:
        raise ValueError("interval must be a number of seconds with at most 6 decimal places, below 9e12")
    return 0, 0, int(microseconds)


def _date(given: tuple[int]) -> str | Inexpressible:
    try:
        return datetime.date.fromordinal(given[0] + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        return _OUTSIDE


def _time(given: tuple[int]) -> str:
    if given[0] == _DAY_US:
        return "24:00:00"
    return (_EPOCH + given[0] * _MICROSECOND).time().isoformat()


def _time_with_zone(given: tuple[int, int]) -> str:
    zone = datetime.timezone(datetime.timedelta(seconds=-given[1]))
    return _time(given[:1]) + datetime.time(tzinfo=zone).isoformat().removeprefix("00:00:00")


def _timestamp(given: tuple[int], epoch: datetime.datetime = _EPOCH) -> str | Inexpressible:
    try:
        return (epoch + given[0] * _MICROSECOND).isoformat()
    except OverflowError:
        return _OUTSIDE


def _interval(given: tuple[int, int, int]) -> Decimal | Inexpressible:
    months, days, microseconds = given
    return _MONTHS if months else Decimal(days * _DAY_US + microseconds).scaleb(-6)


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "date": _date,
    "time": _time,
    "timetz": _time_with_zone,
    "timestamp": _timestamp,
    "timestamptz": partial(_timestamp, epoch=_EPOCH_UTC),
    "interval": _interval,
}


async def set_codecs(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Sets the codecs of a new connection. Values are encoded by :mod:`~noetl_stream.tools.postgres.params`."""
    for name, decoder in _DECODERS.items():
        await connection.set_type_codec(name, schema="pg_catalog", encoder=tuple, decoder=decoder, format="tuple")
