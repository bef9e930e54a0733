"""Executions whose workers cannot begin their tasks."""

from __future__ import annotations

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.model.events import StepClaimed
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.executions import ExecutionDocument, Start
from noetl_stream.tools.contract import ToolCall, ToolResult, WorkerUnfit
from noetl_testkit.simulation.work import WorkTool, playbook, then, work

TWO_STEPS = playbook(
    "two", [{"step": "one", "tool": work(1), "next": then("other")}, {"step": "other", "tool": work("{{ one + 1 }}")}]
)


async def _always_awake() -> None:
    """Its host is never frozen."""


class IllTool(WorkTool):
    """Kind ``work`` of a worker that cannot begin the first tasks, as its self-test says until ``mended_s``."""

    def __init__(self, stage: OperationsStage, times: int, mended_s: float = 0.0) -> None:
        super().__init__(stage.clock, stage.effects, _always_awake)
        self._stage = stage
        self._times = times
        self._mended_s = mended_s

    async def self_test(self) -> None:
        if self._stage.clock.monotonic_s() < self._mended_s:
            raise WorkerUnfit("no space left")

    async def run(self, call: ToolCall) -> ToolResult:
        self._times -= 1
        if self._times >= 0:
            raise WorkerUnfit("no process could be forked")
        return await super().run(call)


async def given_back(stage: OperationsStage, found: ExecutionDocument) -> list[str]:
    facts = [codec.decode_fact(row.data) for row in await stage.store.journal(found.execution_id)]
    return [fact.returned for fact in facts if isinstance(fact, StepClaimed) and fact.returned]


async def test_another_worker_runs_what_one_could_not_begin_and_every_task_runs_once(
    without_worker: OperationsStage,
) -> None:
    stage = without_worker
    stage.begin_worker("ill", IllTool(stage, times=1, mended_s=400))
    started = await stage.executions.start(Start(playbook=TWO_STEPS), BY)
    await stage.clock.sleep(1)
    stage.begin_worker("well")
    found = await stage.executions.wait(started.execution_id, 60)
    assert (found.status, found.result) == ("completed", 2)
    assert await given_back(stage, found) == ["ill: no process could be forked"]
    assert list(stage.effects.values()) == [1, 1]


async def test_a_pool_whose_only_worker_is_ill_for_minutes_fails_nothing(without_worker: OperationsStage) -> None:
    stage = without_worker
    stage.begin_worker("ill", IllTool(stage, times=1, mended_s=400))
    started = await stage.executions.start(Start(playbook=TWO_STEPS), BY)
    await stage.clock.sleep(200)
    why = await stage.executions.why(started.execution_id)
    assert why.summary == (
        "Step `one` could not begin at worker ill: no process could be forked; its command waits for a worker of pool "
        "`default`, but its worker cannot begin tasks: no space left."
    )
    found = await stage.executions.wait(started.execution_id, 900)
    assert (found.status, found.result) == ("completed", 2)


@pytest.mark.parametrize("times", [2, 3])
async def test_the_third_give_back_by_whichever_worker_fails_the_task(
    without_worker: OperationsStage, times: int
) -> None:
    stage = without_worker
    ill = IllTool(stage, times)
    for name in ("ill-1", "ill-2"):
        stage.begin_worker(name, ill)
    started = await stage.executions.start(Start(playbook=TWO_STEPS), BY)
    found = await stage.executions.wait(started.execution_id, 600)
    assert found.status == ("completed" if times == 2 else "failed")
    assert {why.partition(":")[0] for why in await given_back(stage, found)} == {"ill-1", "ill-2"}
    assert times == 2 or (found.error is not None and found.error.kind == "worker_unfit")
