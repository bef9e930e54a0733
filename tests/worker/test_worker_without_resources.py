"""Real trouble of a worker: its descriptors are used up, its zygote is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from worker_stage import Stage

from noetl_stream.model.events import StepClaimed, StepDone
from noetl_stream.model.messages import Go
from noetl_stream.tools.shell import ShellTool
from noetl_stream.worker.worker import Worker
from noetl_stream.worker.worker_limits import FIRST_TEST_S, LONGEST_TEST_S
from noetl_testkit.descriptors import few_descriptors, no_descriptors
from noetl_testkit.task_processes import zygotes

ONE_COMMAND = """
- step: start
  tool: {kind: shell, command: echo begun}
"""


@contextlib.asynccontextmanager
async def killed_zygotes() -> AsyncIterator[None]:
    """Kills each zygote of this process as soon as there is one."""

    async def kill() -> None:
        while True:
            for zygote in zygotes():
                zygote.kill()
            await asyncio.sleep(0)

    killing = asyncio.create_task(kill())
    try:
        yield
    finally:
        killing.cancel()


async def worker_on(stage: Stage, tool: ShellTool) -> Worker:
    stage.tools["shell"] = tool
    await stage.answer_claims(lambda report: Go(returned=report.num_delivered - 1))
    return await stage.start()


async def expect_recovery(stage: Stage, worker: Worker) -> None:
    """Expects that the worker runs its command once its next self-test has passed, and no failure."""
    await stage.advance(LONGEST_TEST_S * 1.3)
    await stage.soon(lambda: worker.counts.commands["done"] == 1)
    assert isinstance(stage.facts[-1], StepDone)
    assert [isinstance(fact, StepClaimed) and bool(fact.returned) for fact in stage.facts].count(True) == 1


async def test_without_descriptors_it_gives_the_command_back_and_runs_it_when_it_has_some(stage: Stage) -> None:
    with few_descriptors():
        tool = ShellTool()
        worker = await worker_on(stage, tool)
        with no_descriptors():
            await stage.issue(stage.command(stage.plan(ONE_COMMAND)))
            await stage.soon(lambda: worker.counts.commands["returned"] == 1)
            assert worker.fitness.why_not == "cannot start a command: Too many open files"
            await stage.advance(FIRST_TEST_S * 1.3)
            await stage.soon(lambda: worker.fitness.why_not == "cannot open connections: Too many open files")
        await expect_recovery(stage, worker)
        await tool.close()


async def test_a_worker_whose_zygote_is_killed_returns_the_command_and_runs_it_with_another(stage: Stage) -> None:
    tool = ShellTool()
    worker = await worker_on(stage, tool)
    async with killed_zygotes():
        await stage.issue(stage.command(stage.plan(ONE_COMMAND)))
        await stage.soon(lambda: worker.counts.commands["returned"] == 1)
        assert worker.fitness.why_not == "the process that starts children ended or stopped answering 2 times"
    await expect_recovery(stage, worker)
    await tool.close()
