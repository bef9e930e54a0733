"""Documents of ``kind: Schedule``: what is read, refused, and in their JSON Schema (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.playbook.model.sections import Section, keys_of
from noetl_stream.playbook.schedule.schedule_document import (
    ScheduleDocument,
    ScheduleRoot,
    ScheduleSpec,
    ScheduleWindow,
    bound_ms,
    read_schedule,
    schedule_schema,
)
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.zones import wall_clock, zone_named

HEAD = (
    "apiVersion: noetl.io/v2\nkind: Schedule\nmetadata: { name: nightly, path: /shop/nightly, version: '2' }\nspec:\n"
)
NIGHTLY = 'playbook: shop/orders\ncron: [ "0 2 * * MON-FRI" ]\ntimezone: Europe/Berlin'
OF_TIMES = "playbook: a\nat: [ 2026-11-05T09:00 ]\ntimezone: Asia/Tokyo"
EVERY = "playbook: a\nevery: 15m"
ALL = """playbook: /shop/orders
version: '1.0'
workload: { mode: nightly }
labels: { team: shop, tier: 1 }
key: "night={{ schedule.due }}"
cron: [ "0 2 * * MON-FRI", "*/30 0 3 * * SAT" ]
timezone: Europe/Berlin
jitter: 5m
window: { from: 2026-11-01, until: 2026-12-31 }
exclude: [ 2026-12-25 ]
overlap: queue_one
missed: all
missed_within: 6h
pause_after_failures: 3
paused: true"""
SCHEMA = Draft202012Validator(schedule_schema())


def text_of(spec: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in spec.splitlines())


def plain(text: str) -> Any:
    source = read_source(text, Problems("file"))
    assert source is not None
    return source.root.plain()


def read(spec: str) -> ScheduleDocument:
    found = check_document(text_of(spec), {})
    assert found.schedule is not None and found.document is found.schedule, found.diagnostics
    return found.schedule


def found_in(spec: str) -> list[Diagnostic]:
    return list(check_document(text_of(spec), {}, file="s.yaml").diagnostics)


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_every_key_of_a_schedule_is_read() -> None:
    read_one = read(ALL)
    assert (read_one.name, read_one.path, read_one.version) == ("nightly", "shop/nightly", "2")
    assert (read_one.call.path, read_one.call.version, read_one.workload) == ("shop/orders", "1.0", {"mode": "nightly"})
    assert read_one.terms.labels == {"team": "shop", "tier": 1}
    assert read_one.terms.key == "night={{ schedule.due }}"
    assert read_one.recurrence.cron == ("0 2 * * MON-FRI", "*/30 0 3 * * SAT")
    assert read_one.recurrence.exclude == {date(2026, 12, 25)}
    assert (read_one.overlap, read_one.missed) == ("queue_one", "all")
    assert (read_one.jitter_s, read_one.missed_within_s, read_one.pause_after_failures) == (300, 21_600, 3)
    assert read_one.paused


def test_a_window_holds_its_first_and_its_last_day_in_the_zone() -> None:
    window = read(ALL).recurrence
    assert (window.from_ms, window.before_ms) == (ms(2026, 10, 31, 23), ms(2026, 12, 31, 23))
    to_the_minute = read(EVERY + "\nwindow: { from: 2026-11-01T00:00Z, until: 2026-11-01T00:30Z }").recurrence
    assert list(to_the_minute.occurrences(0)) == [ms(2026, 11, 1), ms(2026, 11, 1, 0, 15), ms(2026, 11, 1, 0, 30)]


@pytest.mark.parametrize(
    ("expression", "way"),
    [("*/45 * * * *", "every: 45m"), ("0 */5 * * *", "every: 5h"), ("0 0 */2 * *", "every: 2d")],
)
def test_a_step_that_does_not_divide_its_field_is_a_warning(expression: str, way: str) -> None:
    found = check_document(text_of(NIGHTLY.replace("0 2 * * MON-FRI", expression)), {})
    assert found.schedule is not None
    assert [(one.severity, one.code, way in (one.hint or "")) for one in found.diagnostics] == [
        ("warning", "uneven_step", True)
    ]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Tokyo", "America/Sao_Paulo"])
@pytest.mark.parametrize("last", ["2018-11-03", "2018-11-04", "2026-03-29", "2026-10-25"])
def test_a_range_ends_for_a_backfill_where_a_window_ends(zone: str, last: str) -> None:
    """Also on the days on which clocks change; in Sao Paulo they skipped the midnight of 2018-11-04."""
    window = read(f"playbook: a\nevery: 10m\ntimezone: {zone}\nwindow: {{ until: {last} }}").recurrence
    day, rules = date.fromisoformat(last), zone_named(zone)
    assert (
        window.before_ms
        == bound_ms(day, rules, is_last=True)
        == bound_ms(day + timedelta(days=1), rules, is_last=False)
    )
    due = [wall_clock(at_ms, rules) for at_ms in window.occurrences(bound_ms(day, rules, is_last=False) - 1)]
    assert {at.date() for at in due} == {day} and (due[-1].hour, due[-1].minute) == (23, 50)


def test_times_are_those_of_the_zone_or_have_an_offset() -> None:
    times = (
        "playbook: a\nat: [ 2026-11-05T09:00:30, '2026-11-05 09:00+01:00', 2026-11-05T00:00:30Z ]\ntimezone: Asia/Tokyo"
    )
    assert read(times).recurrence.at_ms == (ms(2026, 11, 5, 0, 0, 30), ms(2026, 11, 5, 8))


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15m", 900), ("6h", 21_600), ("2d", 172_800)])
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert read(f"playbook: a\nevery: {text}").recurrence.every_s == seconds


@pytest.mark.parametrize(
    ("spec", "place", "code", "words"),
    [
        (NIGHTLY.replace("Europe/Berlin", "Berlin"), (7, 13), "unknown_zone", "did you mean `Europe/Berlin`?"),
        (NIGHTLY.replace("Berlin", "Berln"), (7, 13), "unknown_zone", "did you mean `Europe/Berlin`?"),
        (NIGHTLY.replace("Europe/Berlin", "UTC+1"), (7, 13), "unknown_zone", "IANA"),
        (NIGHTLY.replace("MON-FRI", "MON-FRY"), (6, 11), "invalid_cron", "bad day-of-week"),
        (NIGHTLY.replace("0 2 *", "0 2 3 4 5"), (6, 11), "invalid_cron", "wrong number of fields"),
        (NIGHTLY.replace("* * MON-FRI", "31 4 *"), (6, 11), "invalid_cron", "bad day-of-month"),
        (NIGHTLY.replace("0 2", "0 " * 300), (6, 11), "invalid_cron", "256 characters"),
        (NIGHTLY.replace("0 2", "*/90 *"), (6, 11), "invalid_cron", "over 60 values of the minute"),
        (NIGHTLY.replace("0 2", "*/90 *"), (6, 11), "invalid_cron", "every: 90m"),
        (NIGHTLY.replace("0 2", "0 */36"), (6, 11), "invalid_cron", "every: 36h"),
        (NIGHTLY.replace("0 2", "10-20/30 *"), (6, 11), "invalid_cron", "over 11 values of the minute"),
        (NIGHTLY.partition("\ntimezone")[0], (5, 3), "missing_key", "needs `timezone` with `cron`"),
        (OF_TIMES.partition("\ntimezone")[0], (5, 3), "missing_key", "without an offset"),
        (EVERY + "\nexclude: [ 2026-12-25 ]", (5, 3), "missing_key", "`timezone`"),
        (NIGHTLY + "\nevery: 1h", (8, 3), "conflicting_keys", "`every` beside `cron`"),
        (OF_TIMES + "\nevery: 1h", (6, 3), "conflicting_keys", "`at` beside `every`"),
        ("playbook: a", (5, 3), "missing_key", "needs `cron`, `every` or `at`"),
        ("playbook: a\ncron: []\ntimezone: UTC", (6, 9), "invalid_value", "`cron` is empty"),
        ("playbook: a\ncron: 0 2 * * *\ntimezone: UTC", (6, 9), "wrong_type", "must be a list"),
        ("playbook: a\nevery: 15 min", (6, 10), "invalid_value", "write every: 15m"),
        ("playbook: a\nevery: 0m", (6, 10), "invalid_value", "not a duration"),
        ("playbook: a\nevery: 400d", (6, 10), "invalid_value", "at most 366d"),
        (EVERY + "\njitter: 25h", (7, 11), "invalid_value", "at most 1d"),
        (OF_TIMES.replace("11-05", "13-05"), (6, 9), "invalid_value", "not a time"),
        (OF_TIMES.replace("2026", "1969"), (6, 9), "invalid_value", "from 1970"),
        (OF_TIMES.replace("2026", "9999"), (6, 9), "invalid_value", "to 2199"),
        (NIGHTLY + "\nexclude: [ 2026-02-29 ]", (8, 14), "invalid_value", "not a day"),
        (NIGHTLY + "\nwindow: { from: tomorrow }", (8, 19), "invalid_value", "not a day or time"),
        (NIGHTLY + "\nwindow: { from: 2026-02-02, until: 2026-02-01 }", (8, 11), "invalid_value", "ends before"),
        (NIGHTLY + "\nwindow: { form: 2026-02-02 }", (8, 13), "unknown_key", "did you mean `from`?"),
        (NIGHTLY + "\noverlap: skp", (8, 12), "invalid_value", "did you mean `skip`?"),
        (NIGHTLY + "\nmissed: some", (8, 11), "invalid_value", "'last', 'all' or 'none'"),
        (NIGHTLY + "\npause_after_failures: 0", (8, 25), "invalid_value", "greater than or equal to 1"),
        (NIGHTLY + "\nmissed: none\nmissed_within: 1h", (9, 3), "no_effect", "`missed: none`"),
        (NIGHTLY + "\nworkload: '{{ x }}'", (8, 13), "wrong_type", "must be a mapping"),
        (NIGHTLY + "\nworkload: { a: '{{ ctx.x }}' }", (8, 22), "namespace_not_here", "not available here"),
        (NIGHTLY + "\nworkload: { a: '{{ schedule.du }}' }", (8, 18), "unknown_name", "did you mean `schedule.due`?"),
        (
            NIGHTLY + "\nworkload: { a: '{{ schedule.due | date_trunc(6 + 1) }}' }",
            (8, 18),
            "unknown_name",
            "takes a unit",
        ),
        (
            NIGHTLY + "\nworkload: { a: '{{ schedule.due | date_trunc(7) }}' }",
            (8, 37),
            "template_syntax",
            "takes a unit",
        ),
        (NIGHTLY + "\nkey: '{{ schedule.interval }}'", (8, 8), "invalid_value", "`key` must be text"),
        (NIGHTLY + "\nkey: '{{ ctx.x }}'", (8, 12), "namespace_not_here", "not available here"),
        (NIGHTLY + "\nlabels: { a: '{{ x }}' }", (8, 11), "template_not_rendered", "`labels` of a schedule"),
        (NIGHTLY + "\nlabels: { a: [ 1 ] }", (8, 11), "invalid_value", "label `a` must be a text"),
        (NIGHTLY + "\nlabels: night", (8, 11), "wrong_type", "must be a mapping"),
        (NIGHTLY.replace("shop/orders", "shop/orders@1"), (5, 13), "invalid_value", "goes to `version`"),
        (NIGHTLY.replace("shop/orders", "shop//orders"), (5, 13), "invalid_value", "single slashes"),
        (NIGHTLY.replace("playbook", "playbok"), (5, 3), "unknown_key", "did you mean `playbook`?"),
        (NIGHTLY.replace("0 2", "0 25"), (6, 11), "invalid_cron", "bad hour `25`\n  hint: the hour is 0 to 23"),
        (NIGHTLY.replace("* * MON-FRI", "?"), (6, 11), "invalid_cron", "wrong number of fields\n  hint: minute hour"),
        (NIGHTLY + "\nwindow: { from: 01.12.2026 }", (8, 19), "invalid_value", "write from: 2026-12-01"),
        (NIGHTLY + "\nwindow: { until: 31/12/2026 }", (8, 20), "invalid_value", "write until: 2026-12-31"),
        (NIGHTLY + "\nwindow: { until: 01/12/2026 }", (8, 20), "invalid_value", "write a day, 2026-11-05, or"),
        (NIGHTLY + "\ncatchup: true", (8, 3), "unknown_key", "write missed: all"),
        (NIGHTLY + "\nmax_active_runs: 1", (8, 3), "unknown_key", "write overlap: queue_all"),
        (NIGHTLY + "\nstart_date: 2026-01-01", (8, 3), "unknown_key", 'write window: { from: "2026-01-01" }'),
        (NIGHTLY.replace("timezone", "tz"), (7, 3), "unknown_key", "write timezone: Europe/Berlin"),
        ("playbook: a\nschedule: 0 2 * * *\ntimezone: UTC", (6, 3), "unknown_key", 'write cron: [ "0 2 * * *" ]'),
        (NIGHTLY + "\nworkload: { a: '{{ workload.x }}' }", (8, 22), "namespace_not_here", "`schedule` alone"),
        (NIGHTLY + "\nworkload: { a: '{{ ds }}' }", (8, 22), "unbound_name", "`schedule.due | date_format"),
        (OF_TIMES + "\nexclude: [ 2026-11-05 ]", (6, 7), "never_due", "no occurrence before 2200"),
        (NIGHTLY + "\nwindow: { from: 2026-11-07, until: 2026-11-08 }", (6, 9), "never_due", "no occurrence"),
    ],
)
def test_a_mistake_is_named_with_its_place(spec: str, place: tuple[int, int], code: str, words: str) -> None:
    found = [one for one in found_in(spec) if one.code == code]
    assert [(one.line, one.column) for one in found] == [place], found_in(spec)
    assert words in found[0].render()


def test_long_lists_are_refused() -> None:
    crons = ", ".join(['"0 0 * * *"'] * 21)
    [found] = found_in(f"playbook: a\ncron: [ {crons} ]\ntimezone: UTC")
    assert (found.code, "the limit is 20" in found.message) == ("limit_exceeded", True)
    days = ", ".join(["2026-01-01"] * 1001)
    assert [one.code for one in found_in(f"{NIGHTLY}\nexclude: [ {days} ]")] == ["limit_exceeded"]


def test_a_schedule_without_a_spec_is_refused_at_the_top() -> None:
    for spec in ("", "spec: text\n"):
        found = check_document(HEAD.replace("spec:\n", spec), {})
        assert not found.ok and found.diagnostics[0].code in ("missing_key", "wrong_type")


def test_a_check_looks_up_the_playbook_that_it_starts() -> None:
    [call] = check_document(text_of(NIGHTLY), {}).calls
    assert (call.path, call.version) == ("shop/orders", None)
    missing = call.missing_warning("s.yaml")
    assert (missing.line, missing.column, missing.message) == (5, 13, "no playbook `shop/orders` is registered")


def test_limits_of_the_operator_hold_for_the_workload() -> None:
    source = read_source(text_of(NIGHTLY + f"\nworkload: {{ a: {'x' * 1000} }}"), Problems("file"))
    assert source is not None
    problems = Problems("file")
    lowered = DEFAULT_LIMITS.lower_to({"max_workload_bytes": 100}).limits
    assert read_schedule(source, "digest", lowered, problems) is None
    assert [one.code for one in problems.sorted()] == ["limit_exceeded"]


@pytest.mark.parametrize("spec", [NIGHTLY, OF_TIMES, EVERY, ALL])
def test_the_json_schema_accepts_what_the_checker_accepts(spec: str) -> None:
    assert [error.message for error in SCHEMA.iter_errors(plain(text_of(spec)))] == []


@pytest.mark.parametrize(
    "spec",
    [
        NIGHTLY + "\nevery: 1h",
        "playbook: a",
        "every: 15m",
        EVERY + "\novrlap: skip",
        EVERY + "\noverlap: skp",
        EVERY + "\ntimezone: Berlin",
        EVERY + "\njitter: 5",
        EVERY + "\npause_after_failures: 0",
        EVERY + "\nwindow: { form: 2026-01-01 }",
        EVERY + "\nexclude: [ today ]",
        "playbook: a\ncron: []\ntimezone: UTC",
        "playbook: a\nat: [ noon ]",
    ],
)
def test_the_json_schema_refuses_what_the_checker_refuses(spec: str) -> None:
    assert any(one.severity == "error" for one in found_in(spec))
    assert not SCHEMA.is_valid(plain(text_of(spec)))


def test_the_json_schema_describes_every_key() -> None:
    root = schedule_schema()
    spec = root["properties"]["spec"]
    window = next(one for one in spec["properties"]["window"]["anyOf"] if "properties" in one)
    models: list[tuple[type[Section], dict[str, Any]]]
    models = [(ScheduleRoot, root), (ScheduleSpec, spec), (ScheduleWindow, window)]
    for model, schema in models:
        assert list(schema["properties"]) == keys_of(model)
        assert all(key["description"] for key in schema["properties"].values())


PREVIOUS = "workload: { from: \"{{ schedule.previous | date_trunc('day') }}\" }"


@pytest.mark.parametrize(
    ("window", "codes"),
    [("", []), ("window: { from: 2030-01-01 }", ["cannot_render"])],
    ids=["since ever", "from a day on"],
)
def test_a_workload_that_the_first_occurrence_cannot_have_is_warned_of(window: str, codes: list[str]) -> None:
    found = found_in(f"{NIGHTLY}\n{PREVIOUS}\n{window}")
    assert [(one.severity, one.code) for one in found] == [("warning", code) for code in codes]
