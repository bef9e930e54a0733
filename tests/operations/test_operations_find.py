"""Finding an execution by what it was given: labels, its key, its inputs (LANGUAGE §1 *labels*)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from operations_stage import BY, OperationsStage, labelled

from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import ExecutionDocument, ExecutionFilter, RerunOptions, Start
from noetl_testkit.simulation.work import work

REFUND = labelled("refund", [{"step": "only", "tool": work(1)}], team="shop", order="{{ workload.order.id }}")


def order(number: str) -> dict[str, dict[str, str]]:
    return {"order": {"id": number}}


async def found(stage: OperationsStage, **chosen: object) -> list[str]:
    page = await stage.executions.page(ExecutionFilter(**chosen), 10, None)  # type: ignore[arg-type]
    return [one.execution_id for one in page.items]


async def test_an_execution_is_found_by_a_label_made_of_its_input(stage: OperationsStage) -> None:
    first = await stage.run(REFUND, workload=order("A-1004"))
    second = await stage.run(REFUND, workload=order("A-1005"))
    assert second.labels == {"team": "shop", "order": "A-1005"}
    assert await found(stage, labels={"order": "A-1005"}) == [second.execution_id]
    assert await found(stage, labels={"team": "shop"}) == [second.execution_id, first.execution_id]


async def test_an_execution_is_found_by_a_label_that_its_start_added(stage: OperationsStage) -> None:
    ran = await stage.run(REFUND, workload=order("A-1"), labels={"ticket": "T-9", "team": "night"})
    assert ran.labels == {"team": "night", "order": "A-1", "ticket": "T-9"}
    assert await found(stage, labels={"ticket": "T-9"}) == [ran.execution_id]
    assert await found(stage, labels={"team": "shop"}) == []


async def test_a_rerun_has_the_labels_of_its_original(stage: OperationsStage) -> None:
    original = await stage.run(REFUND, workload=order("A-1"), labels={"ticket": 9})
    again = await stage.executions.rerun(original.execution_id, RerunOptions(step="only"), BY)
    ended: ExecutionDocument = await stage.executions.wait(again.execution_id, 60)
    assert ended.labels == original.labels == {"team": "shop", "order": "A-1", "ticket": 9}


async def test_a_second_start_with_a_unique_key_is_answered_with_the_first(stage: OperationsStage) -> None:
    first = await stage.run(REFUND, workload=order("A-1"), key="order=A-1", unique=True)
    again = await stage.executions.start(Start(playbook=REFUND, key="order=A-1", unique=True, workload=order("B")), BY)
    assert (again.execution_id, again.already, first.already) == (first.execution_id, True, False)
    assert await found(stage, key="order=A-1") == await found(stage) == [first.execution_id]
    other = await stage.run(REFUND, workload=order("A-2"), key="order=A-2", unique=True)
    assert not other.already and other.key == "order=A-2"


async def test_of_two_starts_with_one_key_at_once_one_starts_and_both_are_answered_with_it(
    stage: OperationsStage,
) -> None:
    wanted = Start(playbook=REFUND, key="order=A-1", unique=True, workload=order("A-1"))
    started = await asyncio.gather(*(stage.executions.start(wanted, BY) for _ in range(3)))
    (execution_id,) = {one.execution_id for one in started}
    assert (await stage.executions.wait(execution_id, 60)).status == "completed"
    assert await found(stage, key="order=A-1") == [execution_id]
    refused = await stage.executions.page(ExecutionFilter(status=["failed"]), 9, None)
    assert {one.error.kind for one in refused.items if one.error is not None} == {"key_taken"}


async def test_a_key_that_is_not_unique_names_several_executions(stage: OperationsStage) -> None:
    ran = [(await stage.run(REFUND, workload=order("A-1"), key="order=A-1")).execution_id for _ in range(2)]
    assert await found(stage, key="order=A-1") == ran[::-1]
    again = await stage.executions.rerun(ran[0], RerunOptions(step="only"), BY)
    assert again.key == "order=A-1"


async def test_a_start_that_was_refused_does_not_hold_its_key(stage: OperationsStage) -> None:
    with pytest.raises(UsageError, match=r"metadata\.labels"):
        await stage.executions.start(Start(playbook=REFUND, key="k", unique=True), BY)
    ran = await stage.run(REFUND, workload=order("A-1"), key="k", unique=True)
    assert (ran.status, ran.already) == ("completed", False)


async def test_a_unique_start_without_a_key_is_refused(stage: OperationsStage) -> None:
    with pytest.raises(UsageError, match="a unique start needs a key"):
        await stage.executions.start(Start(playbook=REFUND, unique=True, workload=order("A-1")), BY)


async def test_an_execution_is_found_by_an_input_it_was_given(stage: OperationsStage) -> None:
    first = await stage.run(REFUND, workload={**order("A-1"), "rush": True})
    again = await stage.executions.rerun(first.execution_id, RerunOptions(step="only"), BY)
    await stage.executions.wait(again.execution_id, 60)
    await stage.run(REFUND, workload=order("A-2"))
    assert first.inputs == {"order.id": "A-1", "rush": True}
    assert await found(stage, inputs={"order.id": "A-1"}) == [again.execution_id, first.execution_id]
    assert await found(stage, inputs={"order.id": "A-1", "rush": "true"}) == [again.execution_id, first.execution_id]
    assert await found(stage, inputs={"order.id": "A-3"}) == []


@pytest.mark.parametrize("empty", [{"failed_step": ""}, {"key": ""}, {"worker": ""}])
async def test_an_empty_word_selects_nothing_rather_than_everything(stage: OperationsStage, empty: Any) -> None:
    await stage.run(REFUND, workload=order("A-1"))
    with pytest.raises(UsageError, match="is empty"):
        await found(stage, **empty)


async def test_an_execution_is_found_by_the_step_that_failed_it(stage: OperationsStage) -> None:
    steps = [
        {"step": "read", "tool": work(1), "next": {"arcs": [{"step": "charge"}]}},
        {"step": "charge", "tool": work(2, failures=9)},
    ]
    failed = await stage.run(labelled("pay", steps))
    await stage.run(REFUND, workload=order("A-1"))
    assert failed.failed_step == "charge"
    assert await found(stage, failed_step="charge") == [failed.execution_id]
    assert await found(stage, failed_step="read") == []


async def test_an_execution_is_found_by_the_workers_that_ran_it(stage: OperationsStage) -> None:
    ran = await stage.run(REFUND, workload=order("A-1"))
    (worker,) = ran.workers
    assert await found(stage, worker=worker) == [ran.execution_id]
    assert await found(stage, worker="worker-other-1-0") == []


async def test_an_execution_is_found_by_how_long_it_took(stage: OperationsStage) -> None:
    await stage.run(REFUND, workload=order("A-1"))
    slow = await stage.run(labelled("slow", [{"step": "only", "tool": work(1, 70)}]))
    assert slow.duration_s is not None and 60 < slow.duration_s < 90
    assert await found(stage, longer_than_s=60.0) == await found(stage, longer_than_s=65.5) == [slow.execution_id]
    assert await found(stage, longer_than_s=90.0) == []
    with pytest.raises(UsageError, match="at least 1s"):
        await found(stage, longer_than_s=0.5)


async def test_labels_beyond_their_bounds_are_refused_before_anything_starts(stage: OperationsStage) -> None:
    with pytest.raises(UsageError, match="label `ticket` has 181 characters; the limit is 180"):
        await stage.executions.start(Start(playbook=REFUND, labels={"ticket": "9" * 181}), BY)
    assert await found(stage) == []


@pytest.mark.parametrize("due", ["yesterday", "2026-13-01", "2026-12-20..2026-12-01", ".."])
async def test_an_invalid_day_or_range_is_refused_with_the_form_to_write(stage: OperationsStage, due: str) -> None:
    with pytest.raises(UsageError, match="is not a time at which executions are due") as refused:
        await found(stage, due=due)
    assert refused.value.hint == "write a day, as 2026-12-20, or a range of days, as 2026-12-01..2026-12-20"
