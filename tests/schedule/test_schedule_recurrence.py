"""When schedules are due, compared with a walk through the minutes of real zones (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import in_gate, times
from noetl_stream.schedule.recurrence import END_MS, InvalidCron, Recurrence, check_cron, jitter_of
from noetl_stream.zones import instant, iso_in, midnight, offset_s, wall_clock, zone_named, zone_names

MINUTE_MS = 60_000
DAY_MS = 86_400_000
DAYS_WALKED = 4
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def ms(*parts: int) -> int:
    """An instant in UTC."""
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


class Walk(NamedTuple):
    """Some days in which clocks do something."""

    zone: str
    start: tuple[int, int, int]


WALKS = [
    Walk("UTC", (2027, 12, 30)),
    Walk("Europe/Berlin", (2026, 3, 27)),
    Walk("Europe/Berlin", (2026, 10, 23)),
    Walk("Europe/Berlin", (2028, 2, 27)),
    Walk("America/New_York", (2026, 3, 6)),
    Walk("America/New_York", (2026, 10, 30)),
    Walk("Asia/Kolkata", (2026, 12, 29)),
    Walk("Australia/Lord_Howe", (2026, 4, 3)),  # by half an hour
    Walk("Australia/Lord_Howe", (2026, 10, 2)),
    Walk("America/Sao_Paulo", (2018, 2, 16)),  # from midnight to the day before
    Walk("America/Sao_Paulo", (2018, 11, 2)),  # over midnight
    Walk("America/St_Johns", (2010, 11, 5)),  # at one minute past midnight
    Walk("Pacific/Apia", (2011, 12, 28)),  # over a whole day
]
NAMED = ["* * * * *", "30 2 * * *", "0 0 * * *", "*/20 1-3 * * *", "0 0 1 1 *", "59 23 31 DEC *", "0 12 29 2 *"]
NAMED += ["15 10 * * mon-fri", "0 9 13 * FRI", "0 9 */2 * 5-7", "5 4 * jan,oct-dec 0", "7/13 * * * *", "0 2,3 * * *"]


def random_field(random: Random, least: int, most: int, names: list[str]) -> str:
    def value(at: int) -> str:
        return random.choice([names[at - least], str(at)]) if names and at - least < len(names) else str(at)

    def part() -> str:
        first = random.randint(least, most)
        last = random.randint(min(first + 1, most), most)
        if first == last:
            return value(first)
        form = random.choice(["{0}", "{0}-{1}", "{0}-{1}/{2}", "*/{2}"])
        return form.format(value(first), value(last), random.randint(1, most))

    return "*" if random.random() < 0.4 else ",".join(part() for _ in range(random.choice([1, 1, 2, 3])))


def random_expression(random: Random) -> str:
    fields = [(0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 6, WEEKDAYS)]
    return " ".join(random_field(random, least, most, names) for least, most, names in fields)


EXPRESSIONS = [*NAMED, *(random_expression(Random(seed)) for seed in range(times(6)))]


def allowed(field: str, least: int, most: int, names: list[str]) -> frozenset[int]:
    """The values that a field names, read in the plainest way."""

    def number(text: str) -> int:
        return names.index(text.upper()) + least if text.upper() in names else int(text)

    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        low = least if span == "*" else number(first)
        high = most if span == "*" or (step and not last) else number(last or first)
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


class Expression:
    """A cron expression that can only say whether it names a minute."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = text.split()
        self.minutes, self.hours = allowed(minute, 0, 59, []), allowed(hour, 0, 23, [])
        self.days, self.months = allowed(day, 1, 31, []), allowed(month, 1, 12, MONTHS)
        self.weekdays = {value % 7 for value in allowed(weekday, 0, 7, WEEKDAYS)}
        self.needs_both = day.startswith("*") or weekday.startswith("*")

    def names(self, wall: datetime) -> bool:
        days = (wall.day in self.days, wall.isoweekday() % 7 in self.weekdays)
        is_day = all(days) if self.needs_both else any(days)
        return is_day and wall.month in self.months and wall.hour in self.hours and wall.minute in self.minutes


class Shown(NamedTuple):
    """An instant, and the minutes on the wall clock that begin then for the first time, or are skipped then."""

    at_ms: int
    minutes: list[datetime]


@cache
def walked(walk: Walk) -> list[Shown]:
    zone, found, seen = zone_named(walk.zone), [], set[datetime]()
    start_ms = ms(*walk.start)
    before = wall_clock(start_ms - DAY_MS, zone)
    for at_ms in range(start_ms - DAY_MS, start_ms + DAYS_WALKED * DAY_MS, MINUTE_MS):
        wall = wall_clock(at_ms, zone)
        minutes = []
        passed = before + timedelta(minutes=1)
        while passed <= wall:
            if passed not in seen:
                minutes.append(passed)
            passed += timedelta(minutes=1)
        seen.update(minutes)
        before = wall
        if minutes and at_ms >= start_ms:
            found.append(Shown(at_ms, minutes))
    return found


@pytest.mark.parametrize("walk", in_gate(WALKS, one_of=3), ids=lambda walk: f"{walk.zone}-{walk.start}")
def test_cron_is_due_where_a_walk_through_all_minutes_finds_a_time_it_names(walk: Walk) -> None:
    shown = walked(walk)
    start_ms = ms(*walk.start)
    for text in EXPRESSIONS:
        expression = Expression(text)
        expected = [at_ms for at_ms, minutes in shown if any(map(expression.names, minutes))]
        if not expected and "29 2" not in text:
            continue
        recurrence = Recurrence(zone=walk.zone, cron=(text,))
        found = list(recurrence.occurrences(start_ms - 1, start_ms + DAYS_WALKED * DAY_MS - 1))
        assert found == expected, text


@pytest.mark.parametrize("walk", in_gate(WALKS, one_of=3), ids=lambda walk: f"{walk.zone}-{walk.start}")
def test_from_any_instant_the_next_occurrence_is_the_same(walk: Walk) -> None:
    start_ms, random = ms(*walk.start), Random(1)
    end_ms = start_ms + DAYS_WALKED * DAY_MS
    for recurrence in (
        Recurrence(zone=walk.zone, cron=("*/20 0-3 * * *", "30 2 * * *")),
        Recurrence(zone=walk.zone, every_s=5400),
        Recurrence(zone=walk.zone, every_s=86_400),
    ):
        listed = list(recurrence.occurrences(start_ms, end_ms))
        assert all(a < b for a, b in pairwise(listed))
        for _ in range(50):
            after_ms = random.randrange(start_ms, listed[-1])
            assert recurrence.next_after(after_ms) == next(one for one in listed if one > after_ms)
        assert [recurrence.next_after(one - 1) for one in listed] == listed


def local(recurrence: Recurrence, after_ms: int, count: int) -> list[str]:
    zone = zone_named(recurrence.zone)
    return [iso_in(one, zone) for one in islice(recurrence.occurrences(after_ms), count)]


def test_a_skipped_time_is_due_when_the_clocks_are_set_forward_and_a_repeated_one_the_first_time() -> None:
    nightly = Recurrence(zone="Europe/Berlin", cron=("30 2 * * *",))
    assert local(nightly, ms(2026, 3, 28, 12), 2) == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    assert local(nightly, ms(2026, 10, 24, 12), 2) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]


def test_times_skipped_together_are_one_occurrence() -> None:
    often = Recurrence(zone="America/New_York", cron=("*/10 2 * * *", "0 3 * * *"))
    assert local(often, ms(2026, 3, 8, 5), 2) == ["2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00"]


def test_seconds_stand_in_front_and_follow_the_same_rules() -> None:
    found = local(Recurrence(zone="Europe/Berlin", cron=("*/30 59 1,2 * * *",)), ms(2026, 3, 29, 0, 58), 4)
    assert found[:3] == ["2026-03-29T01:59:00+01:00", "2026-03-29T01:59:30+01:00", "2026-03-29T03:00:00+02:00"]
    every_second = Recurrence(zone="Europe/Berlin", cron=("* * * * * *",))
    assert local(every_second, ms(2026, 10, 25, 0, 59, 59) + 999, 1) == ["2026-10-25T03:00:00+01:00"]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 L * *", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 LW * *", ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-28"]),
        ("0 0 * * 5L", ["2028-01-28", "2028-02-25", "2028-03-31"]),
        ("0 0 * * TUE#5", ["2028-02-29", "2028-05-30"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 * 2 MON#5", ["2044-02-29", "2072-02-29"]),
    ],
)
def test_the_last_and_the_nth_day_of_a_month(expression: str, days: list[str]) -> None:
    found = local(Recurrence(cron=(expression,)), ms(2028, 1, 1), len(days))
    assert [one[:10] for one in found] == days


def test_an_interval_of_hours_is_elapsed_time_over_both_clock_changes() -> None:
    for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"):
        found = list(Recurrence(zone=zone, every_s=6 * 3600).occurrences(ms(2026, 1, 1), ms(2027, 1, 1)))
        assert {b - a for a, b in pairwise(found)} == {6 * 3600 * 1000}
        assert (found[0] - midnight(date(1970, 1, 1), zone_named(zone))) % (6 * 3600 * 1000) == 0


def test_an_interval_of_days_is_due_at_the_midnights_of_its_zone() -> None:
    for zone in ("Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata"):
        found = local(Recurrence(zone=zone, every_s=2 * 86_400), ms(2018, 1, 1), 200)
        days = [date.fromisoformat(one[:10]) for one in found]
        assert {(b - a).days for a, b in pairwise(days)} == {2}
        assert (days[0] - date(1970, 1, 1)).days % 2 == 0
        assert {one[11:16] for one in found} <= {"00:00", "01:00"}  # São Paulo sets its clocks forward at midnight


def test_excluded_days_are_whole_days_of_the_zone() -> None:
    recurrence = Recurrence(zone="America/New_York", every_s=3600, exclude=frozenset([date(2026, 11, 1)]))
    found = local(recurrence, ms(2026, 10, 31, 12), 40)
    assert not any(one.startswith("2026-11-01") for one in found)
    assert "2026-10-31T23:00:00-04:00" in found and "2026-11-02T00:00:00-05:00" in found


def test_a_day_that_begins_twice_can_be_excluded() -> None:
    day = date(2010, 11, 6)
    found = Recurrence(zone="America/St_Johns", every_s=60, exclude=frozenset([day])).next_after(ms(2010, 11, 6, 12))
    assert found is not None and iso_in(found, zone_named("America/St_Johns")) == "2010-11-07T00:00:00-02:30"


def test_a_window_bounds_what_is_due() -> None:
    hourly = Recurrence(cron=("0 * * * *",), from_ms=ms(2026, 5, 1), before_ms=ms(2026, 5, 1, 2))
    assert local(hourly, 0, 9) == ["2026-05-01T00:00:00+00:00", "2026-05-01T01:00:00+00:00"]
    assert hourly.next_after(ms(2026, 5, 1, 1)) is None


def test_given_times_are_due_once_each() -> None:
    given_times = Recurrence(at_ms=(ms(2026, 1, 1), ms(2026, 1, 3)), exclude=frozenset([date(2026, 1, 3)]))
    assert list(given_times.occurrences(-1)) == [ms(2026, 1, 1)]


def test_the_search_ends_where_everything_is_excluded() -> None:
    days = frozenset(date(2026, 1, 1) + timedelta(days=number) for number in range(365))
    bounds = {"from_ms": ms(2026, 1, 1), "before_ms": ms(2027, 1, 1)}
    assert Recurrence(cron=("* * * * * *",), exclude=days, **bounds).next_after(0) is None
    assert Recurrence(every_s=1, exclude=days, **bounds).next_after(0) is None
    assert Recurrence(cron=("0 0 * * *",)).next_after(END_MS - 1) is None


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "",
            "* * * *",
            "* * * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
        ),
        *("*/0 * * * *", "1,,2 * * * *", "5-1 * * * *", "a * * * *", "@daily", "* * * * MON#6", "* * ² * *"),
        *("0 0 31 4 *", "0 0 30 2 *", "0 0 */31 * MON#5"),
        "0 5-5/2 * * *",  # which readers of cron expressions read in two ways
        *("*/61 * * * * *", "*/61 * * * *", "* */25 * * *", "* * */32 * *", "* * * */13 *", "* * * * */8"),
        *("50/61 * * * *", "1,2/90 * * * *", "10-20/12 * * * *", "* * * JAN-JUN/7 *", "* * L/2 * *"),
    ],
)
def test_an_invalid_cron_expression_or_one_that_is_never_due_is_refused(expression: str) -> None:
    with pytest.raises(InvalidCron):
        check_cron(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *("*/60 * * * * *", "*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7"),
        *("5/60 * * * *", "10-20/11 * * * *", "0 0 * * MON-FRI/5"),
    ],
)
def test_a_step_as_long_as_its_field_is_taken(expression: str) -> None:
    check_cron(expression)
    assert Recurrence(cron=(expression,)).next_after(ms(2026, 1, 1)) is not None


@given(st.text("0123456789*/,-#LW? MONJAN²", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        check_cron(text)
    except InvalidCron:
        return
    assert Recurrence(zone="Europe/Berlin", cron=(text,)).next_after(ms(2026, 1, 1)) is not None


def test_jitter_is_the_same_each_time_and_spread_over_its_range() -> None:
    drawn = [jitter_of("shop/nightly", at_ms * DAY_MS, 60) for at_ms in range(1000)]
    assert drawn == [jitter_of("shop/nightly", at_ms * DAY_MS, 60) for at_ms in range(1000)]
    assert min(drawn) >= 0 and max(drawn) <= 60_000
    assert {one // 6000 for one in drawn} >= set(range(10))
    assert jitter_of("shop/nightly", 1, 0) == 0
    assert jitter_of("a", DAY_MS, 3600) != jitter_of("b", DAY_MS, 3600)


def changes(zone: str, year: int) -> Iterator[int]:
    """The hours of a year before which the clocks of the zone were set."""
    rules, days = zone_named(zone), range(ms(year, 1, 1), ms(year + 1, 1, 1), DAY_MS)
    for day_ms in days:
        if offset_s(day_ms, rules) != offset_s(day_ms + DAY_MS, rules):
            hours = range(day_ms, day_ms + DAY_MS + 1, 60 * MINUTE_MS)
            yield from (b for a, b in pairwise(hours) if offset_s(a, rules) != offset_s(b, rules))


def test_clocks_that_are_set_within_a_minute() -> None:
    daily = Recurrence(zone="Africa/Monrovia", cron=("30 0 * * *",))  # set forward by 44 min 30 s at midnight
    assert local(daily, ms(1972, 1, 6, 12), 2) == ["1972-01-07T00:44:30+00:00", "1972-01-08T00:30:00+00:00"]


def test_every_zone_gives_back_the_instant_that_its_clocks_show() -> None:
    for name in sorted(zone_names()):
        zone = zone_named(name)
        for at_ms in [*changes(name, 2026), ms(1970, 1, 1), ms(2027, 12, 31, 23, 59, 59)]:
            for near_ms in (at_ms - 1000, at_ms, at_ms + 1000):
                wall = wall_clock(near_ms, zone)
                found = instant(wall, zone)
                assert wall_clock(found, zone) == wall and found <= near_ms


def test_months_have_their_days() -> None:
    monthly = local(Recurrence(zone="Asia/Tokyo", cron=("0 0 31 * *",)), ms(2027, 12, 1), 14)
    expected = [(year, month) for year in (2027, 2028, 2029) for month in range(1, 13)]
    expected = [(y, m) for y, m in expected if calendar.monthrange(y, m)[1] == 31 and (y, m) >= (2027, 12)]
    assert [(int(one[:4]), int(one[5:7])) for one in monthly] == expected[:14]


@pytest.mark.parametrize("walk", in_gate(WALKS, one_of=3), ids=lambda walk: f"{walk.zone} {walk.start}")
@pytest.mark.parametrize("expression", ["*/20 1-3 * * *", "30 2 * * *", "0 12 29 2 *", "* * 1 1 *"])
def test_the_last_occurrence_before_an_instant_is_the_one_whose_next_is_not_before_it(
    walk: Walk, expression: str
) -> None:
    recurrence = Recurrence(cron=(expression,), zone=walk.zone)
    for hours in range(0, 24 * DAYS_WALKED, 5):
        at_ms = ms(*walk.start) + hours * 3_600_000
        found = recurrence.last_before(at_ms)
        assert found is not None and found < at_ms
        following = recurrence.next_after(found)
        assert following is not None and following >= at_ms
        assert recurrence.last_before(found + 1000) == found


def test_no_occurrence_is_before_the_first() -> None:
    first = ms(2026, 12, 20)
    daily = Recurrence(every_s=86_400, zone="UTC", from_ms=first)
    assert [daily.last_before(at_ms) for at_ms in (first, first + 1000, 0)] == [None, first, None]
    yearly = Recurrence(cron=("0 0 1 1 *",), zone="UTC", exclude=(date(2026, 1, 1),))
    assert yearly.last_before(ms(2026, 6, 1)) == ms(2025, 1, 1)
