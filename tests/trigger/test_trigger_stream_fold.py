"""What a trigger on a stream of NATS decides about what was read of it: pure, and each message once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.engine.aggregates.contract import Folded, Found, Given
from noetl_stream.engine.aggregates.triggers import MAX_RUNNING, StreamReading, TriggerKind, TriggerState
from noetl_stream.model.aggregates import (
    AggregateFact,
    EventReceived,
    StartedEnded,
    StartRate,
    StreamEventRead,
    StreamFilter,
    StreamPlace,
    StreamSeen,
    TimerDue,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.json import codec
from noetl_stream.model.status import Rejection

PATH, BY = "shop/orders", "token:ann"
ID = aggregate_id("starter", PATH)
TERMS = TriggerTerms(playbook="shop/ship", nats=StreamFilter(stream="ORDERS"), workload={"n": "{{ event.data.n }}"})
KIND = TriggerKind()
NOW_MS = 1_800_000_000_000


def fold(
    state: TriggerState | None, fact: AggregateFact, found: Found | None = None, at_ms: int = NOW_MS
) -> Folded[TriggerState]:
    given = {one: found or Found("d" * 64) for one in KIND.lookups(state, fact)}
    return KIND.fold(state, Given(ID, PATH, fact, at_ms, given, streams=("ORDERS",)))


def after(state: TriggerState, *facts: AggregateFact) -> TriggerState:
    for fact in facts:
        folded = fold(state, fact).state
        assert folded is not None
        state = folded
    return state


def registered(terms: TriggerTerms = TERMS, revision: int = 1) -> TriggerRegistered:
    return TriggerRegistered("r", PATH, BY, terms=terms, revision=revision, digest="d")


@pytest.fixture
def state() -> TriggerState:
    folded = fold(None, registered())
    assert folded.state is not None
    return folded.state


def read(state: TriggerState, sequence: int, made: str = "then", subject: str = ">", **more: Any) -> StreamEventRead:
    event = {"subject": "orders.paid", "json": {"n": sequence}}
    place = StreamPlace("ORDERS", made, sequence)
    return StreamEventRead(state.consumer, place, subject, 3, NOW_MS + sequence, **{"event": event, **more})


def test_a_message_starts_an_execution_and_moves_the_place(state: TriggerState) -> None:
    folded = fold(state, read(state, 7))
    assert folded.state is not None and len(folded.messages) == 1
    [entry] = folded.history
    running = (entry.execution_id,)
    assert folded.state.reading == StreamReading(NOW_MS, StreamPlace("ORDERS", "then", 7), 3, running=running)
    assert (entry.number, entry.status) == (1, "started")
    assert fold(state, read(state, 7)) == folded, "deciding twice decides alike"
    assert codec.decode_as(TriggerState, codec.encode(folded.state)) == folded.state


def test_a_message_that_comes_again_or_is_behind_changes_nothing(state: TriggerState) -> None:
    state = after(state, read(state, 7))
    for sequence in (7, 3):
        assert fold(state, read(state, sequence)).state is state


def test_a_message_starts_the_same_execution_whatever_was_folded_before(state: TriggerState) -> None:
    """Postgres may have been restored, or another server decided meanwhile."""
    [first] = fold(state, read(state, 7)).messages
    [again] = fold(after(state, read(state, 6)), read(state, 7), at_ms=NOW_MS + 60_000).messages
    assert first.execution_id == again.execution_id


def test_an_execution_of_an_old_message_has_the_time_at_which_the_trigger_was_made(state: TriggerState) -> None:
    [entry] = fold(state, replace(read(state, 7), at_ms=1)).history
    assert int(entry.execution_id.replace("-", "")[:12], 16) == NOW_MS


def test_a_recreated_stream_is_read_from_its_beginning(state: TriggerState) -> None:
    state = after(state, read(state, 7))
    assert after(state, read(state, 1, made="now")).reading.place == StreamPlace("ORDERS", "now", 1)


def test_a_message_read_for_other_terms_or_another_trigger_is_not_folded(state: TriggerState) -> None:
    for fact in (
        read(state, 1, subject="orders.paid"),
        replace(read(state, 1), place=StreamPlace("OTHER", "then", 1)),
        replace(read(state, 1), consumer="noetl-other"),
    ):
        assert fold(state, fact).state is state
    assert fold(None, read(state, 1)).state is None
    again = fold(fold(state, TriggerDeleted("d", PATH)).state, registered(), at_ms=NOW_MS + 1).state
    assert again is not None and again.consumer != state.consumer


def test_a_paused_trigger_takes_no_message_and_goes_on_behind_the_last(state: TriggerState) -> None:
    state = after(state, read(state, 1), TriggerPaused("p", PATH))
    assert fold(state, read(state, 2)).state is state and not state.is_read
    state = after(state, TriggerResumed("u", PATH))
    assert state.is_read and fold(state, read(state, 2)).history[0].status == "started"


def test_rights_that_were_lost_pause_it_and_the_message_can_be_sent_again(state: TriggerState) -> None:
    folded = fold(state, read(state, 1), Found(forbidden="revoked"))
    assert folded.state is not None and folded.state.paused == "revoked"
    assert [one.status for one in folded.history] == ["ignored"]
    resumed = after(folded.state, TriggerResumed("u", PATH))
    event = {"subject": "a", "json": {"n": 1}}
    assert fold(resumed, EventReceived("e", PATH, event=event, resent=1)).history[0].status == "started"


def test_a_message_that_is_no_event_or_cannot_be_folded_is_ignored_and_passed(state: TriggerState) -> None:
    folded = fold(state, read(state, 1, event={"subject": "a", "body": "text"}))
    assert folded.state is not None and "not JSON" in folded.history[0].body["reason"]
    folded = fold(folded.state, read(state, 2, unfoldable="dead letter 7"))
    assert folded.state is not None and folded.history[0].body["reason"] == "dead letter 7"
    assert (folded.state.reading.place, folded.state.reading.running) == (StreamPlace("ORDERS", "then", 2), ())


def test_so_many_executions_run_at_once_and_it_reads_on_when_one_ends(state: TriggerState) -> None:
    state = after(state, *(read(state, number) for number in range(1, MAX_RUNNING + 1)))
    assert not state.is_read
    first, *others = state.reading.running
    state = after(state, StartedEnded(first, 1, "completed"))
    assert state.is_read and list(state.reading.running) == others
    assert fold(state, StartedEnded(first, 1, "completed")).state is state
    resumed = after(state, TriggerPaused("p", PATH), TriggerResumed("u", PATH))
    assert len(resumed.reading.running) == MAX_RUNNING - 1


def test_trouble_is_shown_with_the_time_it_began_until_it_ends(state: TriggerState) -> None:
    troubled = fold(state, StreamSeen(state.consumer, trouble="gone")).state
    assert troubled is not None
    assert (troubled.reading.trouble, troubled.reading.trouble_ms) == ("gone", NOW_MS)
    other = fold(troubled, StreamSeen(state.consumer, trouble="still gone"), at_ms=NOW_MS + 5).state
    assert other is not None and other.reading.trouble_ms == NOW_MS
    assert fold(other, StreamSeen(state.consumer, trouble="still gone"), at_ms=NOW_MS + 9).state is other
    well = fold(other, StreamSeen(state.consumer, 4)).state
    assert well is not None and well.reading == StreamReading(NOW_MS, pending=4)
    assert fold(well, StreamSeen("noetl-other", 5)).state is well


def test_a_new_revision_keeps_the_place_in_the_same_stream_alone(state: TriggerState) -> None:
    state = after(state, read(state, 7))
    subject = replace(TERMS, nats=StreamFilter(stream="ORDERS", subject="orders.*"))
    again = fold(state, registered(subject, 2), at_ms=NOW_MS + 1).state
    assert again is not None and again.reading == StreamReading(NOW_MS, StreamPlace("ORDERS", "then", 7))
    webhook = fold(state, registered(replace(TERMS, nats=None), 2)).state
    assert webhook is not None and webhook.reading == StreamReading()


def test_a_stream_that_the_operator_has_not_named_is_refused_in_words_that_say_what_to_set() -> None:
    folded = fold(None, registered(replace(TERMS, nats=StreamFilter(stream="PAYMENTS"))))
    assert isinstance(folded.answer, Rejection) and folded.state is None
    assert folded.answer.code == "forbidden" and "NOETL_TRIGGER_STREAMS=PAYMENTS" in folded.answer.text


def test_a_stream_is_not_read_while_its_messages_wait_for_their_turn() -> None:
    slow = fold(None, registered(replace(TERMS, rate=StartRate(per_minute=60, burst=1)))).state
    assert slow is not None and slow.is_read
    waiting = after(slow, read(slow, 1), read(slow, 2))
    assert (waiting.is_read, len(waiting.waiting), len(waiting.reading.running)) == (False, 1, 2)
    started = fold(waiting, TimerDue("start", 0), at_ms=NOW_MS + 2_000)
    assert started.state is not None and started.state.is_read
    assert [one.status for one in started.history] == ["started"]


def test_a_message_that_waited_and_starts_nothing_does_not_count_as_running() -> None:
    slow = fold(None, registered(replace(TERMS, rate=StartRate(per_minute=60, burst=1)))).state
    assert slow is not None
    waiting = after(slow, read(slow, 1), read(slow, 2), TriggerPaused("p", PATH, BY))
    over = fold(waiting, TimerDue("start", 0), at_ms=NOW_MS + 2_000)
    assert over.state is not None and len(over.state.reading.running) == 1
    assert [one.status for one in over.history] == ["ignored"]


def test_a_stream_that_gives_no_rate_is_bounded_by_what_runs(state: TriggerState) -> None:
    for number in range(1, MAX_RUNNING + 1):
        state = after(state, read(state, number))
    assert (state.is_read, state.waiting) == (False, ())
