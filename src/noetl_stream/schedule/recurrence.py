"""The occurrences of a schedule: pure, without a clock, and every search ends (LANGUAGE §15 *Schedule*).

Instants are whole seconds, in ms since the epoch. The days and times of a schedule are in its time zone. A time that
clocks show twice is one occurrence, at the first; all times that they skip are one occurrence, at the moment at which
they are set forward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field
from msgspec.structs import asdict

from noetl_stream.model.aggregates import Timetable
from noetl_stream.zones import instant, midnight, wall_clock, zone_named

DAY_S: Final = 86_400
FIRST_DAY: Final = date(1970, 1, 1)
"""The day from which whole days and other intervals are counted."""
END_MS: Final = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""The end of all schedules: none has an occurrence from then on."""


CRON_FIELDS: Final = (
    ("second", 60, "s", "minute"),
    ("minute", 60, "m", "hour"),
    ("hour", 24, "h", "day"),
    ("day of the month", 31, "d", "month"),
    ("month", 12, "", "year"),
    ("day of the week", 7, "d", "week"),
)
"""The fields of a cron expression: name, size, unit of durations, and the period after which the field starts over."""


class InvalidCron(ValueError):
    """A cron expression is unreadable or contradictory. The message names the bad field.

    Attributes:
        hint: The advice to the author.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Recurrence(Timetable, frozen=True, kw_only=True):
    """A timetable that can be searched. The day from which whole days are counted is :data:`FIRST_DAY`."""

    @classmethod
    def from_timetable(cls, timetable: Timetable) -> Recurrence:
        return cls(**asdict(timetable))

    def next_after(self, after_ms: int) -> int | None:
        """The first occurrence after an instant; ``None`` after the last."""
        return next(self.occurrences(after_ms), None)

    def last_before(self, before_ms: int) -> int | None:
        """The last occurrence before an instant; ``None`` before the first.

        The search window doubles until it contains an occurrence, and is then halved; occurrences are never listed one
        by one.
        """

        def is_after(begin_ms: int) -> bool:
            return next(self.occurrences(begin_ms - 1, before_ms - 1), None) is not None

        first_ms, back_ms = max(self.from_ms, 0), 60_000
        low = high = before_ms
        while low > first_ms and not is_after(low):
            low, high = max(before_ms - back_ms, first_ms), low
            back_ms *= 2
        if not is_after(low):
            return None
        while high - low > 1000:
            middle = (low + high) // 2
            low, high = (middle, high) if is_after(middle) else (low, middle)
        return next(self.occurrences(low - 1, before_ms - 1))

    def occurrences(self, after_ms: int, through_ms: int = END_MS) -> Iterator[int]:
        """The occurrences after one instant, and up to another."""
        zone, ahead = zone_named(self.zone), dict[str, int | None]()
        after_ms, end_ms = max(after_ms, self.from_ms - 1), min(self.before_ms or END_MS, through_ms + 1)
        while (found := self._candidate(after_ms, zone, ahead)) is not None and found < end_ms:
            after_ms = found
            day = wall_clock(found, zone).date()
            if day not in self.exclude:
                yield found
            else:  # skip to the next day, or a day with many occurrences would take long
                after_ms = max(found, midnight(day + timedelta(days=1), zone) - 1)

    def _candidate(self, after_ms: int, zone: tzinfo, ahead: dict[str, int | None]) -> int | None:
        """The next occurrence, without bounds and exceptions.

        Args:
            ahead: The next time of each expression, as far as searched: a rare one takes milliseconds.
        """
        if self.every_s:
            return _next_interval(self.every_s, after_ms, zone)
        if self.at_ms:
            place = bisect_right(self.at_ms, after_ms)
            return self.at_ms[place] if place < len(self.at_ms) else None
        for expression in self.cron:
            known = ahead.get(expression, -1)
            if known is not None and known <= after_ms:
                ahead[expression] = _next_cron(expression, after_ms, zone)
        return min((one for one in ahead.values() if one is not None), default=None)


class CronStep(NamedTuple):
    """A part of a cron expression with a step, such as ``*/15``: every ``step``-th of this field's ``size`` values."""

    text: str
    field: int
    step: int
    size: int

    @property
    def interval(self) -> str:
        """The duration that the step suggests; empty for months."""
        unit = CRON_FIELDS[self.field][2]
        return f"{self.step}{unit}" if unit else ""

    @property
    def is_uneven(self) -> bool:
        """Whether the distance between values changes where the field starts over."""
        name, size, *_ = CRON_FIELDS[self.field]
        is_counted = name in ("second", "minute", "hour", "day of the month")
        return self.text.startswith("*") and is_counted and self.step > 1 and bool(size % self.step)


def cron_steps(expression: str) -> Iterator[CronStep]:
    """The parts with a step of a cron expression, as far as they are readable."""
    fields = expression.upper().split()
    for number, field in enumerate(fields, len(CRON_FIELDS) - len(fields)):
        for part in field.split(","):
            term, slash, step = part.partition("/")
            if slash:
                values = {value for value in Field(number).parse(term) if isinstance(value, int)}
                is_range = term != "*" and len(values) > 1
                yield CronStep(part, number, int(step), len(values) if is_range else CRON_FIELDS[number][1])


def check_cron(expression: str) -> None:
    """Checks a cron expression.

    Raises:
        InvalidCron: it is not a cron expression, has a step that leads nowhere, or names a time that never comes.
    """
    for part in expression.upper().replace(",", " ").split():
        first, dash, last = part.partition("/")[0].partition("-")
        if dash and first == last and "/" in part:  # the library reads 5-5/2 as 5/2, cron as 5
            raise InvalidCron("a range of one value with a step")
        if first in ("L", "LW") and "/" in part:  # the library drops the step
            raise InvalidCron(f"a step after `{first}`")
    if next(_times_after(expression, datetime(2000, 1, 1)), None) is None:
        raise InvalidCron("that day never comes")
    for one in cron_steps(expression):
        if one.step > one.size:
            name, *_, whole = CRON_FIELDS[one.field]
            message = f"`{one.text}` has a step of {one.step} over {one.size} values of the {name}"
            raise InvalidCron(f"{message}, so it is due once each {whole}", _without_step(one))


def _without_step(one: CronStep) -> str:
    first = one.text.partition("/")[0].partition("-")[0].replace("*", "0")
    return f"write every: {one.interval} in place of `cron`, or `{first}`" if one.interval else f"write `{first}`"


def jitter_of(path: str, occurrence_ms: int, most_s: int) -> int:
    """The jitter of an occurrence: its delay in ms, from 0 to ``most_s`` seconds.

    It is the same at every call, and spreads schedules that are due together.
    """
    drawn = int.from_bytes(sha256(f"{path}\n{occurrence_ms}".encode()).digest()[:8])
    return drawn % (most_s * 1000 + 1)


def _next_cron(expression: str, after_ms: int, zone: tzinfo) -> int | None:
    # On the wall clock, so that changes of the clocks are handled in one place.
    for wall in _times_after(expression, wall_clock(after_ms, zone)):
        found = instant(wall, zone)
        if found > after_ms:  # otherwise the clocks show it a second time
            return found
    return None


def _times_after(expression: str, wall: datetime) -> CronSim:
    """The times on the wall clock of a cron expression. The search ends after 50 years without one."""
    try:
        return CronSim(expression, wall)
    except CronSimError as error:
        message = str(error).lower()
        field = message.removeprefix("bad ")
        found = dict(zip(reversed(_RANGES), reversed(expression.split()), strict=False)).get(field)
        raise InvalidCron(f"{message} `{found}`" if found else message, _range_of(field)) from None


_RANGES: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L for the last",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7, or SUN to SAT",
}


def _range_of(field: str) -> str:
    """The hint with the values of a field of a cron expression; empty if no field has that name."""
    return (
        f"the {field} is {_RANGES[field]}, `*`, a list `1,3`, a range `1-5` or a step `*/2`" if field in _RANGES else ""
    )


def _next_interval(every_s: int, after_ms: int, zone: tzinfo) -> int:
    if every_s % DAY_S:
        start_ms, every_ms = midnight(FIRST_DAY, zone), every_s * 1000
        return start_ms + ((after_ms - start_ms) // every_ms + 1) * every_ms
    days = every_s // DAY_S
    passed = (wall_clock(after_ms, zone).date() - FIRST_DAY).days
    number = passed // days
    while (found := midnight(FIRST_DAY + timedelta(days=number * days), zone)) <= after_ms:
        number += 1
    return found
