"""Finished executions are kept as long as the rules say, and then go with all that is theirs."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage
from waiting_stage import before_and_after, hear, is_waiting

from noetl_stream.errors import BlobMissing
from noetl_stream.model.ids import first_uuid7, uuid7
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.ports.stores.retention import Month
from noetl_stream.ports.stores.store import ObjectUseRow
from noetl_stream.server.answers.responder import delete_kept
from noetl_stream.server.upkeep.expiry import Retention
from noetl_stream.server.upkeep.upkeep import Upkeep
from noetl_stream.settings.retention_periods import RetentionRule
from noetl_testkit.memory.journals import MemoryRetention
from noetl_testkit.simulation.work import playbook, work

DAY_S = 86_400.0
BIG = playbook("big", [{"step": "only", "tool": work("x" * (DEFAULT_LIMITS.max_inline_bytes + 1))}])


class Months(MemoryRetention):
    """One month, and how often empty ones were dropped."""

    month: Month
    drops = 0

    async def months(self) -> list[Month]:
        return [self.month]

    async def drop_empty_months(self) -> list[str]:
        self.drops += 1
        return []


class Later:
    """The clock of a stage, some days later."""

    def __init__(self, stage: Stage, days: float) -> None:
        self._clock = stage.clock
        self._ms = int(days * DAY_S * 1000)

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        return self._clock.random_bytes(count)


def retention_of(stage: Stage, days: float, *rules: RetentionRule, months: MemoryRetention | None = None) -> Retention:
    """What a server applies these days later."""
    store = stage.store.real
    delete = partial(delete_kept, stage.broker.blobs, stage.broker.task_logs)
    return Retention(store, months or MemoryRetention(store), delete, Later(stage, days), rules)


def keep(days: float | None, path: str = "", status: str = "") -> RetentionRule:
    return RetentionRule(path, status, None if days is None else days * DAY_S)


async def begin(stage: Stage, source: str) -> str:
    execution_id = uuid7(stage.clock.now_ms(), stage.clock.random_bytes(10))
    await stage.request(execution_id, f"request-{execution_id}", source)
    return execution_id


async def run(stage: Stage, source: str = ONE_STEP) -> str:
    execution_id = await begin(stage, source)
    await stage.ended(execution_id)
    return execution_id


@pytest.fixture(autouse=True)
async def working(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()


async def test_without_rules_everything_stays(stage: Stage) -> None:
    execution_id = await run(stage)
    assert await retention_of(stage, 400).delete_old() == 0
    assert execution_id in stage.tables.executions


async def test_an_execution_goes_when_it_has_ended_long_enough_ago(stage: Stage) -> None:
    old, waiting = await run(stage), await begin(stage, before_and_after(hear()))
    await is_waiting(stage, waiting)
    assert await retention_of(stage, 2, keep(2.5)).delete_old() == 0
    assert await retention_of(stage, 2, keep(1.5)).delete_old() == 1
    assert set(stage.tables.executions) == {waiting}
    assert old not in stage.tables.journals
    assert {execution_id for execution_id, _ in stage.tables.requests} == {waiting}


async def test_age_counts_from_the_end_and_not_from_the_start(stage: Stage) -> None:
    execution_id = await run(stage)
    row = stage.tables.executions[execution_id]
    stage.tables.executions[execution_id] = replace(row, finished_ms=row.started_ms + int(3 * DAY_S * 1000))
    assert await retention_of(stage, 3.5, keep(1)).delete_old() == 0
    assert await retention_of(stage, 4.5, keep(1)).delete_old() == 1


async def test_the_first_rule_for_its_path_and_status_decides(stage: Stage) -> None:
    execution_id = await run(stage)
    path = stage.tables.executions[execution_id].path
    for rules in (
        [keep(30, path), keep(1)],
        [keep(None, status="completed"), keep(1)],
        [keep(1, f"{path}/below"), keep(1, status="failed")],
    ):
        assert await retention_of(stage, 10, *rules).delete_old() == 0
    assert await retention_of(stage, 10, keep(None, "elsewhere"), keep(1, path, "completed")).delete_old() == 1


async def test_objects_are_deleted_with_their_execution_unless_others_use_them(stage: Stage) -> None:
    goes, stays = await run(stage, BIG), await run(stage, BIG)
    keys = {key.partition("/")[0]: key for key in stage.broker.blobs.keys}
    stage.tables.journals["another"] = {**stage.tables.journals[stays]}
    stage.tables.object_uses["another", keys[stays]] = ObjectUseRow(
        execution_id="another", key=keys[stays], store="nats", owner=stays
    )
    assert await retention_of(stage, 2, keep(1)).delete_old() == 2
    with pytest.raises(BlobMissing):
        await stage.broker.blobs.get(keys[goes])
    assert await stage.broker.blobs.get(keys[stays])


async def test_one_whose_journal_others_need_waits(stage: Stage) -> None:
    execution_id = await run(stage)
    used = ObjectUseRow(execution_id="rerun", key=f"{execution_id}.1", store="journal", owner=execution_id)
    stage.tables.journals["rerun"] = {**stage.tables.journals[execution_id]}
    stage.tables.object_uses["rerun", used.key] = used
    assert await retention_of(stage, 2, keep(1)).delete_old() == 0
    stage.tables.object_uses.clear()
    assert await retention_of(stage, 2, keep(1)).delete_old() == 1


@pytest.mark.parametrize("lives", [False, True])
async def test_where_a_whole_month_goes_journals_are_left_to_its_drop(stage: Stage, lives: bool) -> None:
    months = Months(stage.store.real)
    first_ms = stage.clock.now_ms()
    execution_id = await run(stage)
    if lives:
        await is_waiting(stage, await begin(stage, before_and_after(hear())))
    months.month = Month("event_past", first_uuid7(first_ms), first_uuid7(stage.clock.now_ms() + 1))
    assert await retention_of(stage, 4, keep(1), months=months).delete_old() == 1
    assert execution_id not in stage.tables.executions
    assert (execution_id in stage.tables.journals) is not lives
    assert months.drops == 1


async def test_the_owner_of_the_first_partition_deletes(stage: Stage) -> None:
    execution_id = await run(stage)
    stage.upkeep = Upkeep(stage.clock, retention=retention_of(stage, 2, keep(1)))
    stage.running[0].cancel()
    await stage.server()
    await stage.until(lambda: execution_id not in stage.tables.executions)
    assert execution_id not in {row.execution_id for row in stage.tables.requests.values()}
