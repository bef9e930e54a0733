"""What a trigger decides about each thing that it is asked or told: pure, the same however often it is decided."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Found, Given, Lookup
from noetl_stream.engine.aggregates.starters import MAX_KNOWN, REMEMBERED_MS
from noetl_stream.engine.aggregates.triggers import (
    MAX_DEPTH,
    MAX_KEYS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    TriggerKind,
    TriggerState,
)
from noetl_stream.model.aggregates import (
    DEFAULT_RATE,
    AggregateFact,
    EmittedEvent,
    EmittedEvents,
    EndedExecution,
    EndedExecutions,
    EventEmitted,
    EventReceived,
    ExecutionEnded,
    StartedBefore,
    StartedEnded,
    StartRate,
    TimerDue,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
    Verification,
    aggregate_id,
)
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import is_uuid7, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.status import EndStatus, Rejection

PATH, BY = "shop/pushes", "token:ann"
ID = aggregate_id("starter", PATH)
TERMS = TriggerTerms(playbook="shop/build", webhook=Verification(form="none"), workload={"n": "{{ event.json.n }}"})
ENDS = TriggerTerms(playbook="shop/build", execution=EndedExecutions(path="shop/*"))
EVENTS = TriggerTerms(
    playbook="shop/build", event=EmittedEvents(name="shipped", path="shop/*"), workload={"n": "{{ event.data.n }}"}
)
KIND = TriggerKind()
NOW_MS = 1_800_000_000_000
NOW = "2027-01-15T08:00:00.000+00:00"
REVOKED = "token:ann is revoked or has expired"


def fold(
    state: TriggerState | None,
    fact: AggregateFact,
    found: Found | None = None,
    hidden: str = "",
    at_ms: int = NOW_MS,
) -> Folded[TriggerState]:
    """Folds a fact; ``hidden`` is why the watched paths may not be seen."""
    wanted = KIND.lookups(state, fact)
    given = {one: found or Found("d" * 64) for one in wanted}
    given |= {one: Found(forbidden=hidden) for one in wanted if one.path != "shop/build" and hidden}
    return KIND.fold(state, Given(ID, PATH, fact, at_ms, given))


def registered(terms: TriggerTerms = TERMS) -> TriggerState:
    folded = fold(None, TriggerRegistered("r", PATH, BY, terms=terms, revision=1, digest="d"))
    assert folded.state is not None
    return folded.state


def event(number: int = 1, **more: Any) -> EventReceived:
    return EventReceived(f"e{number}", PATH, "webhook", event={"json": {"n": number}}, **more)


def ended(depth: int = 1, ended_ms: int = 0, execution_id: str = "e1") -> ExecutionEnded:
    return ExecutionEnded(
        EndedExecution(execution_id=execution_id, path="shop/orders", status="failed"), depth, ended_ms
    )


def requested(folded: Folded[TriggerState]) -> ExecutionRequested:
    [message] = folded.messages
    assert isinstance(message.fact, ExecutionRequested)
    return message.fact


def test_events_that_a_trigger_cannot_handle_are_counted_with_the_last_reason() -> None:
    terms = replace(TERMS, workload={"n": "{{ event.json.n + 1 }}"})
    state = registered(terms)
    for given in (event(1), EventReceived("a", PATH, BY, event={"json": {}}), EventReceived("b", PATH, BY, event={})):
        folded = fold(state, given)
        assert folded.state is not None
        state = folded.state
    assert (state.faults.count, state.faults.number, state.faults.at_ms) == (2, 3, NOW_MS)
    assert "absent" in state.faults.reason
    [entry] = folded.history
    assert (entry.status, entry.body["fault"], entry.body["reason"]) == ("ignored", True, state.faults.reason)
    again = fold(state, TriggerRegistered("r2", PATH, BY, terms=TERMS, revision=2, digest="e")).state
    assert again is not None and again.faults.count == 0


def test_digits_lost_by_an_event_are_reported_by_the_execution_that_it_starts() -> None:
    given = EventReceived("e1", PATH, "webhook", event={"body": '{"n": 12345678901234567.89}'})
    assert requested(fold(registered(), given)).digits_lost == ["/event/json/n"]
    assert requested(fold(registered(), event())).digits_lost == []


def test_an_event_that_a_trigger_ignores_by_its_own_rule_is_no_fault() -> None:
    wanting = registered(replace(TERMS, when="{{ event.json.n == 7 }}"))
    paused = fold(registered(), TriggerPaused("p", PATH, BY)).state
    for state in (wanting, paused):
        folded = fold(state, event())
        [entry] = folded.history
        assert folded.state is not None
        assert (entry.status, folded.state.faults.count, "fault" in entry.body) == ("ignored", 0, False)


@pytest.mark.parametrize("found", [Found(missing="playbook shop/build is not registered"), Found(forbidden=REVOKED)])
def test_an_event_for_which_nothing_may_start_is_a_fault(found: Found) -> None:
    after = fold(registered(), event(), found).state
    assert after is not None
    assert (after.faults.count, after.faults.reason) == (1, found.missing or found.forbidden)


def test_an_event_starts_an_execution_in_the_name_of_who_registered_it() -> None:
    state = registered()
    folded = fold(state, event(7))
    request = requested(folded)
    assert (request.path, request.workload, request.principal) == ("shop/build", {"n": 7}, BY)
    assert request.origin is not None
    assert (request.origin.kind, request.origin.path, request.origin.number) == ("Trigger", PATH, 1)
    [entry] = folded.history
    assert (entry.number, entry.status, entry.body["event"]) == (1, "started", {"time": NOW, "json": {"n": 7}})
    assert is_uuid7(str(entry.execution_id))
    assert folded.answer == {"path": PATH, "number": 1, "status": "started", "execution_id": entry.execution_id}
    assert fold(state, event(7)) == folded, "deciding twice decides alike"


def test_an_event_of_a_webhook_knows_when_it_came_also_when_it_is_sent_again() -> None:
    state = registered(replace(TERMS, workload={"at": "{{ event.time }}"}))
    folded = fold(state, event())
    assert requested(folded).workload == {"at": NOW}
    again = EventReceived("again", PATH, BY, event=folded.history[0].body["event"], resent=1)
    assert requested(fold(state, again, at_ms=NOW_MS + 60_000)).workload == {"at": NOW}


@pytest.mark.parametrize(
    ("playbook", "status", "faults"),
    [(f"{PATH}/notify", "failed", 1), (f"{PATH}/notify", "cancelled", 0), ("shop/build", "failed", 0)],
)
def test_a_notification_that_failed_is_a_fault(playbook: str, status: EndStatus, faults: int) -> None:
    state = registered(replace(TERMS, playbook=playbook))
    folded = fold(state, StartedEnded("e1", 3, status, "http_error"))
    assert folded.state is not None
    assert (folded.faults, folded.state.faults.count) == (faults, faults)
    if faults:
        last = folded.state.faults
        assert (last.number, last.reason) == (3, "its notification failed (http_error): execution e1")


def test_an_execution_has_the_labels_that_its_trigger_makes_of_the_event() -> None:
    labelled = replace(TERMS, labels={"n": "{{ event.json.n }}", "team": "shop"})
    assert requested(fold(registered(labelled), event(7))).labels == {"n": 7, "team": "shop"}


def test_the_key_of_an_event_is_that_of_its_execution() -> None:
    keyed = replace(TERMS, key="order={{ event.json.n }}")
    assert requested(fold(registered(keyed), event(7))).key == "order=7"


def test_its_state_is_what_is_stored() -> None:
    state = fold(registered(replace(TERMS, key="{{ event.json.n }}")), event(7)).state
    assert codec.decode_as(TriggerState, codec.encode(state)) == state


@pytest.mark.parametrize(
    ("found", "reason", "paused"),
    [
        (Found(missing="playbook shop/build is not registered"), "is not registered", ""),
        (Found(forbidden=REVOKED), REVOKED, REVOKED),
    ],
)
def test_an_event_that_cannot_start_is_ignored_and_lost_rights_pause(found: Found, reason: str, paused: str) -> None:
    folded = fold(registered(), event(), found)
    assert folded.state is not None
    assert (folded.messages, folded.state.paused, folded.state.number) == ((), paused, 1)
    [entry] = folded.history
    assert entry.status == "ignored" and reason in entry.body["reason"]
    assert isinstance(fold(folded.state, TriggerResumed("u", PATH), found).answer, Rejection) == bool(paused)


def test_a_paused_trigger_ignores_events_and_says_since_when_it_was_asked() -> None:
    paused = fold(registered(), TriggerPaused("p", PATH, BY, "holidays")).state
    assert paused is not None
    assert fold(paused, TriggerPaused("p2", PATH)).state is paused
    [entry] = fold(paused, event()).history
    assert entry.body["reason"] == "the trigger is paused: holidays"
    resumed = fold(paused, TriggerResumed("u", PATH)).state
    assert resumed is not None and requested(fold(resumed, event()))
    assert fold(resumed, TriggerResumed("u2", PATH)).state is resumed


def test_a_key_is_remembered_until_many_others_have_come() -> None:
    state: TriggerState | None = registered(replace(TERMS, key="k{{ event.json.n }}"))
    first = fold(state, event(0))
    state = first.state
    again = fold(state, event(0))
    assert (again.messages, again.history[0].status) == ((), "repeated")
    assert again.history[0].execution_id == first.history[0].execution_id
    for number in range(1, MAX_KEYS + 1):
        state = fold(state, event(number)).state
    assert state is not None and len(state.keys) == MAX_KEYS
    assert fold(state, event(0)).history[0].status == "started"


def test_a_resent_event_is_a_new_one_that_names_the_one_before() -> None:
    [entry] = fold(registered(), event(resent=3)).history
    assert (entry.number, entry.body["resent"]) == (1, 3)


def test_an_end_starts_an_execution_that_knows_how_many_triggers_led_to_it() -> None:
    state = registered(ENDS)
    origin = requested(fold(state, ended(3))).origin
    assert origin is not None and origin.depth == 3
    [entry] = fold(state, ended(MAX_DEPTH + 1)).history
    assert entry.status == "ignored" and "no more may" in entry.body["reason"]


def emitted(depth: int = 1, emitted_ms: int = 0, id: str = "e1.7") -> EventEmitted:
    told = EmittedEvent(id=id, name="shipped", execution_id="e1", path="shop/orders", step="ship", data={"n": 1})
    return EventEmitted(told, depth, emitted_ms)


def test_each_event_of_a_playbook_starts_one_execution_also_after_postgres_was_restored() -> None:
    state = registered(EVENTS)
    first, second = (fold(state, emitted(emitted_ms=NOW_MS, id=id)) for id in ("e1.7", "e1.9"))
    assert requested(first).workload == {"n": 1}
    assert first.messages[0].execution_id != second.messages[0].execution_id
    assert fold(state, emitted(emitted_ms=NOW_MS)).messages == first.messages
    told = fold(state, StartedBefore(first.messages[0].execution_id)).state
    assert fold(told, emitted(emitted_ms=NOW_MS + 5_000)).messages[0].execution_id == first.messages[0].execution_id
    [entry] = fold(state, emitted(MAX_DEPTH + 1)).history
    assert entry.status == "ignored" and "no more may" in entry.body["reason"]


def test_a_trigger_without_the_right_to_see_executions_gets_none_of_their_events() -> None:
    hidden = "token:ann has no access to shop"
    refused = fold(None, TriggerRegistered("r", PATH, BY, terms=EVENTS), hidden=hidden)
    assert (refused.state, isinstance(refused.answer, Rejection)) == (None, True)
    state = registered(EVENTS)
    assert fold(state, emitted(), hidden=hidden) == Folded(state)


def started_at(state: TriggerState, end: ExecutionEnded, at_ms: int = NOW_MS) -> str:
    """The execution that an end starts."""
    [entry] = fold(state, end, at_ms=at_ms).history
    assert entry.status == "started" and entry.execution_id is not None
    return entry.execution_id


def test_an_end_decided_again_later_keeps_the_execution_it_started_before_postgres_was_restored() -> None:
    state = registered(ENDS)
    before = started_at(state, ended(ended_ms=NOW_MS))
    later = ended(ended_ms=NOW_MS + 5_000)
    assert started_at(state, later) != before, "its time is that of the end"
    told = fold(state, StartedBefore(before)).state
    assert told is not None
    assert started_at(told, later) == before
    assert started_at(told, ended(execution_id="e2", ended_ms=NOW_MS)) != before
    assert codec.decode_as(TriggerState, codec.encode(told)) == told


def test_starts_from_before_postgres_was_restored_are_remembered_for_some_minutes_and_bounded() -> None:
    state = registered(ENDS)
    before = started_at(state, ended(ended_ms=NOW_MS))
    told = fold(state, StartedBefore(before)).state
    assert told is not None
    later, past_ms = ended(ended_ms=NOW_MS + 1), NOW_MS + REMEMBERED_MS + 1
    assert started_at(told, later, past_ms - 1) == before
    assert started_at(told, later, past_ms) != before
    forgotten = fold(told, later, at_ms=past_ms).state
    assert forgotten is not None and not forgotten.known
    for number in range(MAX_KNOWN):
        assert told is not None
        told = fold(told, StartedBefore(uuid7(NOW_MS, number.to_bytes(10, "big")))).state
    assert told is not None and len(told.known) == MAX_KNOWN
    assert started_at(told, later) != before


def test_a_trigger_on_events_that_events_has_remembers_nothing_of_what_was_started() -> None:
    state = registered()
    assert fold(state, StartedBefore(uuid7(NOW_MS, bytes(10)))).state is state


def test_a_trigger_without_the_right_to_see_executions_gets_none_of_their_ends() -> None:
    hidden = "token:ann has no access to shop"
    refused = fold(None, TriggerRegistered("r", PATH, BY, terms=ENDS), hidden=hidden)
    assert (refused.state, isinstance(refused.answer, Rejection)) == (None, True)
    state = registered(ENDS)
    assert fold(state, ended(), hidden=hidden) == Folded(state)


def test_registering_again_changes_what_it_does_and_keeps_what_it_knows() -> None:
    state = fold(registered(), event()).state
    assert state is not None
    again = TriggerRegistered("r2", PATH, BY, terms=TERMS, revision=1, digest="d")
    assert fold(state, again).state is state
    changed = fold(state, replace(again, terms=replace(TERMS, when=False), revision=2)).state
    assert changed is not None
    assert (changed.number, changed.created_ms, changed.terms.when) == (1, state.created_ms, False)
    assert [one.status for one in fold(changed, event(2)).history] == ["ignored"]


@pytest.mark.parametrize("found", [Found(missing="nowhere"), Found(forbidden=REVOKED)])
def test_a_trigger_of_a_playbook_that_may_not_be_started_is_not_registered(found: Found) -> None:
    folded = fold(None, TriggerRegistered("r", PATH, BY, terms=TERMS), found)
    assert (folded.state, isinstance(folded.answer, Rejection)) == (None, True)


def test_an_unknown_or_foreign_event_changes_nothing() -> None:
    state = registered()
    assert fold(state, TriggerDeleted("d", PATH)).state is None
    assert isinstance(fold(None, event()).answer, Rejection)
    assert fold(state, StartedEnded("e", 1, "completed")).state is state
    assert KIND.timers(state) == {}
    assert KIND.lookups(state, event()) == [Lookup("shop/build", None, BY)]


def test_an_execution_is_left_what_its_share_still_allows() -> None:
    fact = replace(ended(), root="r1", share=7)
    origin = requested(fold(registered(ENDS), fact)).origin
    assert origin is not None
    assert (origin.root, origin.left, origin.depth) == ("r1", 6, 1)


def test_an_end_without_a_share_starts_nothing_and_says_which_limit_that_is() -> None:
    folded = fold(registered(ENDS), replace(ended(), root="r1", share=0))
    [entry] = folded.history
    assert (entry.status, entry.body["fault"], folded.messages) == ("ignored", True, ())
    assert entry.body["reason"] == (
        "no more executions may follow from execution r1 through triggers: its share is used up "
        "(limits.max_descendants)"
    )


def test_an_end_delivered_by_an_older_server_has_no_share_and_starts() -> None:
    origin = requested(fold(registered(ENDS), ended())).origin
    assert origin is not None
    assert (origin.root, origin.left) == ("", None)


RATED = replace(TERMS, rate=StartRate(per_minute=60, burst=2), key="{{ event.json.n }}")


def sent(state: TriggerState, count: int, **more: Any) -> tuple[TriggerState, list[str]]:
    """The trigger after so many events at once, and what became of each."""
    statuses = []
    for number in range(count):
        folded = fold(state, event(number), **more)
        assert folded.state is not None
        state = folded.state
        statuses += [entry.status for entry in folded.history]
    return state, statuses


def test_events_beyond_the_rate_wait_and_start_at_its_pace_in_order() -> None:
    state, statuses = sent(registered(RATED), 5)
    assert statuses == ["started", "started", "waiting", "waiting", "waiting"]
    assert [one.due_ms - NOW_MS for one in state.waiting] == [1_000, 2_000, 3_000]
    assert KIND.timers(state) == {"start": NOW_MS + 1_000}
    folded = fold(state, TimerDue("start", NOW_MS + 1_000), at_ms=NOW_MS + 2_500)
    assert [(one.number, one.status, one.body["event"]) for one in folded.history] == [
        (3, "started", {"time": NOW, "json": {"n": 2}}),
        (4, "started", {"time": NOW, "json": {"n": 3}}),
    ]
    assert folded.state is not None
    assert KIND.timers(folded.state) == {"start": NOW_MS + 3_000}
    assert codec.decode_as(TriggerState, codec.encode(folded.state)) == folded.state


def test_an_event_that_waits_has_its_execution_and_its_key_already() -> None:
    state, _ = sent(registered(RATED), 3)
    folded = fold(state, event(2))
    [entry] = folded.history
    assert (entry.status, entry.execution_id) == ("repeated", state.waiting[0].arrival.execution_id)
    started = requested(fold(state, TimerDue("start", 0), at_ms=NOW_MS + 1_000))
    assert started.origin is not None and started.origin.number == 3


def test_events_above_the_rate_are_dropped_where_the_trigger_asks_for_that() -> None:
    terms = replace(RATED, rate=StartRate(per_minute=60, burst=1, exceeding="drop"))
    state, statuses = sent(registered(terms), 1)
    folded = fold(state, event(1))
    [entry] = folded.history
    assert (statuses, entry.status, "fault" in entry.body) == (["started"], "ignored", False)
    assert entry.body["reason"] == (
        "the trigger starts no more executions now (`rate`), and it drops what exceeds that"
    )
    assert folded.state is not None
    state = folded.state
    assert fold(state, event(1), at_ms=NOW_MS + 1_000).history[0].status == "started", "no key is used up"


def test_the_queue_of_waiting_events_is_bounded() -> None:
    terms = replace(RATED, rate=StartRate(per_minute=600, burst=1))
    state, statuses = sent(registered(terms), MAX_WAITING + 3)
    assert Counter(statuses) == {"started": 1, "waiting": MAX_WAITING, "ignored": 2}
    assert f"and {MAX_WAITING} events wait already" in state.faults.reason
    large = EventReceived("e", PATH, "webhook", event={"json": {"n": "x" * MAX_WAITING_BYTES}})
    full = fold(sent(registered(replace(terms, key=None)), 1)[0], large).state
    assert full is not None and "and 0 events wait already" in full.faults.reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [(Found(forbidden=REVOKED), REVOKED), (Found(missing="playbook shop/build is not registered"), "not registered")],
)
def test_an_event_that_waited_for_a_playbook_that_may_not_start_any_more_is_ignored(found: Found, reason: str) -> None:
    state, _ = sent(registered(RATED), 3)
    folded = fold(state, TimerDue("start", 0), found, at_ms=NOW_MS + 1_000)
    [entry] = folded.history
    assert (entry.number, entry.status, folded.messages) == (3, "ignored", ())
    assert reason in entry.body["reason"]


def test_events_during_a_pause_are_not_made_up_for() -> None:
    state, _ = sent(registered(RATED), 3)
    paused = fold(state, TriggerPaused("p", PATH, BY)).state
    folded = fold(paused, TimerDue("start", 0), at_ms=NOW_MS + 1_000)
    assert [one.status for one in folded.history] == ["ignored"]
    assert folded.state is not None and not folded.state.waiting


def test_a_trigger_without_a_rate_has_that_of_the_address_of_a_webhook() -> None:
    state, statuses = sent(registered(), DEFAULT_RATE.burst + 1)
    assert statuses[-2:] == ["started", "waiting"]
    assert state.waiting[0].due_ms - NOW_MS == 10


def test_the_operator_bounds_the_rate_of_every_trigger() -> None:
    fact = TriggerRegistered("r", PATH, BY, terms=RATED, revision=1, digest="d")
    given = {one: Found("d" * 64) for one in KIND.lookups(None, fact)}
    answer = KIND.fold(None, Given(ID, PATH, fact, NOW_MS, given, most_per_minute=30)).answer
    assert isinstance(answer, Rejection)
    assert answer.text == (
        "a trigger may start at most 30 executions a minute, not 60: lower `rate.per_minute`, or let whoever runs the "
        "servers raise NOETL_TRIGGER_RATE"
    )


def test_an_event_waits_for_the_turn_of_its_namespace() -> None:
    state = registered()
    given = {one: Found("d" * 64) for one in KIND.lookups(state, event())}
    folded = KIND.fold(state, Given(ID, PATH, event(), NOW_MS, given, free_ms=NOW_MS + 700))
    assert folded.state is not None
    assert [one.due_ms for one in folded.state.waiting] == [NOW_MS + 700]


def test_no_event_waits_longer_than_ten_minutes() -> None:
    state, statuses = sent(registered(replace(RATED, rate=StartRate(per_minute=1, burst=1))), 12)
    assert Counter(statuses) == {"started": 1, "waiting": 10, "ignored": 1}
    assert "its turn would come in more than 10 minutes" in state.faults.reason


@pytest.mark.parametrize("ahead_ms", [60_000, 3_600_000])
def test_a_clock_that_was_ahead_holds_nothing_back(ahead_ms: int) -> None:
    state, _ = sent(registered(RATED), 4, at_ms=NOW_MS + ahead_ms)
    folded = fold(state, event(9))
    assert folded.state is not None
    assert [one.due_ms - NOW_MS for one in folded.state.waiting] == [1_000, 2_000, 3_000]


def test_events_that_are_folded_late_have_no_rate_of_their_own() -> None:
    state, _ = sent(registered(RATED), 2)
    assert [one.status for one in fold(state, event(9), at_ms=NOW_MS - 20_000).history] == ["waiting"]


def test_dropping_above_the_rate_is_a_fault_where_the_namespace_allows_no_more_starts() -> None:
    state = registered(replace(TERMS, rate=StartRate(per_minute=60, burst=9, exceeding="drop")))
    given = {one: Found("d" * 64) for one in KIND.lookups(state, event())}
    [entry] = KIND.fold(state, Given(ID, PATH, event(), NOW_MS, given, free_ms=NOW_MS + 700)).history
    assert (entry.status, entry.body["fault"]) == ("ignored", True)
    assert "triggers of its namespace start no more executions now" in entry.body["reason"]
