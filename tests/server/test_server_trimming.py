"""EVENTS is trimmed, and nothing that lives is lost by it (PROTOCOL §5 *Retention*)."""

from __future__ import annotations

import logging

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import before_and_after, hear, is_waiting, signal

from noetl_stream.errors import StreamLost, Unreachable
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import JournalRecord
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.server.journal_records import disagreements, reconcile_cursors
from noetl_stream.server.ownership.partitions import PartitionOwnership
from noetl_stream.server.ownership.recorded import RecordedPartition, read_partition
from noetl_stream.server.upkeep.upkeep import KEPT_MS, TRIM_EVENTS_S, Trimmer, Upkeep
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.memory.journals import MemoryFeed, MemoryRetention

LIVING = "execution-living"
LATE = "execution-late"
WAITS = before_and_after(hear())
MANY = 12


def new_trimmer(stage: Stage, max_bytes: int = 1, max_age_s: float = 86_400.0) -> Trimmer:
    log, store = stage.broker.event_log, stage.store.real
    settings = RetentionSettings(events_max_bytes=max_bytes, events_max_age_s=max_age_s)
    return Trimmer(log, store, store.cursors, MemoryRetention(store), stage.clock, settings)


async def trimmer_of(stage: Stage, max_bytes: int = 1, max_age_s: float = 86_400.0) -> Trimmer:
    """One that has looked once, so long ago that what was folded then may go."""
    trimmer = new_trimmer(stage, max_bytes, max_age_s)
    assert await trimmer.trim() == 0
    await stage.pass_time(KEPT_MS / 1000 + 5)
    return trimmer


async def run_many(stage: Stage, *, waits: bool = False) -> None:
    """Twelve executions that end, after one that waits; then time passes until all of it is folded everywhere."""
    await stage.server()
    stage.start_worker()
    if waits:
        await stage.request(LIVING, "request-living", WAITS)
        await is_waiting(stage, LIVING)
    for number in range(MANY):
        await stage.request(f"execution-{number}", f"request-{number}", ONE_STEP)
    for number in range(MANY):
        await stage.ended(f"execution-{number}")
    await stage.pass_time(5)


def checkpoints(stage: Stage) -> list[JournalRecord]:
    held = stage.broker.event_log.stored[stage.broker.event_log.trimmed :]
    return [codec.decode_record(one.message.body) for one in held if one.message.subject.endswith(".checkpoint")]


async def floor_of(stage: Stage) -> int:
    return await stage.store.real.cursors.floor()


async def compared(stage: Stage) -> list[str]:
    return await disagreements(stage.broker.event_log, stage.store.real, stage.store.real.cursors)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why EVENTS was not trimmed, as the log says."""
    return [record.message for record in caplog.records if "not trimmed yet" in record.message]


async def test_a_stream_within_its_bounds_is_left_alone(stage: Stage) -> None:
    await run_many(stage)
    assert await (await trimmer_of(stage, max_bytes=10**9)).trim() == 0
    assert (await floor_of(stage), stage.broker.event_log.trimmed) == (0, 0)


async def test_a_stream_above_its_size_is_trimmed_to_half_of_it(stage: Stage) -> None:
    await run_many(stage)
    log = stage.broker.event_log
    held = await log.stored_bytes()
    through = await (await trimmer_of(stage, max_bytes=held - 1)).trim()
    assert 0 < through == log.trimmed == await floor_of(stage)
    assert held * 0.3 < await log.stored_bytes() < held * 0.7
    assert await (await trimmer_of(stage, max_bytes=held - 1)).trim() == 0
    assert await compared(stage) == []


async def test_a_stream_above_its_age_is_trimmed_to_half_of_it(stage: Stage) -> None:
    await run_many(stage)
    await stage.pass_time(3_000)
    await stage.request("execution-new", "request-new", ONE_STEP)
    await stage.ended("execution-new")
    assert await (await trimmer_of(stage, 10**9, max_age_s=4_000)).trim() == 0
    assert await (await trimmer_of(stage, 10**9, max_age_s=2_000)).trim() > 0
    left = stage.broker.event_log.stored[stage.broker.event_log.trimmed :]
    assert {one.message.execution_id for one in left[1:]} == {"execution-new"}


async def test_young_messages_stay_however_large_the_stream_is_and_one_warning_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request("execution-1", "request-1", ONE_STEP)
    await stage.ended("execution-1")
    await stage.pass_time(5)
    trimmer = new_trimmer(stage)
    assert await trimmer.trim() == 0
    assert told(caplog) == [], "nobody knows yet what was folded before"
    await stage.pass_time(KEPT_MS / 1000 + 1)
    assert await trimmer.trim() > 0
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.ended("execution-2")
    while await trimmer.trim():
        pass
    await trimmer.trim()
    assert [text.rpartition("; ")[2] for text in told(caplog)] == ["what came or was folded in the last 120 s stays"]


async def test_messages_that_a_partition_has_not_folded_stay(stage: Stage) -> None:
    await run_many(stage)
    trimmer = await trimmer_of(stage)
    behind = stage.tables.partitions[7]
    behind.last_seq, behind.last_ms = 5, 0
    assert await trimmer.trim() == 4


async def test_messages_folded_just_now_stay_however_old_they_are(stage: Stage) -> None:
    """A Postgres that is restored to the state of a minute ago has to fold it again."""
    await run_many(stage)
    stage.running[0].cancel()
    await stage.request(LATE, "request-late", ONE_STEP)
    trimmer, unfolded = await trimmer_of(stage), stage.broker.event_log.end
    older = stage.store.real.dump()
    _, host, _ = stage.start_server()
    await stage.ended(LATE)
    await stage.until(lambda: all(row.last_seq >= unfolded for row in stage.tables.partitions))
    assert 0 < await trimmer.trim() < unfolded
    host.kill()
    stage.store.real.restore(older)
    await stage.server()
    assert (await stage.ended(LATE)).status == "completed"


async def test_an_older_postgres_continues_once_an_operator_confirms_that_events_is_its_own(
    stage: Stage,
) -> None:
    await run_many(stage)
    older = stage.store.real.dump()
    await stage.request("execution-trimmed", "request-trimmed", ONE_STEP)
    await stage.ended("execution-trimmed")
    await stage.pass_time(5)
    trimmer = await trimmer_of(stage)
    await stage.request(LATE, "request-late", ONE_STEP)
    await stage.ended(LATE)
    assert await trimmer.trim() > max(row.last_seq for row in older.tables.partitions)
    stage.running[0].cancel()
    await stage.pass_time(30)
    stage.store.real.restore(older)
    _, _, task = stage.start_server()
    with pytest.raises(StreamLost, match="stream reconcile"):
        await task
    assert await reconcile_cursors(stage.broker.event_log, stage.store.real.cursors)
    await stage.server()
    assert (await stage.ended(LATE)).status == "completed"
    await stage.request("execution-new", "request-new", ONE_STEP)
    assert (await stage.ended("execution-new")).status == "completed"


async def test_nothing_is_trimmed_while_a_partition_has_yet_to_catch_up_with_events(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of its executions would hide the records that Postgres lacks."""
    await run_many(stage)
    trimmer = await trimmer_of(stage)
    behind = stage.tables.partitions[partition_of("execution-0")]
    behind.tick, tick = 0, behind.tick
    assert await trimmer.trim() == 0
    assert [text.rpartition("; ")[2] for text in told(caplog)] == ["Postgres has yet to catch up with it"]
    behind.tick = tick
    assert await trimmer.trim() > 0


async def test_a_living_execution_is_written_again_before_its_messages_go(stage: Stage) -> None:
    await run_many(stage, waits=True)
    assert await (await trimmer_of(stage)).trim() > 0
    (checkpoint,) = checkpoints(stage)
    entries = [codec.decode_entry(raw) for raw in checkpoint.entries]
    facts = [
        fact for entry in entries for part in (entry.facts, entry.decisions) for fact, _ in codec.decode_facts(part)
    ]
    assert (checkpoint.execution, checkpoint.first_position) == (LIVING, 1)
    assert [one for fact in facts for one in expand(LIVING, fact)] == await stage.facts(LIVING)


async def test_records_of_living_executions_can_be_read_from_events_completely(stage: Stage) -> None:
    await run_many(stage, waits=True)
    assert await (await trimmer_of(stage)).trim() > 0
    messages = await read_partition(stage.broker.event_log, partition_of(LIVING), 0)
    recorded = RecordedPartition(messages, 0, ()).executions[LIVING]
    facts = [
        fact
        for entry in recorded.entries(0)
        for fact in (*(given.recorded.fact for given in entry.inputs), *entry.decisions)
    ]
    assert [one for fact in facts for one in expand(LIVING, fact)] == await stage.facts(LIVING)
    assert list(recorded.unfolded_sequences()) == []


async def test_an_execution_ends_as_if_nothing_had_been_trimmed(stage: Stage) -> None:
    await run_many(stage, waits=True)
    assert await (await trimmer_of(stage)).trim() > 0
    stage.running[0].cancel()
    await stage.server()
    await stage.ask(LIVING, signal())
    assert (await stage.ended(LIVING)).status == "completed"
    assert await compared(stage) == []


async def test_nothing_is_trimmed_that_frees_less_than_twice_what_it_costs(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.server()
    stage.start_worker()
    for number in range(MANY):
        await stage.request(f"execution-{number}", f"request-{number}", WAITS)
    await stage.pass_time(KEPT_MS / 1000 + 5)
    trimmer = await trimmer_of(stage)
    written = stage.broker.event_log.end
    assert (await trimmer.trim(), await trimmer.trim()) == (0, 0)
    assert stage.broker.event_log.end == written
    assert len(told(caplog)) == 1


async def test_the_floor_is_committed_before_anything_goes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await run_many(stage)
    trimmer = await trimmer_of(stage)

    async def fail(through: int) -> None:
        raise Unreachable("NATS is away")

    with monkeypatch.context() as broken, pytest.raises(Unreachable):
        broken.setattr(stage.broker.event_log, "trim", fail)
        await trimmer.trim()
    assert await floor_of(stage) > stage.broker.event_log.trimmed == 0
    assert await compared(stage) == []
    await trimmer.trim()
    assert stage.broker.event_log.trimmed == await floor_of(stage)


async def test_a_checkpoint_that_is_not_stored_keeps_everything(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await run_many(stage, waits=True)

    async def fail(messages: list[DecidedMessage]) -> None:
        raise Unreachable("NATS is away")

    with monkeypatch.context() as broken, pytest.raises(Unreachable):
        broken.setattr(stage.broker.event_log, "publish_checkpoints", fail)
        await (await trimmer_of(stage)).trim()
    assert (await floor_of(stage), stage.broker.event_log.trimmed) == (0, 0)


async def test_a_stream_that_has_lost_messages_is_not_trimmed(stage: Stage) -> None:
    await run_many(stage)
    trimmer = await trimmer_of(stage)
    stage.broker.event_log.lose_tail(1)
    assert await trimmer.trim() == 0


async def test_purges_by_others_are_distinguished_from_trimming_by_servers(stage: Stage) -> None:
    await run_many(stage)
    log, cursors = stage.broker.event_log, stage.store.real.cursors
    await (await trimmer_of(stage)).trim()
    await log.trim(log.trimmed + 2)
    (found,) = await compared(stage)
    assert f"servers have trimmed it up to {await floor_of(stage)}: others have purged it" in found
    await reconcile_cursors(log, cursors)
    assert await compared(stage) == []


@pytest.mark.parametrize("by", ["an operator", "a server"])
async def test_a_recreated_stream_gets_a_floor_of_its_own(stage: Stage, by: str) -> None:
    await run_many(stage)
    server, log = stage.running[0], stage.broker.event_log
    await (await trimmer_of(stage)).trim()
    server.cancel()
    await stage.pass_time(30)
    log.lose_tail(log.end)
    log.trimmed = 0
    assert any("a different stream" in line for line in await compared(stage))
    if by == "an operator":
        await reconcile_cursors(log, stage.store.real.cursors)
    else:
        await stage.server()
    assert (await floor_of(stage), await compared(stage)) == (0, [])


async def test_a_lease_that_was_lost_unnoticed_takes_no_trim_for_a_loss(stage: Stage) -> None:
    await run_many(stage)
    stage.running[0].cancel()
    await stage.pass_time(30)
    log, store = stage.broker.event_log, stage.store.real
    frozen, present = (
        PartitionOwnership(name, store, log, stage.broker.command_queue) for name in ("frozen", "present")
    )
    assert len(await frozen.take(32, 6.0, 0.0)) == 32
    stage.expire(*range(32))
    assert len(await present.take(32, 6.0, 0.0)) == 32
    for number in range(4):
        await stage.request("execution-0", f"again-{number}", ONE_STEP)
    await log.trim(log.end - 1)
    assert await frozen.give_up_lost() == set(range(32))
    assert len(frozen) == 0
    assert {row.generation for row in stage.tables.partitions} == {0}


async def test_a_reader_behind_the_trim_gets_every_event(stage: Stage) -> None:
    await run_many(stage)
    await (await trimmer_of(stage)).trim()
    store = stage.store.real
    feed = MemoryFeed(store, stage.clock)
    live = LiveFeed(store, feed, stage.broker.bus, stage.clock, UsedSecrets(None, None))
    heard = [event.id async for batch in await live.execution("execution-0", 0) for event in batch]
    assert heard == [f"{event.position}" for event in await stage.journal("execution-0")]


async def test_one_server_of_several_trims(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage.upkeep = Upkeep(stage.clock, trimmer=new_trimmer(stage))
    first = await stage.server()
    await stage.server_beside(first)
    stage.start_worker()
    await stage.request("execution-1", "request-1", ONE_STEP)
    await stage.ended("execution-1")
    await stage.pass_time(KEPT_MS / 1000 + 2 * TRIM_EVENTS_S)
    assert len([record for record in caplog.records if record.message.startswith("trimmed EVENTS")]) == 1
