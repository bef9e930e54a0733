"""`database verify`: what Postgres has committed against what EVENTS holds (PROTOCOL §5)."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace
from server_stage import ONE_STEP, Stage

from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.cursors import Cursor
from noetl_stream.server.journal_records import disagreements

EXECUTION = "execution-1"


async def compared(stage: Stage) -> list[str]:
    return await disagreements(stage.broker.event_log, stage.store.real, stage.store.real.cursors)


async def run_one(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)


async def test_nothing_is_named_while_all_is_well(stage: Stage) -> None:
    assert await compared(stage) == []
    await run_one(stage)
    assert await compared(stage) == []


async def test_a_postgres_that_lacks_published_ticks_is_named(stage: Stage) -> None:
    await run_one(stage)
    (view,) = await stage.store.real.read_partitions([partition_of(EXECUTION)])
    stage.tables.partitions[view.id].tick = 1
    (found,) = await compared(stage)
    assert found.startswith(f"partition {view.id}: Postgres has committed 1 ticks, and EVENTS holds a record of tick ")


async def test_folded_messages_that_are_lost_are_named(stage: Stage) -> None:
    await run_one(stage)
    await stage.pass_time(5)
    stage.broker.event_log.lose_tail(1)
    found = await compared(stage)
    assert len(found) == 32 and all("is lost" in line and "stream reconcile" in line for line in found)


async def test_a_message_that_is_folded_while_they_are_compared_is_not_lost(stage: Stage) -> None:
    await run_one(stage)

    class Cursors:
        """Those of the store, after one more execution has run."""

        floor = stage.store.real.cursors.floor

        async def all(self) -> list[Cursor]:
            await stage.request("execution-2", "request-2", ONE_STEP)
            await stage.ended("execution-2")
            return await stage.store.real.cursors.all()

    assert await disagreements(stage.broker.event_log, stage.store.real, cast("Any", Cursors())) == []


async def test_executions_that_wait_for_nothing_are_named(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: stage.tables.executions)
    stage.tables.executions[EXECUTION] = replace(stage.tables.executions[EXECUTION], commands=0)
    (found,) = await compared(stage)
    assert found == f"execution {EXECUTION}: waits for nothing, a defect of the engine"
