"""A Postgres behind EVENTS catches up, an empty one is filled, and what an owner has not published its successor
publishes (PROTOCOL §1 *Journal*, §5 *Postgres behind JetStream*, §7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import Conflict, Unreachable
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import Tick
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.server.journal_records import MARGIN_MS
from noetl_stream.server.ownership import recovery
from noetl_stream.server.rebuild import rebuild
from noetl_stream.server.server import Server
from noetl_testkit.memory.store import MemoryDump
from noetl_testkit.simulation.work import JOBS, Job

EXECUTION = "execution-1"
BESIDE = next(one for one in map(str, range(1_000)) if partition_of(one) == partition_of(EXECUTION))
"""Another execution of its partition."""

ACCEPTED = [job for job in JOBS if job.accepted and job.retried is None]


def restore(stage: Stage, dump: MemoryDump) -> None:
    stage.store.real.restore(dump)
    stage.expire(*range(PARTITIONS))


async def begun(stage: Stage, job: Job) -> None:
    """A server and a worker that have begun a job."""
    _, host, _ = stage.start_server()
    stage.server_hosts.append(host)
    stage.start_worker()
    await stage.begin(EXECUTION, job)
    await stage.until(lambda: stage.tables.executions)


async def expect_end(stage: Stage, job: Job) -> None:
    row = await stage.ended(EXECUTION, 120)
    result = codec.decode_json(codec.decode_payload(row.result).value) if row.result else None
    assert (row.status, result) == (job.status, job.result)
    await stage.pass_time(30)
    assert await stage.rebuilt_differences() == []
    assert await stage.store.real.stuck(10) == []


async def store_unreadable_records(stage: Stage, times: int) -> None:
    partition = partition_of(EXECUTION)
    stray = [DecidedMessage(partition, EXECUTION, f"stray-{number}", b'"no record"') for number in range(times)]
    await stage.broker.event_log.publish_decided(stray)


async def test_records_that_cannot_be_read_stop_no_owner(stage: Stage) -> None:
    await begun(stage, JOBS[0])
    await store_unreadable_records(stage, 200)
    stage.expire(*range(PARTITIONS))
    await expect_end(stage, JOBS[0])


async def test_a_restored_postgres_catches_up_beside_records_that_cannot_be_read(stage: Stage) -> None:
    await begun(stage, JOBS[0])
    dump = stage.store.real.dump()
    await stage.pass_time(1.0)
    await store_unreadable_records(stage, 200)
    restore(stage, dump)
    await expect_end(stage, JOBS[0])


@pytest.mark.parametrize("job", ACCEPTED, ids=lambda job: job.name)
async def test_a_restored_postgres_catches_up_and_every_kind_of_work_ends(stage: Stage, job: Job) -> None:
    await begun(stage, job)
    dump = stage.store.real.dump()
    await stage.pass_time(1.0)
    stage.server_hosts[0].kill()
    restore(stage, dump)
    await stage.server()
    await expect_end(stage, job)
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("job", ACCEPTED, ids=lambda job: job.name)
async def test_events_lost_as_a_whole_under_a_server_are_made_good_and_every_kind_of_work_ends(
    stage: Stage, job: Job
) -> None:
    await begun(stage, job)
    await stage.pass_time(1.0)
    stage.broker.event_log.lose_tail(stage.broker.event_log.end)
    await expect_end(stage, job)


async def test_a_restored_postgres_is_reported_and_takes_the_ticks_of_events(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(stage, ACCEPTED[0])
    dump = stage.store.real.dump()
    await stage.ended(EXECUTION)
    await stage.pass_time(3)
    partition = partition_of(EXECUTION)
    tick, journal = stage.tables.partitions[partition].tick, await stage.journal(EXECUTION)
    stage.server_hosts[0].kill()
    restore(stage, dump)
    await stage.server()
    await stage.pass_time(5)
    assert any(f"partition {partition}: Postgres has committed" in line for line in caplog.messages)
    assert stage.tables.partitions[partition].tick >= tick - 2  # ticks that move a cursor alone leave no record
    assert stage.tables.partitions[partition].generation == 1
    assert await stage.journal(EXECUTION) == journal
    caplog.clear()
    await stage.pass_time(20)
    assert not any("Postgres has committed" in line for line in caplog.messages), "it is made good once"


async def test_messages_stored_while_a_postgres_catches_up_are_folded(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: stage.tables.executions)
    dump = stage.store.real.dump()
    await stage.ended(EXECUTION)
    host.kill()
    restore(stage, dump)
    waiting = [await Stage().request(BESIDE, BESIDE, ONE_STEP)]

    def store_request(tick: Tick) -> None:
        if tick.entries and waiting:
            stage.broker.event_log.store_stray(partition_of(BESIDE), BESIDE, waiting.pop())

    stage.store.before_commit = store_request
    await stage.server()
    assert (await stage.ended(BESIDE)).status == "completed"


async def test_a_server_that_dies_as_it_catches_up_leaves_the_rest_to_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "TICK_BYTES", 0)
    server, host, _ = stage.start_server()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    empty = stage.store.real.dump()
    for execution_id in [EXECUTION, BESIDE]:
        await stage.request(execution_id, execution_id, ONE_STEP)
    await stage.until(lambda: len(stage.tables.executions) == 2)
    await stage.pass_time(2)
    host.kill()
    restore(stage, empty)
    _, second, _ = stage.start_server()
    stage.store.after_commit = lambda tick: second.kill() if tick.entries else None
    await stage.until(lambda: stage.tables.executions)
    stage.store.after_commit = lambda tick: None
    stage.expire(*range(PARTITIONS))
    await stage.server()
    await stage.pass_time(5)
    assert await stage.rebuilt_differences() == []
    stored = stage.broker.event_log.stored
    decided = [one.message_id for one in stored if one.message.subject.endswith(".decided")]
    assert [one.endswith(".again") for one in decided] == [False, False, True, True], "nothing is decided anew"


def lose_records(stage: Stage, monkeypatch: pytest.MonkeyPatch, after_position: int) -> None:
    """From now on servers believe that records are stored which are not: those that begin after this position."""
    log = stage.broker.event_log
    publish = log.publish_decided

    def publish_some(messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        return publish([one for one in messages if codec.decode_record(one.body).first_position <= after_position])

    monkeypatch.setattr(log, "publish_decided", publish_some)


def lose_executions(stage: Stage, monkeypatch: pytest.MonkeyPatch, lost: set[str]) -> None:
    """From now on records of these executions are not stored, and no record is acknowledged."""
    log = stage.broker.event_log
    publish = log.publish_decided

    def publish_some(messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        publish([one for one in messages if one.execution_id not in lost])
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(log, "publish_decided", publish_some)


def hold_first_records(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The first records are not stored before the function that is returned is called."""
    log = stage.broker.event_log
    publish = log.publish_decided
    held: list[Sequence[DecidedMessage]] = []
    stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hold(messages: Sequence[DecidedMessage]) -> Awaitable[int]:
        held.append(messages)
        monkeypatch.setattr(log, "publish_decided", publish)
        return stored

    def release() -> None:
        publish(held[0])
        stored.set_result(log.end)

    monkeypatch.setattr(log, "publish_decided", hold)
    return release


async def stopped(stage: Stage, server: Server) -> None:
    server.stop()
    await stage.running[0]


async def test_the_next_owner_publishes_the_unpublished_ticks_of_the_former(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    with monkeypatch.context() as patched:
        lose_records(stage, patched, 0)
        await stage.request(EXECUTION, "request-1", ONE_STEP)
        await stage.ended(EXECUTION)
        host.kill()
    stage.expire(*range(PARTITIONS))
    assert not stage.records()
    await stage.server()
    await stage.pass_time(5)
    assert [record.execution for record in stage.records()] == [EXECUTION]
    assert await stage.rebuilt_differences() == []


async def test_a_lost_record_that_was_stored_after_one_of_a_later_tick_is_published_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    release = hold_first_records(stage, monkeypatch)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    log = stage.broker.event_log
    log.deaf = True  # cursors do not move on
    release()
    await stage.pass_time(1.6)
    host.kill()
    assert (stage.records()[0].first_position > 1, stage.records()[-1].first_position) == (True, 1)
    log.lose_tail(1)
    log.deaf = False
    stage.expire(*range(PARTITIONS))
    await stage.server()
    await stage.pass_time(5)
    assert await stage.rebuilt_differences() == []


async def test_at_a_hole_in_the_records_servers_go_on_from_the_inputs_not_yet_used(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await stage.server()
    stage.start_worker()
    with monkeypatch.context() as patched:
        lose_records(stage, patched, 1)
        await stage.request(EXECUTION, "request-1", ONE_STEP)
        await stage.ended(EXECUTION)
        before = await stage.journal(EXECUTION)
        await stopped(stage, server)
    restore(stage, Stage().store.real.dump())
    assert (await rebuild(stage.new_server())).executions == 1
    assert 0 < len(await stage.journal(EXECUTION)) < len(before)
    await stage.server()
    await stage.ended(EXECUTION)
    assert [one.data for one in await stage.journal(EXECUTION)] == [one.data for one in before]
    assert set(stage.effects.values()) == {1}


async def test_a_refused_request_is_not_evaluated_again_after_a_rebuild(stage: Stage) -> None:
    await begun(stage, next(job for job in ACCEPTED if job.name == "waiting"))
    patch = CtxPatched("patch-1", patch={"a": 1}, expected_version=77)
    assert "version" in str(await stage.ask(EXECUTION, patch))
    await stage.ended(EXECUTION)
    await stage.pass_time(5)
    store = await stage.rebuilt()
    row = await store.request(EXECUTION, "patch-1")
    assert row is not None and codec.decode_json(row.answer)["code"] == "answer_lost"


async def test_a_rebuild_says_once_that_its_partitions_are_behind_their_fences(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Postgres has lost their epochs, which each attempt to take them raises by one."""
    epochs = dict.fromkeys(range(PARTITIONS), 26)
    assert len(await stage.broker.command_queue.fence("before", epochs)) == PARTITIONS
    assert (await rebuild(stage.new_server())).executions == 0
    said = [text for text in caplog.messages if "fences" in text]
    assert said == [f"NATS has fences of later epochs: giving {PARTITIONS} partitions back until theirs are later"]


async def test_a_rebuild_claims_the_unique_keys_of_what_had_started(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    for execution_id in (EXECUTION, BESIDE):
        await stage.request(execution_id, f"request-{execution_id}", ONE_STEP, key="order=1", unique=True)
        await stage.ended(execution_id)
    await stopped(stage, server)
    keys = stage.tables.keys.copy()
    restore(stage, Stage().store.real.dump())
    await rebuild(stage.new_server())
    assert [holder for holder, _ in keys.values()] == [EXECUTION]
    assert {key: holder for key, (holder, _) in stage.tables.keys.items()} == dict.fromkeys(keys, EXECUTION)


async def test_nothing_is_restored_before_its_unique_keys_are_held(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP, key="order=1", unique=True)
    await stage.until(lambda: stage.tables.executions)
    await stopped(stage, server)
    restore(stage, Stage().store.real.dump())

    async def refuse(*key: str) -> str:
        raise Unreachable("Postgres is away")

    monkeypatch.setattr(type(stage.store.real), "hold_key", refuse)
    with pytest.raises(Unreachable):
        await rebuild(stage.new_server())
    assert not stage.tables.executions


async def test_only_an_empty_postgres_is_rebuilt_and_only_without_servers(stage: Stage) -> None:
    await stage.server()
    with pytest.raises(Conflict, match="stop the servers"):
        await rebuild(stage.new_server())
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: stage.tables.executions)
    with pytest.raises(Conflict, match="not empty"):
        await rebuild(stage.new_server())


async def test_a_restore_on_empty_streams_starts_a_new_generation_from_the_older_state(stage: Stage) -> None:
    job = next(job for job in ACCEPTED if job.name == "waiting")
    await begun(stage, job)
    dump = stage.store.real.dump()
    restored = await stage.journal(EXECUTION)
    await stage.pass_time(1)
    stage.server_hosts[0].kill()
    restore(stage, dump)
    stage.broker.event_log.lose_tail(stage.broker.event_log.end)
    for command_id in list(stage.broker.command_queue.queued):
        stage.broker.command_queue.lose(command_id)
    await stage.server()
    await stage.pass_time(2)
    assert {row.generation for row in stage.tables.partitions if row.id == partition_of(EXECUTION)} == {1}
    assert (await stage.journal(EXECUTION))[: len(restored)] == restored
    await expect_end(stage, job)


@pytest.mark.parametrize("stored", [1, 0], ids=["some of its records are left", "all its other records are trimmed"])
async def test_in_a_trimmed_stream_records_that_are_lost_and_no_others_are_published_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    server = await stage.server()
    stage.start_worker()
    for earlier in [EXECUTION, "execution-2", "execution-3"]:
        await stage.request(earlier, earlier, ONE_STEP)
        await stage.ended(earlier)
        await stage.pass_time(2 * MARGIN_MS / 1000)
    log = stage.broker.event_log
    log.trimmed = log.end - 1
    with monkeypatch.context() as patched:
        lose_records(stage, patched, stored)
        await stage.request(BESIDE, BESIDE, ONE_STEP)
        await stage.ended(BESIDE)
        await stopped(stage, server)
    before = len(stage.records())
    await stage.server()
    await stage.pass_time(5)
    assert {record.execution for record in stage.records()[before:]} == {BESIDE}
    log.trimmed = 0
    assert await stage.rebuilt_differences() == []


@pytest.mark.parametrize("next_owner", ["a new one", "the one before"])
async def test_an_owner_that_dies_while_it_publishes_lost_records_again_leaves_the_rest_to_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, next_owner: str
) -> None:
    server, first, _ = stage.start_server()
    stage.start_worker()
    with monkeypatch.context() as patched:
        lose_records(stage, patched, 0)
        for execution_id in (EXECUTION, BESIDE):
            await stage.request(execution_id, execution_id, ONE_STEP)
            await stage.ended(execution_id)
        if next_owner == "a new one":
            await stopped(stage, server)
        else:
            await stage.pass_time(3)
            first.freeze()
            stage.expire(*range(PARTITIONS))
    with monkeypatch.context() as patched:
        lose_executions(stage, patched, {BESIDE})
        _, host, _ = stage.start_server()
        await stage.until(lambda: stage.records())
        host.kill()
    stage.expire(*range(PARTITIONS))
    if next_owner == "a new one":
        await stage.server()
    first.thaw()
    await stage.pass_time(15)
    assert await stage.rebuilt_differences() == []
