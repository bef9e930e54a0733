"""``execution``, ``database`` and ``stream`` on a stack that is up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_program import one_clear_line, only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")


@pytest.fixture
def ended(shared_home: Path, one_step: Path) -> Any:
    """An execution that has ended."""
    return only_json(noetl("run", one_step, "--home", shared_home, "-o", "json"))


def test_list_shows_the_newest_first_page_by_page(shared_home: Path, ended: Any, one_step: Path) -> None:
    newer = only_json(noetl("run", one_step, "--home", shared_home, "-o", "json"))
    first = only_json(noetl("execution", "list", "--limit", "1", "--home", shared_home, "-o", "json"))
    assert [row["execution_id"] for row in first] == [newer["execution_id"]]
    assert list(first[0])[:6] == ["execution_id", "status", "path", "version", "started", "duration_s"]
    options = ["--limit", "1", "--before", newer["execution_id"], "--home", shared_home, "-o", "json"]
    second = only_json(noetl("execution", "list", *options))
    assert [row["execution_id"] for row in second] == [ended["execution_id"]]


def test_list_can_be_narrowed(shared_home: Path, ended: Any) -> None:
    target = ["--home", shared_home, "-o", "json"]
    rows = only_json(noetl("execution", "list", "--status", "completed", "--path", "tests/one", *target))
    assert ended["execution_id"] in [row["execution_id"] for row in rows]
    assert only_json(noetl("execution", "list", "--path", "tests/none", *target)) == []
    assert noetl("execution", "list", "--status", "done", "--home", shared_home).returncode == 2


def test_a_run_is_found_by_what_it_was_given_and_its_key_starts_nothing_twice(
    shared_home: Path, one_step: Path
) -> None:
    home = ["--home", shared_home]
    keyed = ["--set", "order.id=A-7", "--label", "ticket=T-7", "--key", "order=A-7", "--unique"]
    ran = only_json(noetl("run", one_step, *keyed, *home, "-o", "json"))["execution_id"]
    for word in ("--key=order=A-7", "--label=ticket=T-7", "--input=order.id=A-7"):
        assert noetl("execution", "list", word, *home, "-o", "name").stdout.split() == [ran]
        assert noetl("execution", "list", f"{word}0", *home, "-o", "name").stdout == ""
    again = noetl("execution", "start", one_step, *keyed, *home)
    assert again.stdout.strip() == ran
    assert f"execution {ran} has the key order=A-7 already: nothing was started" in again.stderr
    shown = noetl("execution", "get", ran, *home).stdout
    assert "key: order=A-7" in shown and "labels: ticket=T-7" in shown
    refused = noetl("execution", "start", one_step, "--unique", *home)
    assert refused.returncode == 2 and "a unique start needs a key" in refused.stderr


def test_the_time_of_the_start_is_a_filter(shared_home: Path, ended: Any) -> None:
    target = ["--path", "tests/one", "--home", shared_home, "-o", "name"]
    assert ended["execution_id"] in noetl("execution", "list", "--since", "1h", *target).stdout
    got = only_json(noetl("execution", "get", ended["execution_id"], "--home", shared_home, "-o", "json"))
    assert ended["execution_id"] not in noetl("execution", "list", "--until", got["started"], *target).stdout
    assert noetl("execution", "list", "--since", "2000-01-01T00:00Z", "--until", "2000-01-02", *target).stdout == ""
    assert noetl("execution", "list", "--since", "yesterday", *target).returncode == 2


def test_executions_are_counted_over_time_and_by_path(shared_home: Path, ended: Any) -> None:
    target = ["--path", "tests/one", "--home", shared_home]
    over_time = only_json(noetl("execution", "count", *target, "-o", "json"))
    assert over_time["counts"]["completed"] == sum(over_time["bars"]["completed"]) >= 1
    assert noetl("execution", "count", *target).stdout.split()[0] == "from"
    by_path = noetl("execution", "count", "--by", "path", *target)
    assert by_path.stdout.splitlines()[1].split() == ["tests/one", str(over_time["counts"]["completed"])]
    assert noetl("execution", "count", "--by", "colour", *target).returncode == 2


def test_list_is_a_table_for_people(shared_home: Path, ended: Any) -> None:
    found = noetl("execution", "list", "--home", shared_home)
    assert found.stdout.splitlines()[0].split() == ["execution", "status", "path", "version", "started", "duration"]
    assert ended["execution_id"] in found.stdout
    assert "\x1b" not in found.stdout


def test_get_describes_one_execution(shared_home: Path, ended: Any) -> None:
    found = noetl("execution", "get", ended["execution_id"], "--home", shared_home, "-o", "json")
    described = only_json(found)
    assert {key: described[key] for key in ended if key != "steps"} == {
        key: value for key, value in ended.items() if key != "steps"
    }
    assert described["steps"] == [{**ended["steps"][0], "retries": 0}]
    text = noetl("execution", "get", ended["execution_id"], "--home", shared_home).stdout
    assert "status: completed" in text
    assert "greet" in text
    assert "hello" in text


def test_get_describes_what_was_at_a_position(shared_home: Path, ended: Any) -> None:
    one = ended["execution_id"]
    events = only_json(noetl("execution", "events", one, "--name", "step.done", "--home", shared_home, "-o", "json"))
    assert [event["name"] for event in events] == ["step.done"]
    before = ["execution", "get", one, "--at", str(events[0]["position"] - 1), "--home", shared_home]
    state = only_json(noetl(*before, "-o", "json"))
    assert (state["status"], [token["place"] for token in state["tokens"]]) == ("running", ["running"])
    assert "running" in noetl(*before).stdout
    late = noetl("execution", "get", one, "--at", "99999", "--home", shared_home)
    assert "has no position 99999" in one_clear_line(late)


def test_an_archive_has_no_positions(shared_home: Path, ended: Any, tmp_path: Path) -> None:
    archive = ["--archive", tmp_path, "--home", shared_home]
    for options in (["get", ended["execution_id"], "--at", "1"], ["events", ended["execution_id"], "--step", "greet"]):
        assert "cannot be used with --archive" in one_clear_line(noetl("execution", *options, *archive))


def test_events_are_the_journal_by_position(shared_home: Path, ended: Any) -> None:
    target = [ended["execution_id"], "--home", shared_home]
    journal = only_json(noetl("execution", "events", *target, "-o", "json"))
    assert [event["position"] for event in journal] == list(range(1, len(journal) + 1))
    names = [event["name"] for event in journal]
    assert names[0] == "execution.requested"
    assert "step.done" in names
    assert "execution.finished" in names
    part = only_json(noetl("execution", "events", *target, "--after", "2", "--limit", "1", "-o", "json"))
    assert part == [journal[2]]
    table = noetl("execution", "events", *target).stdout.splitlines()
    assert len(table) == len(journal) + 1


@pytest.mark.parametrize("command", ["get", "events"])
def test_an_unknown_execution_is_a_usage_error(shared_home: Path, command: str) -> None:
    found = noetl("execution", command, "no-such-id", "--home", shared_home)
    assert found.returncode == 2
    assert "execution no-such-id not found" in one_clear_line(found)


def test_migrating_and_ensuring_again_changes_nothing(shared_home: Path) -> None:
    assert noetl("database", "migrate", "--home", shared_home).stdout == "the schema is up to date\n"
    assert noetl("stream", "ensure", "--home", shared_home).stdout == "the streams are up to date\n"


def test_reconciling_a_stream_that_has_lost_nothing_changes_nothing(shared_home: Path) -> None:
    assert noetl("stream", "reconcile", "--home", shared_home).stdout == "EVENTS holds all that was folded\n"
    assert noetl("database", "verify", "--home", shared_home).stdout == "Postgres and EVENTS agree\n"


def test_a_benchmark_wants_a_stack_of_its_own(shared_home: Path) -> None:
    found = noetl("bench", "--home", shared_home)
    assert found.returncode == 2
    assert "a server is already running here" in one_clear_line(found)


def test_a_start_joins_the_trace_that_an_option_or_the_environment_names(shared_home: Path, one_step: Path) -> None:
    given, around = (f"00-{digit * 32}-{'2' * 16}-01" for digit in "13")
    for options, environment, trace_id in (
        (("--traceparent", given), {"TRACEPARENT": around}, "1" * 32),
        ((), {"TRACEPARENT": around}, "3" * 32),
    ):
        words = ("execution", "start", one_step, *options, "--home", shared_home, "-o", "json")
        assert only_json(noetl(*words, **environment))["trace_id"] == trace_id
    own = only_json(noetl("execution", "start", one_step, "--home", shared_home, "-o", "json", TRACEPARENT="junk"))
    assert len(own["trace_id"]) == 32


def test_the_priority_of_an_execution_can_be_given(shared_home: Path, one_step: Path) -> None:
    started = only_json(
        noetl("execution", "start", one_step, "--priority", "9", "--wait", "--home", shared_home, "-o", "json")
    )
    assert started["priority"] == 9
    rerun = ("execution", "rerun", started["execution_id"], "greet", "--wait", "--home", shared_home, "-o", "json")
    assert [only_json(noetl(*rerun, *more))["priority"] for more in ((), ("--priority", "1"))] == [9, 1]
    refused = noetl("run", one_step, "--priority", "10", "--home", shared_home)
    assert refused.returncode == 2
    assert "10 is not in the range 0<=x<=9" in refused.stderr


def test_an_option_that_is_no_traceparent_is_a_usage_error(one_step: Path) -> None:
    found = noetl("execution", "start", one_step, "--traceparent", "00-1-2-01")
    assert found.returncode == 2
    assert "--traceparent '00-1-2-01' is not a W3C traceparent" in one_clear_line(found)
