"""EVENTS has lost messages that Postgres has folded: servers repair that, and publish them again (PROTOCOL §5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import Conflict, StreamLost
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.cursors import Repair
from noetl_stream.server.journal_records import MARGIN_MS, reconcile_cursors
from noetl_stream.server.server import Server

OLD, NEW = "execution-1", "execution-2"


async def reconciled(stage: Stage) -> list[Repair]:
    return await reconcile_cursors(stage.broker.event_log, stage.store.real.cursors)


async def stopped(stage: Stage, server: Server) -> None:
    server.stop()
    await stage.running[0]


async def folded(stage: Stage) -> Server:
    """A server that has folded an execution, and whose cursors are at the end of EVENTS."""
    server = await stage.server()
    stage.start_worker()
    await stage.request(OLD, "request-1", ONE_STEP)
    await stage.ended(OLD)
    await stage.pass_time(5)
    return server


async def expect_service(stage: Stage) -> None:
    """Servers own all partitions, run a new execution, repeat nothing of the old one, and EVENTS is whole again."""
    before = await stage.journal(OLD)
    await stage.pass_time(15)
    assert (await stage.owners())[None] == 0
    await stage.request(NEW, "request-2", ONE_STEP)
    await stage.ended(NEW)
    await stage.pass_time(30)
    assert await stage.journal(OLD) == before
    assert set(stage.effects.values()) == {1}
    assert await stage.rebuilt_differences() == []


def lose(count: int) -> Callable[[Stage], None]:
    return lambda stage: stage.broker.event_log.lose_tail(count)


def lose_all(stage: Stage) -> None:
    stage.broker.event_log.lose_tail(stage.broker.event_log.end)


@pytest.mark.parametrize("losing", [lose(1), lose(3), lose_all], ids=["the last", "a tail", "all, in a new stream"])
async def test_a_server_that_runs_makes_good_what_is_lost(
    stage: Stage, losing: Callable[[Stage], None], caplog: pytest.LogCaptureFixture
) -> None:
    await folded(stage)
    losing(stage)
    await stage.pass_time(6)
    assert any("the stream has lost" in line or "has lost what" in line for line in caplog.messages)
    assert {row.generation for row in stage.tables.partitions} == {1}
    await expect_service(stage)


@pytest.mark.parametrize("losing", [lose(2), lose_all], ids=["a tail", "all"])
async def test_a_server_that_starts_makes_good_what_was_lost(stage: Stage, losing: Callable[[Stage], None]) -> None:
    await stopped(stage, await folded(stage))
    losing(stage)
    await stage.server()
    await expect_service(stage)


async def test_new_messages_in_the_place_of_lost_ones_are_folded(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    lose(2)(stage)
    await stage.pass_time(1)
    for number in range(5):
        await stage.request(f"other-{number}", f"other-{number}", ONE_STEP)
    await stage.server()
    await expect_service(stage)
    for number in range(5):
        await stage.ended(f"other-{number}")


async def test_records_that_are_lost_with_their_inputs_are_published_in_full(stage: Stage) -> None:
    await folded(stage)
    lose_all(stage)
    await stage.pass_time(15)
    inputs = [one for one in stage.broker.event_log.stored if one.is_input]
    assert inputs == []
    assert await stage.rebuilt_differences() == []


async def test_after_a_late_loss_only_the_records_that_are_lost_are_published_again(stage: Stage) -> None:
    server = await folded(stage)
    await stage.pass_time(2 * MARGIN_MS / 1000)
    await stage.request(NEW, "request-2", ONE_STEP)
    await stage.ended(NEW)
    await stage.pass_time(5)
    await stopped(stage, server)
    lose(1)(stage)
    before = len(stage.records())
    await stage.server()
    await stage.pass_time(5)
    again = stage.records()[before:]
    assert {record.execution for record in again} == {NEW}
    assert await stage.rebuilt_differences() == []


async def test_a_command_whose_report_is_lost_is_issued_again(stage: Stage) -> None:
    await stage.store_report_that_no_server_reads(OLD)
    assert stage.tables.executions[OLD].status == "running"
    lose_all(stage)
    stage.expire(*range(32))
    await stage.server()
    await stage.ended(OLD)
    assert set(stage.effects.values()) == {2}


async def test_only_messages_older_than_the_margin_count_as_folded(stage: Stage) -> None:
    server = await folded(stage)
    await stage.pass_time(2 * MARGIN_MS / 1000)
    kept = stage.broker.event_log.end
    await stage.request(NEW, "request-2", ONE_STEP)
    await stage.ended(NEW)
    await stage.pass_time(5)
    await stopped(stage, server)
    lose(1)(stage)
    assert {one.last_seq for one in await reconciled(stage)} == {kept}


async def test_a_server_refuses_the_stream_of_another_database_until_an_operator_says_that_it_is_its_own(
    stage: Stage,
) -> None:
    await stopped(stage, await folded(stage))
    for table in (stage.tables.executions, stage.tables.journals, stage.tables.requests):
        table.clear()  # the records of EVENTS are of executions that are not known here
    lose(1)(stage)
    _, _, task = stage.start_server()
    with pytest.raises(StreamLost, match="stream reconcile"):
        await task
    assert (await stage.owners())[None] == 32
    assert len(await reconciled(stage)) == 32
    await stage.server()
    assert (await stage.owners())[None] == 0


async def fences(stage: Stage) -> list[int]:
    """The fences of COMMANDS, and the messages of EVENTS, which are more after a fence."""
    held = await stage.broker.event_log.held()
    return [*stage.broker.command_queue.fences.values(), held.last]


def make_new(stage: Stage) -> None:
    """Postgres is another one, which no server has used."""
    for table in (stage.tables.executions, stage.tables.journals, stage.tables.requests):
        table.clear()
    stage.tables.partitions[:] = [type(row)(row.id) for row in stage.tables.partitions]


async def test_a_server_of_a_new_database_leaves_the_stream_of_another_as_it_is(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    make_new(stage)
    before = await fences(stage)
    _, _, task = stage.start_server()
    with pytest.raises(StreamLost, match=r"another Postgres.*database rebuild"):
        await task
    assert await fences(stage) == before
    assert (await stage.owners())[None] == 32


async def test_a_server_of_another_database_raises_no_fences_before_it_is_refused(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    for table in (stage.tables.executions, stage.tables.journals, stage.tables.requests):
        table.clear()
    lose(1)(stage)
    before = await fences(stage)
    _, _, task = stage.start_server()
    with pytest.raises(StreamLost):
        await task
    assert await fences(stage) == before


async def test_nothing_is_moved_where_nothing_is_lost(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    assert await reconciled(stage) == []
    assert {row.generation for row in stage.tables.partitions} == {0}


async def test_partitions_that_a_server_owns_are_refused(stage: Stage) -> None:
    await folded(stage)
    lose(1)(stage)
    with pytest.raises(Conflict, match=rf"messages: .*\b{partition_of(OLD)}\b.*stop the servers"):
        await reconciled(stage)
