"""A worker that cannot begin a task: its command goes to another, a few times."""

from __future__ import annotations

from typing import Any

import pytest
from worker_stage import Stage

from noetl_stream.errors import NotReady
from noetl_stream.model.events import StepFailed
from noetl_stream.model.messages import Go
from noetl_stream.tools.contract import ToolCall, WorkerUnfit
from noetl_stream.worker.worker_limits import RETURN_DELAY_S, UNFIT_DELIVERIES

ONE_TASK = """
- step: start
  tool: {name: only, kind: puppet, word: "{{ 1 + 1 }}"}
"""

LOCAL_LOOP = """
- step: start
  loop: {in: "{{ workload.items }}", iterator: i, spec: {mode: parallel, max_in_flight: 3, exec: local}}
  tool: {name: only, kind: puppet}
"""


class Unfit:
    """An act that cannot begin for the first ``times``."""

    def __init__(self, times: int, *, for_good: bool = False) -> None:
        self._left = times
        self._for_good = for_good

    async def __call__(self, _call: ToolCall) -> Any:
        self._left -= 1
        if self._left >= 0:
            raise WorkerUnfit("no process could be forked", for_good=self._for_good)
        return "done"


async def deliver_again(stage: Stage) -> None:
    await stage.advance(RETURN_DELAY_S)


@pytest.mark.parametrize("steps", [ONE_TASK, LOCAL_LOOP], ids=["a task", "a local loop"])
async def test_the_command_of_a_task_that_could_not_begin_is_given_back_and_runs_later(
    stage: Stage, steps: str
) -> None:
    stage.puppet.acts["only"] = Unfit(1)
    await stage.answer_claims(lambda report: Go())
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(steps)))
    await stage.until(lambda: worker.counts.commands["returned"] == 1)
    assert await stage.queued() == {"command-1"}
    assert "task.processed" not in stage.names
    await deliver_again(stage)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert await stage.queued() == set()
    assert not worker.is_draining


async def test_the_third_time_the_task_fails(stage: Stage) -> None:
    stage.puppet.acts["only"] = Unfit(UNFIT_DELIVERIES)
    await stage.answer_claims(lambda report: Go())
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    for returned in range(1, UNFIT_DELIVERIES):
        await stage.until(lambda returned=returned: worker.counts.commands["returned"] == returned)
        await deliver_again(stage)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert len(stage.puppet.calls) == UNFIT_DELIVERIES
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.retryable) == ("worker_unfit", True)
    assert failed.error.message == "no worker could begin it, the last of 3 deliveries: no process could be forked"


async def test_a_worker_that_cannot_mend_itself_gives_the_command_back_and_ends(stage: Stage) -> None:
    stage.puppet.acts["only"] = Unfit(1, for_good=True)
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    _, running = stage.workers[0]
    await stage.soon(running.done)
    assert isinstance(running.exception(), NotReady)
    assert str(running.exception()) == "no process could be forked (restart the worker)"
    assert await stage.queued() == {"command-1"}
