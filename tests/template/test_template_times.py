"""Dates and times in templates (docs/reference/templates.md *Dates and times*)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.template import ExpressionError, Scope, compile_template, render
from noetl_stream.template.filters.times import date_add, date_format, date_parse, date_trunc
from noetl_stream.zones import zone_named

BERLIN = "Europe/Berlin"
TIMES = st.datetimes(datetime(1971, 1, 2), datetime(2190, 1, 1)).map(lambda one: one.replace(microsecond=0))
ZONES = st.sampled_from([BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


def rendered(expression: str) -> object:
    template = compile_template(f"{{{{ {expression} }}}}", namespaces=frozenset(), bindings={})
    return render(template, Scope({}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'2024-02-29' | date_add(1, 'year')", "2025-02-28"),
        ("'2026-03-31' | date_add(-1, 'months')", "2026-02-28"),
        ("'2026-12-15' | date_add(2, 'quarters')", "2027-06-15"),
        ("'2026-11-05' | date_add(1, 'hour')", "2026-11-05T01:00:00+00:00"),
        ("'2026-11-05' | date_add(amount=1, unit='week')", "2026-11-12"),
        ("'2026-03-28T02:30:00+01:00' | date_add(1, 'day', 'Europe/Berlin')", "2026-03-29T03:00:00+02:00"),
        ("'2026-03-28T02:30:00+01:00' | date_add(1, 'day')", "2026-03-29T02:30:00+01:00"),
        ("'2026-10-25T01:30:00+02:00' | date_add(2, 'hours', 'Europe/Berlin')", "2026-10-25T02:30:00+01:00"),
        ("'2026-10-25T02:45:00+01:00' | date_add(0, 'hours', 'Europe/Berlin')", "2026-10-25T02:45:00+01:00"),
        ("'2026-10-25T02:45:00+01:00' | date_trunc('hour', 'Europe/Berlin')", "2026-10-25T02:00:00+01:00"),
        ("'2026-10-25T02:45:00+02:00' | date_trunc('hour', 'Europe/Berlin')", "2026-10-25T02:00:00+02:00"),
        ("'2026-10-25T02:45:00+01:00' | date_format('%H:%M %z', 'Europe/Berlin')", "02:45 +0100"),
        ("'2026-03-29T01:30:00+01:00' | date_add(1, 'hour', 'Europe/Berlin')", "2026-03-29T03:30:00+02:00"),
        ("'2026-11-05T09:41:59.5Z' | date_trunc('minute')", "2026-11-05T09:41:00+00:00"),
        ("'2026-11-05' | date_trunc('quarter')", "2026-10-01"),
        ("'2026-11-05' | date_trunc('year')", "2026-01-01"),
        ("'2026-11-05' | date_trunc('day', 'Europe/Berlin')", "2026-11-05T00:00:00+01:00"),
        ("'2026-11-05T09:00:00Z' | date_format('%a %' ~ '-d')", "error: `date_format` does not know `%-`"),
        ("'2026-11-05T09:00:00Z' | date_format('%G-W%V, 100 %%')", "2026-W45, 100 %"),
        ("'20261105T0930+0530' | date_parse('%Y%m%dT%H%M%z')", "2026-11-05T09:30:00+05:30"),
        ("'1.1.2026' | date_parse('%Y')", "error: `date_parse`: "),
        ("7 | date_trunc('day')", "error: `date_trunc` takes a time such as"),
        ("'2026-11-05' | date_add(1.5, 'day')", "error: `date_add` takes a whole number"),
        ("'2026-11-05' | date_add(1, 'fort' ~ 'night')", "error: `date_add` takes a unit, one of second"),
        ("'2026-11-05' | date_add(99999999999, 'day')", "error: `date_add`: the result is outside the years"),
        ("'9999-12-31' | date_add(1, 'month')", "error: `date_add`: the result is outside the years"),
        ("'2026-11-05' | date_trunc('day', 'Ber' ~ 'lin')", "error: `zone`: there is no time zone 'Berlin'"),
        ("('1' * 101) | date_trunc('day')", "error: `date_trunc` takes texts of at most 100 characters"),
    ],
)
def test_times_in_templates_are_converted(expression: str, value: str) -> None:
    if value.startswith("error: "):
        with pytest.raises(ExpressionError, match=value.removeprefix("error: ").replace("(", r"\(")):
            rendered(expression)
    else:
        assert rendered(expression) == value


@given(moment=TIMES, zone=ZONES, unit=st.sampled_from(["minute", "hour", "day", "week", "month", "quarter", "year"]))
def test_the_beginning_of_a_unit_is_less_than_one_unit_earlier_and_its_own_beginning(
    moment: datetime, zone: str, unit: str
) -> None:
    value = moment.replace(tzinfo=UTC).isoformat()
    begin = date_trunc(value, unit, zone)
    assert date_trunc(begin, unit, zone) == begin
    wall = moment.replace(tzinfo=UTC).astimezone(zone_named(zone)).replace(tzinfo=None)
    began = datetime.fromisoformat(begin).replace(tzinfo=None)
    assert began <= wall + timedelta(hours=1), "a skipped midnight is the moment at which the clocks are set forward"
    assert wall - began < timedelta(days=367)


@given(moment=TIMES, zone=ZONES, hours=st.integers(-10_000, 10_000))
def test_hours_are_elapsed_time_whatever_the_clocks_do(moment: datetime, zone: str, hours: int) -> None:
    value = moment.replace(tzinfo=UTC)
    later = datetime.fromisoformat(date_add(value.isoformat(), hours, "hours", zone))
    assert later - value == timedelta(hours=hours)


@given(moment=TIMES, zone=ZONES, days=st.integers(-400, 400))
def test_days_keep_the_time_of_day_that_exists(moment: datetime, zone: str, days: int) -> None:
    there = datetime.fromisoformat(date_trunc(moment.replace(tzinfo=UTC).isoformat(), "hour", zone))
    later = datetime.fromisoformat(date_add(there.isoformat(), days, "days", zone))
    moved = later.replace(tzinfo=None) - there.replace(tzinfo=None) - timedelta(days=days)
    assert timedelta(0) <= moved <= timedelta(hours=1)


@given(moment=TIMES)
def test_a_formatted_time_can_be_read_again(moment: datetime) -> None:
    value = moment.replace(tzinfo=UTC).isoformat()
    assert date_parse(date_format(value, "%Y-%m-%d %H:%M:%S"), "%Y-%m-%d %H:%M:%S") == value
