"""A worker that cannot begin a task: its command goes to another, and it takes no more until it can."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from worker_stage import Puppet, Stage

from noetl_stream.errors import NotReady
from noetl_stream.model.events import StepClaimed, StepDone, StepFailed
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Go
from noetl_stream.tools.contract import ToolCall, WorkerUnfit
from noetl_stream.worker.status_report import WorkerStatus
from noetl_stream.worker.worker_limits import FIRST_TEST_S, LONGEST_TEST_S, MAX_RETURNS, RETURN_DELAY_S

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

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self._left = times
        self._error = error or WorkerUnfit("no process could be forked")

    async def __call__(self, _call: ToolCall) -> Any:
        self._left -= 1
        if self._left >= 0:
            raise self._error
        return "done"


class Broken(Puppet):
    """A tool whose tasks cannot begin until it is mended, as its self-test says."""

    def __init__(self) -> None:
        super().__init__()
        self.tests = 0
        self.is_mended = False
        self.acts["only"] = self._try

    async def self_test(self) -> None:
        self.tests += 1
        if not self.is_mended:
            raise WorkerUnfit("there is no memory")

    async def _try(self, _call: ToolCall) -> str:
        if not self.is_mended:
            raise WorkerUnfit("no process could be forked")
        return "done"


async def answer_as_servers_do(stage: Stage) -> None:
    """Answers claims with how often the command was given back."""
    await stage.answer_claims(lambda report: Go(returned=len(returned(stage))))


def returned(stage: Stage) -> list[str]:
    """Why the command was given back, each time."""
    return [fact.returned for fact in stage.facts if isinstance(fact, StepClaimed) and fact.returned]


async def pass_self_test(stage: Stage) -> None:
    await stage.advance(FIRST_TEST_S * 2)


@pytest.mark.parametrize("steps", [ONE_TASK, LOCAL_LOOP], ids=["a task", "a local loop"])
@pytest.mark.parametrize("error", [None, OSError(errno.EMFILE, "Too many open files")], ids=["told", "not told"])
async def test_the_command_of_a_task_that_could_not_begin_is_given_back_and_runs_later(
    stage: Stage, steps: str, error: Exception | None
) -> None:
    stage.puppet.acts["only"] = Unfit(1, error)
    await answer_as_servers_do(stage)
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(steps)))
    await stage.until(lambda: worker.counts.commands["returned"] == 1)
    assert await stage.queued() == {"command-1"}
    assert "task.processed" not in stage.names
    assert [why.partition(": ")[0] for why in returned(stage)] == ["worker-1"]
    await pass_self_test(stage)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert await stage.queued() == set()
    assert not worker.is_draining


async def test_the_third_time_the_task_fails(stage: Stage) -> None:
    stage.puppet.acts["only"] = Unfit(MAX_RETURNS + 1)
    await answer_as_servers_do(stage)
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    for times in range(1, MAX_RETURNS + 1):
        await stage.until(lambda times=times: worker.counts.commands["returned"] == times)
        await stage.advance(LONGEST_TEST_S * 2)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert len(stage.puppet.calls) == 3
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.retryable) == ("worker_unfit", True)
    assert failed.error.message == "workers could not begin it 3 times, the last time: no process could be forked"


async def test_a_returned_command_does_not_count_as_delivered(stage: Stage) -> None:
    stage.puppet.acts["only"] = Unfit(2)
    await answer_as_servers_do(stage)
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK), limits=Limits(max_deliveries=1)))
    for times in (1, 2):
        await stage.until(lambda times=times: worker.counts.commands["returned"] == times)
        await stage.advance(LONGEST_TEST_S * 2)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert isinstance(stage.facts[-1], StepDone)


async def test_another_worker_gets_it_first_and_the_unfit_one_takes_nothing(stage: Stage) -> None:
    broken = Broken()
    await answer_as_servers_do(stage)
    unfit = await stage.start(tools={"puppet": broken})
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: unfit.counts.commands["returned"] == 1)
    fit = await stage.start()
    await stage.advance(RETURN_DELAY_S)
    await stage.until(lambda: fit.counts.commands["done"] == 1)
    for number in range(2, 12):
        await stage.issue(stage.command(stage.plan(ONE_TASK), f"command-{number}"))
    await stage.until(lambda: fit.counts.commands["done"] == 11)
    assert len(broken.calls) == 1
    assert [(one.name, one.unfit) for one in await stage.presences()] == [
        ("worker-1", "no process could be forked"),
        ("worker-2", ""),
    ]


async def test_an_unfit_worker_tests_itself_ever_less_often_and_fails_nothing(stage: Stage) -> None:
    broken = Broken()
    await answer_as_servers_do(stage)
    worker = await stage.start(tools={"puppet": broken})
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: worker.counts.commands["returned"] == 1)
    assert await WorkerStatus(worker, lambda: True).reasons_not_ready() == [
        "it takes no commands until a self-test passes: no process could be forked"
    ]
    await stage.advance(1_800.0, step_s=10.0)
    assert 1_800 / LONGEST_TEST_S / 1.3 < broken.tests < 1_800 / LONGEST_TEST_S / 0.7 + 5
    assert (len(broken.calls), len(returned(stage))) == (1, 1)
    assert worker.fitness.why_not == "there is no memory"
    broken.is_mended = True
    await stage.advance(LONGEST_TEST_S * 1.3)
    await stage.until(lambda: worker.counts.commands["done"] == 1)
    assert worker.fitness.why_not == ""
    assert isinstance(stage.facts[-1], StepDone)


async def test_a_worker_that_cannot_mend_itself_gives_the_command_back_and_ends(stage: Stage) -> None:
    stage.puppet.acts["only"] = Unfit(1, WorkerUnfit("no process could be forked", for_good=True))
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    _, running = stage.workers[0]
    await stage.soon(running.done)
    assert isinstance(running.exception(), NotReady)
    assert str(running.exception()) == "no process could be forked (restart the worker)"
    assert await stage.queued() == {"command-1"}
