"""The fold of schedules, pure: what starts, waits, is skipped, and why (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Found, Given
from noetl_stream.engine.aggregates.schedules import (
    AT_ONCE,
    MAX_RUNNING,
    MAX_WAITING,
    DueOccurrence,
    ScheduleKind,
    ScheduleState,
)
from noetl_stream.model.aggregates import (
    AggregateFact,
    Overlap,
    ScheduleBackfilled,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleRegistered,
    ScheduleResumed,
    ScheduleTerms,
    ScheduleTriggered,
    StartedBefore,
    StartedEnded,
    TimerDue,
    Timetable,
    aggregate_id,
)
from noetl_stream.model.events import CancelRequested, ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.schedule.schedule_workload import render_workload

PATH = "team/often"
ID = aggregate_id("starter", PATH)
KIND = ScheduleKind()
MINUTE = 60_000
NOW = 1_700_000_040_000
assert NOW % MINUTE == 0


class Told:
    """A schedule and what has become of it; ``lookup`` is what is found of its playbook."""

    def __init__(self, **terms: Any) -> None:
        self.state: ScheduleState | None = None
        self.now_ms = NOW
        self.lookup = Found(digest="digest")
        self.history: dict[int, tuple[str, str]] = {}
        self.started: list[str] = []
        self.workloads: list[dict[str, Any]] = []
        self.labels: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.cancelled: list[str] = []
        self.register(**terms)

    def register(self, revision: int = 1, *, paused: bool = False, **terms: Any) -> Folded[ScheduleState]:
        given = {"playbook": "team/flow", "timetable": Timetable(every_s=60), **terms}
        fact = ScheduleRegistered("r", PATH, "ann", terms=ScheduleTerms(**given), revision=revision, paused=paused)
        return self.fold(fact)

    def fold(self, fact: AggregateFact) -> Folded[ScheduleState]:
        found = dict.fromkeys(KIND.lookups(self.state, fact), self.lookup)
        folded = KIND.fold(self.state, Given(ID, PATH, fact, self.now_ms, found))
        if folded.state is self.state:
            assert not folded.messages and not folded.history, "no change, no consequence"
        if folded.state is not None:  # it is stored as it is
            assert codec.decode_as(ScheduleState, codec.encode(folded.state)) == folded.state
        self.state = folded.state
        for message in folded.messages:
            if isinstance(message.fact, ExecutionRequested):
                self.started.append(message.execution_id)
                self.workloads.append(message.fact.workload)
                self.labels.append(message.fact.labels)
                self.keys.append(message.fact.key)
            elif isinstance(message.fact, CancelRequested):
                self.cancelled.append(message.execution_id)
        for entry in folded.history:
            self.history[entry.number] = (entry.status, entry.body.get("reason", ""))
        return folded

    @property
    def at(self) -> ScheduleState:
        assert self.state is not None
        return self.state

    def wait(self, until_ms: int) -> None:
        """Lets time pass; its timers are told when they are due."""
        while due := [one for one in KIND.timers(self.at).items() if one[1] <= until_ms]:
            timer_id, due_ms = min(due, key=lambda one: one[1])
            self.now_ms = max(self.now_ms, due_ms)
            self.fold(TimerDue(timer_id, due_ms))
        self.now_ms = until_ms

    def late(self, until_ms: int) -> None:
        """No server runs meanwhile."""
        self.now_ms = until_ms
        self.wait(until_ms)

    def end(self, status: Any = "completed", place: int = 0) -> None:
        one = self.at.running[place]
        self.fold(StartedEnded(one.execution_id, one.number, status, "exception" if status == "failed" else ""))

    @property
    def statuses(self) -> list[str]:
        return [self.history[number][0] for number in sorted(self.history)]


def test_each_occurrence_starts_one_execution_of_its_own() -> None:
    told = Told()
    for _ in range(3):
        told.wait(told.now_ms + MINUTE)
        told.end()
    assert told.statuses == ["completed"] * 3
    assert len(set(told.started)) == 3


def test_executions_of_a_schedule_have_its_labels() -> None:
    schedule = Told(labels={"team": "shop", "tier": 1})
    schedule.wait(NOW + MINUTE)
    assert schedule.labels == [{"team": "shop", "tier": 1}]


@pytest.mark.parametrize(("key", "made"), [(None, ""), (7, "7"), ("of={{ schedule.due[:10] }}", "of=2023-11-14")])
def test_executions_of_a_schedule_have_its_key(key: Any, made: str) -> None:
    schedule = Told(key=key)
    schedule.wait(NOW + MINUTE)
    assert schedule.keys == [made]


def test_an_occurrence_whose_key_cannot_be_made_is_skipped_with_the_reason() -> None:
    schedule = Told(key="{{ schedule.interval }}")
    schedule.wait(NOW + MINUTE)
    assert schedule.started == []
    assert "its key cannot be evaluated: `key` must be text" in schedule.history[1][1]


def test_the_id_of_an_execution_follows_from_schedule_and_occurrence() -> None:
    first, again = Told(), Told()
    first.wait(NOW + MINUTE)
    again.late(NOW + MINUTE + 30_000)
    assert first.started == again.started


@pytest.mark.parametrize(
    "overlap, statuses, starts",
    [
        ("skip", ["started", "skipped", "skipped"], 1),
        ("queue_one", ["started", "waiting", "skipped"], 1),
        ("queue_all", ["started", "waiting", "waiting"], 1),
        ("allow", ["started", "started", "started"], 3),
        ("terminate", ["started", "started", "started"], 3),
        ("cancel", ["started", "skipped", "waiting"], 1),
    ],
)
def test_an_occurrence_is_due_while_the_one_before_runs(overlap: Overlap, statuses: list[str], starts: int) -> None:
    told = Told(overlap=overlap)
    told.wait(NOW + 3 * MINUTE)
    assert (told.statuses, len(told.started)) == (statuses, starts)
    assert all(reason for status, reason in told.history.values() if status in ("skipped", "waiting"))
    if overlap == "cancel":
        assert set(told.cancelled) == {told.started[0]}
        told.end("cancelled")
        assert told.statuses == ["cancelled", "skipped", "started"]
    if overlap == "terminate":
        assert told.cancelled[:1] == told.started[:1]
    if overlap == "queue_all":
        told.end()
        told.end()
        assert told.statuses == ["completed", "completed", "started"]


def test_waiting_and_running_occurrences_are_bounded() -> None:
    told = Told(overlap="queue_all")
    told.wait(NOW + (MAX_WAITING + 2) * MINUTE)
    assert told.statuses.count("waiting") == MAX_WAITING
    assert told.history[MAX_WAITING + 2] == ("skipped", f"{MAX_WAITING} occurrences wait already")
    many = Told(overlap="allow")
    many.state = replace(
        many.at, running=tuple(DueOccurrence(0, 0, 0, "", execution_id=str(n)) for n in range(MAX_RUNNING))
    )
    many.wait(NOW + MINUTE)
    assert many.history[1] == ("skipped", f"{MAX_RUNNING} executions of it run already")


@pytest.mark.parametrize(
    "terms, statuses",
    [
        ({"missed": "last"}, ["skipped"] * 9 + ["started"]),
        ({"missed": "all", "overlap": "allow"}, ["started"] * 10),
        ({"missed": "none"}, ["skipped"] * 9 + ["started"]),
        ({"missed": "all", "overlap": "allow", "missed_within_s": 240}, ["skipped"] * 6 + ["started"] * 4),
    ],
)
def test_occurrences_while_no_server_ran_are_made_up_for_as_it_says(terms: dict[str, Any], statuses: list[str]) -> None:
    told = Told(**terms)
    told.late(NOW + 10 * MINUTE + 1)
    assert told.statuses == statuses
    assert all(reason for status, reason in told.history.values() if status == "skipped")


def test_a_long_time_without_servers_is_taken_up_in_parts() -> None:
    told = Told(missed="last")
    told.now_ms = NOW + 10 * AT_ONCE * MINUTE + 1
    folded = told.fold(TimerDue("next", NOW + MINUTE))
    assert len(folded.history) == AT_ONCE and not folded.messages
    told.wait(told.now_ms)
    assert told.statuses == ["skipped"] * (10 * AT_ONCE - 1) + ["started"]


def test_a_schedule_pauses_after_its_number_of_failures_in_a_row_and_reports_it() -> None:
    told = Told(pause_after_failures=2)
    for status in ("failed", "completed", "failed", "failed"):
        assert not told.at.paused
        told.wait(told.now_ms + MINUTE)
        told.end(status)
    assert told.at.paused == "2 executions have failed in a row; the last: exception"
    assert KIND.timers(told.at) == {}
    told.fold(ScheduleResumed("again", PATH))
    assert (told.at.paused, told.at.failures) == ("", 0)


def test_a_paused_schedule_starts_nothing_but_what_is_triggered() -> None:
    told = Told(overlap="queue_all")
    told.wait(NOW + 2 * MINUTE)
    told.fold(SchedulePaused("p", PATH, reason="holidays"))
    told.end()
    told.wait(NOW + 5 * MINUTE)
    assert told.statuses == ["completed", "waiting"]
    assert told.fold(ScheduleTriggered("t", PATH)).answer == {
        "path": PATH, "number": 3, "status": "started", "execution_id": told.started[-1],
    }  # fmt: skip
    told.end()
    told.fold(ScheduleResumed("r", PATH))
    assert told.statuses == ["completed", "started", "completed"]
    told.end()
    told.wait(NOW + 6 * MINUTE)
    assert told.statuses == ["completed", "completed", "completed", "started"], "nothing of the pause is made up for"


def test_a_playbook_that_is_missing_is_a_skip_and_a_right_that_is_lost_a_pause() -> None:
    told = Told()
    told.lookup = Found(missing="playbook team/flow is not registered")
    told.wait(NOW + MINUTE)
    assert told.history[1] == ("skipped", "playbook team/flow is not registered")
    told.lookup = Found(digest="digest", forbidden="token:ann is revoked")
    told.wait(NOW + 3 * MINUTE)
    assert (told.statuses, told.at.paused) == (["skipped", "skipped"], "token:ann is revoked")
    refused = told.fold(ScheduleResumed("r", PATH)).answer
    assert isinstance(refused, Rejection) and refused.code == "forbidden"


def test_a_new_version_keeps_the_state_and_counts_from_its_registration() -> None:
    told = Told(overlap="queue_all")
    told.wait(NOW + 2 * MINUTE)
    told.now_ms += 30_000
    told.register(2, timetable=Timetable(every_s=3600), paused=True)
    assert KIND.timers(told.at) == {"next": (told.now_ms // 3_600_000 + 1) * 3_600_000}
    assert (len(told.at.running), len(told.at.waiting), told.at.paused) == (1, 1, "")


def test_the_same_revision_again_changes_nothing() -> None:
    told = Told()
    before = told.state
    assert told.register().answer == {"path": PATH, "revision": 1, "already": True}
    assert told.state is before


def test_a_backfill_does_every_occurrence_of_its_range_in_order() -> None:
    told = Told(timetable=Timetable(every_s=3600))
    from_ms = NOW - 10 * 3_600_000
    answer = told.fold(ScheduleBackfilled("b", PATH, from_ms=from_ms, before_ms=NOW)).answer
    assert answer == {"path": PATH, "occurrences": 10}
    for number in range(1, 11):
        told.wait(told.now_ms)
        assert told.statuses == ["completed"] * (number - 1) + ["started"]
        told.end()
    told.wait(told.now_ms)
    assert told.at.backfill is None and told.statuses == ["completed"] * 10


def test_a_backfill_never_does_nothing_in_silence() -> None:
    told = Told(timetable=Timetable(every_s=3600), overlap="skip")
    told.fold(ScheduleBackfilled("b", PATH, from_ms=NOW - 5 * 3_600_000, before_ms=NOW, overlap="skip"))
    told.wait(told.now_ms)
    assert told.statuses == ["started"] + ["skipped"] * 4
    for more, code in (
        ({"from_ms": NOW - 1, "before_ms": NOW}, "nothing_due"),
        ({"from_ms": NOW - 1, "before_ms": NOW + 3_600_000}, "nothing_due"),
        ({"from_ms": 0, "before_ms": NOW}, "too_large"),
    ):
        answer = told.fold(ScheduleBackfilled("c", PATH, **more)).answer
        assert isinstance(answer, Rejection) and answer.code == code, more


def test_a_schedule_runs_one_backfill_at_a_time_and_none_while_paused() -> None:
    told = Told(timetable=Timetable(every_s=3600))
    asked = ScheduleBackfilled("b", PATH, from_ms=NOW - 5 * 3_600_000, before_ms=NOW)
    told.fold(asked)
    told.wait(told.now_ms)
    again = told.fold(asked).answer
    assert isinstance(again, Rejection) and again.code == "under_way"
    told.fold(SchedulePaused("p", PATH))
    paused = told.fold(asked).answer
    assert isinstance(paused, Rejection) and paused.code == "paused"
    told.end()
    assert told.statuses == ["completed"]
    told.fold(ScheduleResumed("r", PATH))
    for _ in range(4):
        told.wait(told.now_ms)
        told.end()
    assert told.statuses == ["completed"] * 5


def test_a_deleted_schedule_is_gone_and_ends_of_its_executions_change_nothing() -> None:
    told = Told()
    told.wait(NOW + MINUTE)
    execution_id = told.started[0]
    told.fold(ScheduleDeleted("d", PATH))
    assert told.state is None
    told.fold(StartedEnded(execution_id, 1, "completed"))
    assert told.state is None
    assert isinstance(told.fold(ScheduleTriggered("t", PATH)).answer, Rejection)


def test_a_late_or_repeated_end_changes_nothing() -> None:
    told = Told()
    told.wait(NOW + MINUTE)
    ended = StartedEnded(told.started[0], 1, "completed")
    told.fold(ended)
    before = told.state
    told.fold(ended)
    assert told.state is before


def restore(told: Told) -> str:
    """Starts the first occurrence; then all is as it was before. Returns the execution that is there nevertheless."""
    before = told.at
    told.wait(NOW + MINUTE)
    (started,) = told.started
    told.state, told.now_ms = before, NOW
    told.started.clear()
    told.history.clear()
    return started


def test_an_occurrence_started_before_postgres_was_restored_is_not_started_again() -> None:
    told = Told()
    started = restore(told)
    told.fold(StartedBefore(started))
    told.fold(StartedEnded(started, 9, "failed", "exception"))
    told.late(NOW + MINUTE * 5)
    assert started not in told.started
    assert told.history[1] == ("failed", "exception")


def test_an_occurrence_called_missed_that_had_started_before_postgres_was_restored_gets_its_execution() -> None:
    told = Told()
    started = restore(told)
    told.late(NOW + MINUTE * 5)
    assert told.history[1][0] == "skipped"
    told.fold(StartedBefore(started))
    assert told.history[1] == ("started", "")
    told.end(place=[one.execution_id for one in told.at.running].index(started))
    assert told.history[1] == ("completed", "")


def test_a_waiting_occurrence_that_had_started_before_postgres_was_restored_waits_no_longer() -> None:
    told = Told(overlap="queue_all")
    told.wait(NOW + MINUTE)
    before = told.at
    told.wait(NOW + 2 * MINUTE)
    (waits,) = told.at.waiting
    told.fold(StartedBefore(waits.own_id))
    assert not told.at.waiting and told.history[2] == ("started", "")
    told.fold(StartedEnded(waits.own_id, 9, "completed"))
    assert told.history[2] == ("completed", "")
    assert before.running == told.at.running


def test_an_occurrence_has_the_same_execution_whatever_was_decided_before_it() -> None:
    first, second = Told(overlap="allow"), Told(overlap="allow")
    second.fold(ScheduleTriggered("between", PATH))
    for one in (first, second):
        one.wait(NOW + MINUTE)
    assert first.started[-1] == second.started[-1] and len(second.started) == 2


def test_an_occurrence_that_was_decided_about_is_not_due_again_by_a_clock_that_is_behind() -> None:
    told = Told()
    told.wait(NOW + MINUTE)
    told.now_ms -= 1
    told.register(revision=2, workload={"n": 2})
    told.wait(NOW + MINUTE)
    assert len(told.history) == 1


DAILY = Timetable(cron=("30 2 * * *",), zone="Europe/Berlin")
DAY = 86_400_000
KNOWN = {
    "due": "{{ schedule.due }}",
    "before": "{{ schedule.previous }}",
    "day": "{{ schedule.interval.start | date_format('%Y-%m-%d') }}",
    "end": "{{ schedule.interval.end }}",
    "backfill": "{{ schedule.backfill }}",
    "label": "{{ schedule.name }} of {{ schedule.path }} in {{ schedule.timezone }}",
    "plain": 7,
}


def test_the_workload_of_an_occurrence_knows_its_time_and_its_interval() -> None:
    told = Told(timetable=DAILY, name="daily", workload=KNOWN)  # NOW is 2023-11-14 23:14 in Berlin
    told.wait(NOW + DAY // 2)
    assert told.workloads == [
        {
            "due": "2023-11-15T02:30:00+01:00",
            "before": "2023-11-14T02:30:00+01:00",
            "day": "2023-11-14",
            "end": "2023-11-15T02:30:00+01:00",
            "backfill": False,
            "label": f"daily of {PATH} in Europe/Berlin",
            "plain": 7,
        }
    ]


def test_each_occurrence_of_a_backfill_knows_its_day_however_late_it_starts() -> None:
    told = Told(timetable=DAILY, workload=KNOWN, overlap="skip")
    told.fold(ScheduleBackfilled("b", PATH, "ann", from_ms=NOW - 3 * DAY, before_ms=NOW - DAY, overlap="queue_all"))
    for _ in range(2):
        told.wait(told.now_ms + 5)
        told.end()
    assert [(one["due"][:10], one["day"], one["backfill"]) for one in told.workloads] == [
        ("2023-11-12", "2023-11-11", True),
        ("2023-11-13", "2023-11-12", True),
    ]


def test_an_occurrence_by_hand_takes_the_last_interval_that_is_complete() -> None:
    told = Told(timetable=DAILY, workload=KNOWN)
    told.fold(ScheduleTriggered("now", PATH, "ann"))
    [one] = told.workloads
    assert (one["due"], one["before"]) == ("2023-11-14T23:14:00+01:00", "2023-11-14T02:30:00+01:00")
    assert (one["day"], one["end"]) == ("2023-11-13", "2023-11-14T02:30:00+01:00")


def test_an_occurrence_whose_workload_has_no_value_is_skipped_with_the_reason() -> None:
    first = Timetable(every_s=60, from_ms=NOW + MINUTE)
    told = Told(timetable=first, workload={"day": "{{ schedule.previous | date_trunc('day') }}"})
    told.wait(NOW + 2 * MINUTE)
    assert told.statuses == ["skipped", "started"]
    assert "its workload cannot be evaluated: " in told.history[1][1]


def test_a_workload_without_templates_takes_no_search_for_the_interval() -> None:
    def search() -> NoReturn:
        raise AssertionError("the timetable was searched")

    assert render_workload({"plain": 7}, search) == {"plain": 7}
