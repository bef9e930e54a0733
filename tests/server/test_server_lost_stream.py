"""EVENTS has lost messages that Postgres has folded: `stream reconcile`, then servers that go on (PROTOCOL §5)."""

from __future__ import annotations

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.memory.cursors import MemoryCursors
from noetl_stream.errors import Conflict, StreamLost
from noetl_stream.model.ids import partition_of
from noetl_stream.server.lost_stream import MARGIN_MS, MovedCursor, reconcile_cursors
from noetl_stream.server.server import Server

OLD, NEW = "execution-1", "execution-2"


async def reconciled(stage: Stage) -> list[MovedCursor]:
    return await reconcile_cursors(stage.broker.event_log, MemoryCursors(stage.store.real))


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
    """A new server takes everything over, runs a new execution, and repeats nothing of the old one."""
    before = await stage.journal(OLD)
    await stage.server()
    assert (await stage.owners())[None] == 0
    await stage.request(NEW, "request-2", ONE_STEP)
    await stage.ended(NEW)
    await stage.pass_time(30)
    assert await stage.journal(OLD) == before
    assert set(stage.effects.values()) == {1}


async def test_servers_go_on_after_a_lost_tail(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    await stage.pass_time(2 * MARGIN_MS / 1000)
    stage.broker.event_log.lose_tail(2)
    with pytest.raises(StreamLost, match="stream reconcile"):
        await stage.start_server()[2]
    moved = await reconciled(stage)
    assert len(moved) == 32 and all(after.last_seq < before.last_seq for before, after in moved)
    assert {row.generation for row in stage.tables.partitions} == {1}
    await expect_service(stage)


async def test_servers_go_on_with_new_messages_in_the_place_of_lost_ones(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    stage.broker.event_log.lose_tail(2)
    await stage.pass_time(1)
    for number in range(5):
        await stage.request(f"other-{number}", f"other-{number}", ONE_STEP)
    await reconciled(stage)
    await expect_service(stage)
    for number in range(5):
        await stage.ended(f"other-{number}")


async def test_a_stream_made_anew_is_read_from_its_beginning(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    log = stage.broker.event_log
    log.lose_tail(log.end)
    assert {after.last_seq for _, after in await reconciled(stage)} == {0}
    await expect_service(stage)


async def test_a_command_whose_report_is_lost_is_issued_again(stage: Stage) -> None:
    server, host, _ = stage.start_server()
    await stage.until(lambda: len(server.ownership) == 32)
    stage.start_worker()
    await stage.request(OLD, "request-1", ONE_STEP)
    await stage.until(lambda: stage.tables.executions)
    host.kill()
    log = stage.broker.event_log
    await stage.until(lambda: b"step.done" in log.stored[-1].message.body)
    assert stage.tables.executions[OLD].status == "running"
    log.lose_tail(log.end)
    stage.expire(*range(32))
    await reconciled(stage)
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
    stage.broker.event_log.lose_tail(1)
    assert {after.last_seq for _, after in await reconciled(stage)} == {kept}


async def test_nothing_is_moved_where_nothing_is_lost(stage: Stage) -> None:
    await stopped(stage, await folded(stage))
    assert await reconciled(stage) == []
    assert {row.generation for row in stage.tables.partitions} == {0}


async def test_partitions_that_a_server_owns_are_refused(stage: Stage) -> None:
    await folded(stage)
    stage.broker.event_log.lose_tail(1)
    with pytest.raises(Conflict, match=rf"messages: .*\b{partition_of(OLD)}\b.*stop the servers"):
        await reconciled(stage)
