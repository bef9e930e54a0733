"""Time zones by the rules of the package ``tzdata``, which are the same on every machine.

Wall-clock times are naive datetimes, instants are ms since the epoch.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_MS: Final = 1000


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The names of all zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


def zone_of_place(name: str) -> str | None:
    """The zone of a place whose region is left out: of ``Berlin`` that is ``Europe/Berlin``; ``None`` if unknown."""
    last = name.rpartition("/")[2].lower()
    return next((one for one in sorted(zone_names()) if one.rpartition("/")[2].lower() == last), None)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> tzinfo:
    """The zone of this name, which is one of :func:`zone_names`."""
    if name not in zone_names():
        raise KeyError(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


def wall_clock(at_ms: int, zone: tzinfo) -> datetime:
    """The wall-clock time of the zone at an instant, to the second."""
    return _local(at_ms // _SECOND_MS, zone).replace(tzinfo=None, fold=0)


def instant(wall: datetime, zone: tzinfo) -> int:
    """The instant at which the clocks of the zone show a time; for a time that they show twice, the first.

    A skipped time is the moment at which the clocks are set forward.
    """
    before, after = (_seconds(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if _local(before, zone).replace(tzinfo=None) == wall:
        return before * _SECOND_MS
    # The clocks were set between `after` and `before`: PEP 495 reads a skipped time by the offset on either side.
    earlier, later = after, before
    offset = _local(earlier, zone).utcoffset()
    while later - earlier > 1:
        middle = (earlier + later) // 2
        if _local(middle, zone).utcoffset() == offset:
            earlier = middle
        else:
            later = middle
    return later * _SECOND_MS


def midnight(day: date, zone: tzinfo) -> int:
    """The instant at which a day begins in the zone."""
    return instant(datetime(day.year, day.month, day.day), zone)


def iso_in(at_ms: int, zone: tzinfo) -> str:
    """An instant as shown by the clocks of the zone, with their offset: ``2026-03-29T03:00:00+02:00``."""
    return _local(at_ms // _SECOND_MS, zone).isoformat()


def offset_s(at_ms: int, zone: tzinfo) -> int:
    """The offset of the zone from UTC at an instant, in seconds."""
    offset = _local(at_ms // _SECOND_MS, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _local(seconds: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=seconds)).astimezone(zone)


def _seconds(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(seconds=1)
