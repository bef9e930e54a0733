"""Triggers on streams of NATS in a server: each message starts once, in order, whatever dies (LANGUAGE §15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage, measured
from stream_stage import ID, PATH, STREAM, Streams

from noetl_stream.engine.aggregates.triggers import MAX_RUNNING
from noetl_stream.errors import NoetlError, OutcomeUnknown, TickRefused
from noetl_stream.model.aggregates import (
    EventReceived,
    StreamFilter,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
)
from noetl_stream.model.json import codec
from noetl_stream.server.aggregates.stream_readers import SWEEP_S
from noetl_stream.trigger.stream_messages import MAX_MESSAGE_BYTES


@pytest.fixture
def streams(stage: Stage) -> Streams:
    return Streams(stage)


async def test_each_message_starts_an_execution_once_in_order_and_is_acknowledged(streams: Streams) -> None:
    streams.publish(1, 2)
    await streams.stage.server()
    await streams.register()
    await streams.stage.pass_time(5)
    streams.publish(3)
    await streams.until_folded(3)
    assert await streams.started() == [1, 2, 3]
    state = await streams.state()
    assert state.reading.place is not None
    assert (state.reading.place.sequence, state.reading.pending) == (3, 0)
    assert await streams.broker.left(STREAM, state.consumer) == 0


async def test_from_new_reads_what_is_published_from_the_registration_on(streams: Streams) -> None:
    await streams.stage.server()
    streams.publish(1)
    await streams.stage.pass_time(1)
    await streams.register(from_ms=None)
    streams.publish(2)
    await streams.until_folded(1)
    assert await streams.started() == [2]


@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
async def test_messages_read_by_a_dying_server_start_once_under_the_next(streams: Streams, moment: str) -> None:
    stage = streams.stage
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    await streams.register()
    dead = asyncio.Event()

    def die(tick: Any) -> NoetlError | None:
        if not tick.history or dead.is_set():
            return None
        dead.set()
        return OutcomeUnknown("the connection broke")

    setattr(stage.store, moment, die)
    streams.publish(*range(10))
    await stage.until(dead.is_set)
    host.kill()
    await stage.pass_time(10)
    await stage.server()
    streams.publish(10)
    await streams.until_folded(11)
    assert await streams.started() == list(range(11))


async def test_two_servers_read_it_one_after_the_other_and_what_a_zombie_has_read_starts_nothing(
    streams: Streams,
) -> None:
    stage = streams.stage
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    await streams.register()
    streams.publish(1)
    await streams.until_folded(1)
    host.freeze()
    streams.publish(2, 3)
    await stage.server()
    await stage.pass_time(20)
    assert await streams.started() == [1, 2, 3]
    host.thaw()
    streams.publish(4, 5)
    await stage.pass_time(60)
    assert await streams.started() == [1, 2, 3, 4, 5]


async def test_a_paused_trigger_leaves_messages_in_their_stream_and_says_how_many(streams: Streams) -> None:
    server = await streams.stage.server()
    await streams.register()
    streams.publish(1)
    await streams.until_folded(1)
    await streams.asked(TriggerPaused)
    streams.publish(2, 3)
    await streams.stage.pass_time(30)
    assert await streams.history() == [("started", "")]
    assert (await streams.state()).reading.pending == 2
    assert (await measured(server))["noetl_server_stream_messages_waiting"] == 2
    await streams.asked(TriggerResumed)
    await streams.until_folded(3)
    assert await streams.started() == [1, 2, 3]


async def test_a_new_revision_reads_on_where_the_one_before_was(streams: Streams) -> None:
    await streams.stage.server()
    await streams.register(subject="orders.paid")
    streams.publish(1)
    streams.publish(2, subject="orders.sent")
    await streams.until_folded(1)
    await streams.register(2, subject="orders.*")
    streams.publish(3, subject="orders.sent")
    streams.publish(4)
    await streams.until_folded(4)
    assert await streams.started() == [1, 2, 3, 4], "what follows the last message that was read counts"


async def test_one_that_is_deleted_and_made_again_is_another_and_leaves_no_consumer(streams: Streams) -> None:
    await streams.stage.server()
    await streams.register()
    streams.publish(1)
    await streams.until_folded(1)
    first = (await streams.state()).consumer
    await streams.asked(TriggerDeleted)
    await streams.stage.pass_time(10)
    assert await streams.broker.consumers(STREAM) == []
    await streams.register()
    await streams.until_folded(1)
    assert await streams.started() == [1], "from: all"
    assert await streams.broker.consumers(STREAM) == [(await streams.state()).consumer] != [first]


async def test_the_consumer_of_a_trigger_that_went_while_its_server_died_is_removed_by_another(
    streams: Streams,
) -> None:
    stage = streams.stage
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    await streams.register()
    await stage.pass_time(5)
    await streams.asked(TriggerDeleted)
    host.kill()
    assert await streams.broker.consumers(STREAM) != []
    await stage.pass_time(10)
    await stage.server()
    await stage.pass_time(SWEEP_S + 10)
    assert await streams.broker.consumers(STREAM) == []


async def test_a_message_that_is_no_event_is_ignored_with_the_reason_and_the_next_is_read(streams: Streams) -> None:
    await streams.stage.server()
    await streams.register()
    streams.broker.publish(STREAM, "orders.paid", b"not json")
    streams.broker.publish(STREAM, "orders.paid", b"\xff\x00")
    streams.broker.publish(STREAM, "orders.paid", b"1" * (MAX_MESSAGE_BYTES + 1))
    streams.broker.publish(STREAM, "orders.paid", b"{}")
    streams.publish(1)
    await streams.until_folded(5)
    reasons = [reason for _, reason in await streams.history()]
    assert "not JSON" in reasons[0] and "not JSON" in reasons[1] and "at most 262,144" in reasons[2]
    assert "has no `n`" in reasons[3] or "data.n" in reasons[3]
    assert await streams.started() == [1]
    rows = await streams.stage.store.real.aggregate_history(ID, 1, 2)
    answer = await streams.asked(EventReceived, event=codec.decode_json(rows[0].body)["event"], resent=1)
    assert isinstance(answer, dict) and "not JSON" in answer["reason"]


async def test_a_message_that_cannot_be_committed_becomes_a_dead_letter_and_the_next_is_read(streams: Streams) -> None:
    stage = streams.stage
    await stage.server()
    await streams.register()

    def refuse(tick: Any) -> NoetlError | None:
        poison = any(b'\\"n\\":2}' in row.body for row in tick.history)
        return TickRefused("a value out of range") if poison else None

    stage.store.before_commit = refuse
    streams.publish(1, 2, 3)
    await streams.until_folded(3)
    assert await streams.started() == [1, 3]
    [letter] = await stage.store.real.dead_letters.page(10, None)
    assert letter.row.reason.startswith(f"message 2 of stream {STREAM} for trigger {PATH}: ")
    assert "dead letter" in (await streams.history())[1][1]
    stage.store.before_commit = lambda tick: None
    assert await stage.store.real.dead_letters.requeue(letter.row.id, "ann", 0)
    await streams.until_folded(4)
    assert await streams.started() == [1, 3, 2]


async def test_a_stream_that_disappears_and_returns_is_reported_once_and_read_from_its_beginning(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    stage = streams.stage
    server = await stage.server()
    await streams.register()
    streams.publish(1, 2)
    await streams.until_folded(2)
    streams.broker.delete(STREAM)
    await stage.pass_time(300)
    assert "does not exist" in (await streams.state()).reading.trouble
    assert (await measured(server))["noetl_server_streams_unread"] == 1
    assert sum("cannot be read" in one.getMessage() for one in caplog.records) == 1
    streams.broker.make(STREAM)
    streams.publish(3)
    await stage.pass_time(60)
    assert await streams.started() == [1, 2, 3]
    assert (await streams.state()).reading.trouble == ""
    after = await measured(server)
    assert (after["noetl_server_streams_unread"], after["noetl_server_occurrences_total started"]) == (0, 3)


async def test_a_consumer_that_somebody_deletes_is_made_again_where_it_was(streams: Streams) -> None:
    await streams.stage.server()
    await streams.register()
    streams.publish(1, 2)
    await streams.until_folded(2)
    await streams.broker.remove(STREAM, (await streams.state()).consumer)
    streams.publish(3)
    await streams.stage.pass_time(30)
    assert await streams.started() == [1, 2, 3]


async def test_a_stream_that_is_not_open_to_triggers_is_refused_in_words_that_say_what_to_set(
    streams: Streams,
) -> None:
    await streams.stage.server()
    assert await streams.register(stream="PAYMENTS") == "forbidden"


async def test_a_stream_that_is_closed_to_triggers_later_is_not_read_on(streams: Streams) -> None:
    stage = streams.stage
    server = await stage.server()
    await streams.register()
    server.stop()
    await stage.pass_time(10)
    stage.open_streams = ()
    await stage.server()
    streams.publish(1)
    await stage.pass_time(30)
    assert await streams.history() == []
    assert "NOETL_TRIGGER_STREAMS" in (await streams.state()).reading.trouble


async def test_a_long_stream_is_read_as_far_as_executions_end(streams: Streams) -> None:
    stage = streams.stage
    await stage.server()
    streams.publish(*range(MAX_RUNNING + 200))
    await streams.register()
    await stage.pass_time(30)
    assert len(await streams.history()) == MAX_RUNNING
    stage.start_worker()
    await streams.until_folded(MAX_RUNNING + 200)
    assert len(await streams.history()) == MAX_RUNNING + 200


async def test_a_message_that_servers_die_of_becomes_a_dead_letter_and_the_next_is_read(streams: Streams) -> None:
    stage = streams.stage
    hosts: list[Any] = []

    def die(tick: Any) -> NoetlError | None:
        if not any(row.status == "started" and b'\\"n\\":2}' in row.body for row in tick.history):
            return None
        hosts[-1].kill()
        return OutcomeUnknown("killed")

    stage.store.before_commit = die
    hosts.append(stage.start_server()[1])
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    await streams.register()
    streams.publish(1, 2, 3)
    await stage.pass_time(30)
    deaths = 0
    while not hosts[-1].alive:
        deaths += 1
        assert deaths < 10
        hosts.append(stage.start_server()[1])
        await stage.pass_time(60)
    assert deaths > 1
    assert await streams.started() == [1, 3]
    [letter] = await stage.store.real.dead_letters.page(10, None)
    assert letter.row.reason.startswith(f"message 2 of stream {STREAM} for trigger {PATH}: ")
    assert [status for status, _ in await streams.history()] == ["started", "ignored", "started"]


async def test_a_partition_that_moves_takes_its_reading_with_it(streams: Streams) -> None:
    stage = streams.stage
    first = await stage.server()
    await streams.register()
    streams.publish(*range(5))
    await streams.until_folded(5)
    await stage.server_beside(first)
    streams.publish(*range(5, 10))
    await streams.until_folded(10)
    first.stop()
    await stage.pass_time(10)
    streams.publish(*range(10, 15))
    await streams.until_folded(15)
    assert await streams.started() == list(range(15))


async def test_messages_published_while_nats_is_down_are_read_afterwards(streams: Streams) -> None:
    stage = streams.stage
    await stage.server()
    await streams.register()
    streams.publish(1)
    await streams.until_folded(1)
    stage.broker.stop()
    await stage.pass_time(20)
    streams.publish(2)
    stage.broker.start()
    await streams.until_folded(2)
    assert await streams.started() == [1, 2]


async def test_a_stream_that_is_missing_holds_up_no_other_trigger(streams: Streams) -> None:
    stage = streams.stage
    stage.open_streams = (STREAM, "MISSING")
    await stage.server()
    playbook = await stage.register(ONE_STEP)
    terms = TriggerTerms(playbook=playbook, nats=StreamFilter(stream="MISSING"))
    answer = await streams.asked(TriggerRegistered, key="tests/missing", terms=terms, revision=1)
    assert isinstance(answer, dict)
    await streams.register()
    streams.publish(1, 2)
    await streams.until_folded(2)
    assert await streams.started() == [1, 2]
