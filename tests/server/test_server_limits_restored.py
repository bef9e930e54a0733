"""Limits after a restore of Postgres: nothing is given out until all who hold a slot are known (ADR 30)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from server_stage import Stage

from noetl_stream.model.aggregates import limit_id
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.server.inputs.inbox import AT_MOST_S
from noetl_testkit.simulation.work import playbook, work

Lease = Callable[[], Awaitable[object]]

LIMIT = partition_of(limit_id("acme", "simulation"))


def limited(on_limit: str = "queue") -> str:
    concurrency = {"key": "acme", "limit": 1, "on_limit": on_limit}
    spec = {"spec": {"policy": {"concurrency": concurrency}}}
    return playbook("limited", [{"step": "only", "tool": work("done", 30.0)}], executor=spec)


def id_in(other_than: int, name: str) -> str:
    """An id of an execution whose partition is neither the limit's nor this."""
    ids = (f"{name}{n}" for n in range(1_000))
    return next(one for one in ids if partition_of(one) not in (LIMIT, other_than))


FIRST = id_in(LIMIT, "first")
SECOND = id_in(partition_of(FIRST), "second")


def held(stage: Stage) -> list[str]:
    return [row.execution_id for row in stage.tables.limits.rows.values() if row.granted_ms is not None]


async def restore(stage: Stage) -> Lease:
    """Postgres forgets that the first execution has the key. Only a server that is dead may read its partition: what is
    returned renews its lease for 20 seconds.
    """
    server, host, _ = stage.start_server()
    stage.start_worker()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    before = stage.store.real.dump()
    await stage.request(FIRST, "first", limited())
    await stage.until(lambda: held(stage) == [FIRST] and stage.effects)
    host.kill()
    stage.store.real.restore(before)
    partition = partition_of(FIRST)
    held_by_dead = [(partition, stage.tables.partitions[partition].epoch)]
    await stage.store.real.renew(server.owner, held_by_dead, 20)
    stage.expire(*(id for id in range(PARTITIONS) if id != partition))
    await stage.server()
    return lambda: stage.store.real.renew(server.owner, held_by_dead, 20)


async def test_nobody_gets_a_slot_until_the_partitions_of_its_holders_have_caught_up(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await restore(stage)
    await stage.request(SECOND, "second", limited("reject"))
    await stage.pass_time(15)
    assert held(stage) == [] and len(stage.tables.limits.rows) == 1
    assert f"limits give out nothing until these partitions have caught up: [{partition_of(FIRST)}]" in caplog.text
    await stage.until(lambda: held(stage) == [FIRST])
    assert (await stage.ended(FIRST)).status == "completed"
    await stage.until(lambda: held(stage) == [SECOND])
    assert (await stage.ended(SECOND)).status == "completed"


async def test_a_partition_that_no_server_reads_holds_limits_back_for_ten_minutes(stage: Stage) -> None:
    renew = await restore(stage)
    await stage.request(SECOND, "second", limited())
    for _ in range(int(AT_MOST_S / 10) - 2):
        await renew()
        await stage.pass_time(10)
    assert held(stage) == []
    await renew()
    await stage.pass_time(15)
    await renew()
    await stage.until(lambda: held(stage) == [SECOND], 15)


async def test_after_a_takeover_without_a_loss_a_limit_decides_at_once(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await stage.request(FIRST, "first", limited())
    await stage.until(lambda: held(stage) == [FIRST])
    host.kill()
    stage.expire(*range(PARTITIONS))
    await stage.server()
    await stage.request(SECOND, "second", limited("reject"))
    assert (await stage.ended(SECOND)).status == "failed"
    assert held(stage) == [FIRST]
