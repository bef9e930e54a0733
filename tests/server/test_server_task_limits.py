"""Limits of tasks with servers and workers: a slot for each attempt, whatever becomes of its holder (LANGUAGE §15)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec.structs import replace
from server_stage import Stage
from tests.server.test_server_limits import running, waiting

from noetl_stream.model.aggregates import LimitSlot
from noetl_stream.model.events import SlotGranted, SlotReleased, SlotRequested, StepSuspended
from noetl_stream.model.json import codec
from noetl_testkit.simulation.work import playbook, work


def limited_task(name: str = "limited", takes_s: float = 5.0, loop: dict[str, Any] | None = None, **limit: Any) -> str:
    """A playbook whose second task is limited."""
    policy = {"policy": {"limit": {"key": "acme", **(limit or {"concurrency": 1})}}}
    tasks = [
        {"name": "find", **work("found", 0.2)},
        {"name": "send", **work("{{ find }}", takes_s), "spec": policy},
        {"name": "tell", **work("{{ send }}", 0.2)},
    ]
    step: dict[str, Any] = {"step": "call", "tool": tasks}
    return playbook(name, [step if loop is None else {**step, "loop": loop}])


def parallel(count: int, **spec: Any) -> dict[str, Any]:
    return {"in": list(range(count)), "iterator": "n", "spec": {"mode": "parallel", **spec}}


async def test_tasks_with_one_key_run_one_after_the_other_and_no_worker_waits(stage: Stage) -> None:
    await stage.server()
    stage.start_worker(slots=1)
    ids = [await stage.submit(limited_task()) for _ in range(3)]
    await stage.until(lambda: len(waiting(stage)) == 2)
    assert [stage.tables.executions[one].status for one in waiting(stage)] == ["waiting"] * 2
    for one in ids:
        assert (await stage.ended(one)).status == "completed"
        kinds = [type(fact) for fact in await stage.facts(one)]
        assert [kinds.count(kind) for kind in (SlotRequested, SlotGranted, SlotReleased)] == [1, 1, 1]
    granted = sorted([row.at_ms for one in ids for row in await stage.journal(one) if row.name == "slot.granted"])
    assert all(after - before >= 5000 for before, after in pairwise(granted))
    assert not stage.tables.limits.rows and await stage.rebuilt_differences() == []


async def test_iterations_on_several_workers_hold_no_more_than_may(stage: Stage) -> None:
    await stage.server()
    for _ in range(3):
        stage.start_worker()
    one = await stage.submit(limited_task(takes_s=2.0, loop=parallel(6), concurrency=2))
    most = 0
    while stage.tables.executions.get(one) is None or stage.tables.executions[one].finished_ms is None:
        await stage.pass_time(0.5)
        most = max(most, len(running(stage)))
    assert most == 2 and stage.tables.executions[one].status == "completed"


async def test_a_rate_spaces_attempts_and_retries_count(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    retry = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 0.1}}
    limit = {"key": "acme", "rate": {"per_s": 0.5}}
    task = {"name": "send", **work("sent", 0.1, failures=2), "spec": {"policy": {"limit": limit, "rules": [retry]}}}
    one = await stage.submit(playbook("retried", [{"step": "call", "tool": [task]}]))
    assert (await stage.ended(one)).status == "completed"
    granted = [row.at_ms for row in await stage.journal(one) if row.name == "slot.granted"]
    assert len(granted) == 3 and all(1900 <= after - before <= 3000 for before, after in pairwise(granted))


async def test_a_worker_that_dies_leaves_the_slot_to_the_run_that_takes_over(stage: Stage) -> None:
    await stage.server()
    worker = stage.start_worker()
    first = await stage.submit(limited_task())
    await stage.until(lambda: running(stage) == [first])
    second = await stage.submit(limited_task())
    await stage.until(lambda: waiting(stage) == [second])
    worker.kill()
    stage.start_worker()
    assert (await stage.ended(first, 200)).status == (await stage.ended(second, 200)).status == "completed"
    assert [type(fact) for fact in await stage.facts(first)].count(SlotRequested) == 1


async def test_a_server_that_dies_loses_no_place_in_the_queue(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    ids = [await stage.submit(limited_task()) for _ in range(3)]
    await stage.until(lambda: len(waiting(stage)) == 2)
    host.kill()
    await stage.server()
    assert [(await stage.ended(one, 200)).status for one in ids] == ["completed"] * 3


async def test_an_abandoned_slot_is_given_back(stage: Stage) -> None:
    await stage.server(slots_s=30.0)
    stage.start_worker()
    first = await stage.submit(limited_task(takes_s=1))
    await stage.until(lambda: running(stage) == [first])
    (row,) = stage.tables.limits.rows.values()
    ghost = LimitSlot(row.number, "ghost", "run", granted_ms=row.granted_ms or 0, slot_id="slot", task="send")
    del stage.tables.limits.rows[row.limit_id, row.holder]
    stage.tables.limits.rows[row.limit_id, "slot"] = replace(
        row, holder="slot", execution_id="ghost", body=codec.encode(ghost)
    )
    second = await stage.submit(limited_task())
    await stage.ended(first)
    assert running(stage) == ["ghost"] and waiting(stage) == [second]
    assert (await stage.ended(second)).status == "completed"


async def test_waits_of_a_task_are_in_its_journal(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    one = await stage.submit(limited_task())
    await stage.ended(one)
    (suspended,) = [fact for fact in await stage.facts(one) if isinstance(fact, StepSuspended)]
    assert [(wait.task, wait.key) for wait in suspended.waits] == [("send", "acme")]


async def test_a_key_that_is_none_is_an_error_of_the_task_and_of_the_step(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    row = await stage.ended(await stage.submit(limited_task(key="{{ [find] }}", concurrency=1)))
    assert row.status == "failed"
    assert b"the limit of task send: the key must be text or a number" in (row.error or b"")
