"""Priorities from the request to the worker: what comes first, who inherits, what is shown (LANGUAGE §15)."""

from __future__ import annotations

from typing import Any

from operations_stage import BY, OperationsStage

from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import RerunOptions, Start
from noetl_testkit.simulation.work import playbook, work
from noetl_testkit.waiting import expect_error


def one_step(takes_s: float = 1.0, **spec: Any) -> str:
    more = {"executor": {"spec": spec}} if spec else {}
    return playbook("one", [{"step": "only", "tool": work("done", takes_s)}], **more)


async def begin(stage: OperationsStage, count: int, priority: int | None, source: str = "") -> list[str]:
    """Starts executions, and returns their ids."""
    wanted = Start(playbook=source or one_step(), priority=priority)
    return [(await stage.executions.start(wanted, BY)).execution_id for _ in range(count)]


async def order_of(stage: OperationsStage, count: int) -> list[str]:
    """The executions in the order in which a worker has begun them, once it has begun so many."""
    while len(stage.effects) < count:
        await stage.clock.sleep(0.5)
    return [effect.execution_id for effect in stage.effects]


async def test_one_of_a_high_priority_overtakes_a_hundred_that_wait(without_worker: OperationsStage) -> None:
    stage = without_worker
    low = await begin(stage, 100, 2)
    (high,) = await begin(stage, 1, 8)
    stage.begin_worker("worker")
    assert await order_of(stage, 101) == [high, *low]


async def test_under_endless_work_of_the_highest_priority_the_lowest_moves(without_worker: OperationsStage) -> None:
    stage = without_worker
    low = await begin(stage, 3, 1)
    high = await begin(stage, 60, 9)
    stage.begin_worker("worker")
    begun = await order_of(stage, 40)
    assert [one for one in begun if one in low] == low
    assert max(map(begun.index, low)) < 35 < len(high)


async def test_the_priority_is_that_of_the_request_else_of_the_playbook(stage: OperationsStage) -> None:
    declared = one_step(priority=3)
    found = [
        (await stage.run(source, priority=asked)).priority
        for source, asked in ((one_step(), None), (declared, None), (declared, 9), (declared, 5))
    ]
    assert found == [5, 3, 9, 5]


async def test_a_rerun_keeps_the_priority_unless_it_is_asked_for_with_another(stage: OperationsStage) -> None:
    ended = await stage.run(one_step(priority=3), priority=7)
    for asked, expected in ((None, 7), (0, 0)):
        again = await stage.executions.rerun(ended.execution_id, RerunOptions(step="only", priority=asked), BY)
        await stage.executions.wait(again.execution_id, 60)
        assert (await stage.executions.get(again.execution_id)).priority == expected


async def test_a_priority_that_there_is_not_is_refused_before_it_is_published(stage: OperationsStage) -> None:
    for priority in (-1, 10):
        starting = stage.executions.start(Start(playbook=one_step(), priority=priority), BY)
        error = await expect_error(UsageError, starting)
        assert f"its priority is {priority}; the lowest is 0, the highest 9" in str(error)


async def test_why_and_pools_show_what_waits_ahead(without_worker: OperationsStage) -> None:
    stage = without_worker
    await begin(stage, 3, 8)
    await begin(stage, 2, None)
    (mine,) = await begin(stage, 1, 2)
    (pool,) = await stage.cluster.pools()
    assert pool.by_priority == {"8": 3, "5": 2, "2": 1}
    (reason,) = (await stage.executions.why(mine)).reasons
    assert "in the queue of pool `default` with priority 2, behind 5 commands with a higher one" in reason.sentence
    assert reason.waiting_on is not None and reason.waiting_on.pool is not None
    assert (reason.waiting_on.pool.priority, reason.waiting_on.pool.ahead) == (2, 5)
