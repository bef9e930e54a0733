"""``noetl-stream schedule``: when a file is due, without a stack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cli_program import HEAD, one_clear_line, only_json
from warm_program import noetl

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "schedules.md").read_text(encoding="utf-8")
SCHEDULE = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: { name: nightly, path: shop/nightly }
spec:
  playbook: shop/orders
  cron: [ "30 2 * * *" ]
  timezone: Europe/Berlin
"""


def test_the_next_occurrences_are_shown_with_what_the_clocks_do(playbook: Callable[..., Path]) -> None:
    found = noetl("schedule", "preview", playbook(SCHEDULE), "-n", "3", "--after", "2026-03-28T00:00+01:00")
    assert found.returncode == 0, found.stderr
    assert [line.split(maxsplit=2) for line in found.stdout.splitlines()] == [
        ["at", "utc", "note"],
        ["2026-03-28T02:30:00+01:00", "2026-03-28T01:30:00.000+00:00"],
        ["2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00.000+00:00", "clocks set forward by 60 min"],
        ["2026-03-30T02:30:00+02:00", "2026-03-30T00:30:00.000+00:00"],
    ]


def test_programs_get_everything_and_ten_from_now_on(playbook: Callable[..., Path]) -> None:
    found = only_json(noetl("schedule", "preview", playbook(SCHEDULE + "  jitter: 1h\n"), "-o", "json"))
    assert len(found) == 10 and all(one["utc"] <= one["starts"] for one in found)
    assert any(one["utc"] != one["starts"] for one in found)
    names = noetl("schedule", "preview", playbook(SCHEDULE), "-o", "name", "-n", "2", "--after", "2026-11-01")
    assert names.stdout.split() == ["2026-11-01T02:30:00+01:00", "2026-11-02T02:30:00+01:00"]


def test_a_day_is_one_of_the_zone_of_the_schedule(playbook: Callable[..., Path]) -> None:
    tokyo = playbook(SCHEDULE.replace("30 2", "0 0").replace("Europe/Berlin", "Asia/Tokyo"))
    names = noetl("schedule", "preview", tokyo, "-o", "name", "-n", "1", "--after", "2026-11-01")
    assert names.stdout == "2026-11-02T00:00:00+09:00\n"
    wrong = noetl("schedule", "preview", tokyo, "--after", "9999-12-31")
    assert (wrong.returncode, "'9999-12-31' is not from 1970 to 2199" in wrong.stderr) == (2, True)


def test_an_ended_or_paused_schedule_is_shown_as_such(playbook: Callable[..., Path]) -> None:
    over = playbook(SCHEDULE + "  window: { until: 2026-01-31 }\n  paused: true\n")
    found = noetl("schedule", "preview", over, "--after", "2026-02-01")
    assert (found.returncode, found.stdout) == (0, "")
    assert found.stderr == "paused: it starts nothing before it is resumed\nno occurrence any more\n"
    assert only_json(noetl("schedule", "preview", over, "--after", "2026-02-01", "-o", "json")) == []


def test_a_wrong_schedule_and_another_document_are_refused(playbook: Callable[..., Path], one_step: Path) -> None:
    wrong = playbook(SCHEDULE.replace("30 2", "30 25"), "wrong.yaml")
    found = noetl("schedule", "preview", wrong)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"{wrong}:6:11: error[invalid_cron]: not a cron expression: bad hour `25`\n")
    assert "not a schedule" in one_clear_line(noetl("schedule", "preview", one_step))


def test_a_schedule_is_checked_like_a_playbook(playbook: Callable[..., Path]) -> None:
    file = playbook(SCHEDULE)
    assert noetl("playbook", "check", file).stdout == f"{file}: ok\n"
    wrong = playbook(SCHEDULE.replace("Berlin", "Berln"), "wrong.yaml")
    found = noetl("playbook", "check", wrong)
    assert (found.returncode, "did you mean `Europe/Berlin`?" in found.stdout) == (2, True)


def test_a_schedule_is_not_run(playbook: Callable[..., Path], fresh_home: Path) -> None:
    ran = noetl("run", playbook(SCHEDULE), "--home", fresh_home)
    assert (ran.returncode, "schedule preview" in ran.stderr) == (2, True)


@pytest.mark.xdist_group("stack")
def test_a_schedule_is_created_watched_controlled_and_deleted(shared_home: Path, playbook: Callable[..., Path]) -> None:
    def schedule(*words: object) -> str:
        found = noetl("schedule", *words, "--home", shared_home)
        assert found.returncode == 0, found.stderr
        return found.stdout

    text = SCHEDULE.replace("shop/", "often/").replace("30 2 * * *", "0 0 1 1 *")
    early = noetl("schedule", "create", playbook(text), "--home", shared_home)
    assert "playbook often/orders is not registered" in one_clear_line(early)
    orders = (
        f"{HEAD}metadata: {{name: orders, path: often/orders}}\nworkflow:\n  - step: say\n    tool: {{kind: noop}}\n"
    )
    assert noetl("playbook", "register", playbook(orders), "--home", shared_home).returncode == 0
    assert schedule("create", playbook(text)).startswith("path: often/nightly\nplaybook: often/orders\n")
    assert "often/nightly" in schedule("list", "--prefix", "often/")
    assert "Europe/Berlin" in schedule("get", "often/nightly")
    assert schedule("preview", "often/nightly", "-n", "1", "--after", "2030-06-01", "-o", "name").strip() == (
        "2031-01-01T00:00:00+01:00"
    )
    assert schedule("pause", "often/nightly", "--reason", "holidays") == "paused often/nightly\n"
    [listed] = json.loads(schedule("list", "--prefix", "often/", "-o", "json"))
    assert (listed["paused"]["reason"], listed["next"]) == ("holidays", None)
    execution_id = schedule("run-now", "often/nightly", "-o", "name").strip()
    shown = only_json(noetl("execution", "get", execution_id, "-o", "json", "--home", shared_home))
    assert shown["origin"] == {"kind": "schedule", "path": "often/nightly", "number": 1, "execution_id": None}
    assert "by schedule often/nightly" in noetl("execution", "get", execution_id, "--home", shared_home).stdout
    assert schedule("resume", "often/nightly").startswith("resumed often/nightly; next start: 20")
    assert json.loads(schedule("resume", "often/nightly", "-o", "json"))["paused"] is None
    assert json.loads(schedule("trigger", "often/nightly", "-o", "json"))["number"] == 2  # its earlier name
    words = ("backfill", "often/nightly", "--from", "2019-01-01", "--until", "2021-01-01", "--overlap", "allow")
    assert schedule(*words) == "3 occurrences of often/nightly are due now\n"
    assert "trigger" in schedule("history", "often/nightly")
    assert "deleting its document would not stop it" in one_clear_line(
        noetl("playbook", "delete", "often/nightly", "--all", "--home", shared_home)
    )
    assert schedule("delete", "often/nightly") == "deleted often/nightly\n"
    gone = noetl("schedule", "get", "often/nightly", "--home", shared_home)
    assert (gone.returncode, "no schedule is registered" in gone.stderr) == (2, True)


def test_the_example_of_the_reference_is_due_as_it_says(playbook: Callable[..., Path]) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    [(command, shown)] = re.findall(r"^\$ noetl-stream (.*?)\n(.*?)^```$", PAGE, re.M | re.S)
    file = playbook(text, "nightly.yaml")
    assert noetl(*command.split(), cwd=file.parent).stdout == shown


def test_the_example_beside_the_playbooks_is_due_on_weekdays_at_eight() -> None:
    file = Path(__file__).parents[2] / "playbooks" / "hello_every_morning.schedule.yaml"
    found = noetl("schedule", "preview", file, "-n", "3", "--after", "2026-12-23", "-o", "name")
    assert [line[:16] for line in found.stdout.split()] == ["2026-12-23T08:00", "2026-12-24T08:00", "2026-12-28T08:00"]


def test_the_earlier_name_of_run_now_is_not_listed() -> None:
    shown = noetl("schedule", "--help").stdout
    assert "  run-now " in shown and "  trigger " not in shown
    assert noetl("schedule", "trigger", "--help").stdout == (
        noetl("schedule", "run-now", "--help").stdout.replace("schedule run-now", "schedule trigger")
    )


def test_the_json_schema_is_printed() -> None:
    printed = noetl("schedule", "schema")
    Draft202012Validator.check_schema(json.loads(printed.stdout))
    assert printed.returncode == 0
