from __future__ import annotations

import asyncio

from worker_stage import Endless, Refusing, Stage

from noetl_stream.model.codec import payload_of
from noetl_stream.model.messages import Go, Progress
from noetl_stream.model.outcome import Outcome

TWO_TASKS = """
- step: start
  tool:
  - {name: first, kind: puppet}
  - {name: second, kind: puppet}
"""


def is_over(stage: Stage) -> bool:
    return stage.workers[0][1].done()


async def test_an_idle_worker_ends_at_once_when_it_drains(stage: Stage) -> None:
    worker = await stage.start()
    worker.drain()
    await stage.settle()
    await stage.until(lambda: is_over(stage))
    stage.workers[0][1].result()


async def test_a_draining_worker_finishes_what_runs_and_fetches_nothing_new(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start()
    plan = stage.plan(TWO_TASKS)
    await stage.issue(stage.command(plan))
    worker.drain()
    await stage.settle()
    await stage.issue(stage.command(plan, "command-2"))
    assert not is_over(stage)
    assert len(stage.puppet.calls) == 1
    endless.release.set()
    await stage.until(lambda: is_over(stage))
    assert stage.names[-1] == "step.done"
    assert await stage.queued() == {"command-2"}


async def test_what_still_runs_after_the_grace_reports_what_it_has_and_is_given_back(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    worker = await stage.start(grace_s=10.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    worker.drain()
    await stage.settle()
    await stage.advance(9.9)
    assert stage.puppet.cancelled == []
    await stage.advance(0.2)
    await stage.until(lambda: is_over(stage))
    assert stage.puppet.cancelled == ["second"]
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]
    assert await stage.queued() == {"command-1"}


async def test_another_worker_goes_on_at_once_with_what_a_draining_worker_gave_back(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    stands = Progress(task="second", runs=1, previous="first", results={"first": Outcome("ok", payload_of({}))})
    await stage.answer_claims(lambda report: Go(progress={0: stands}))
    draining = await stage.start(grace_s=1.0, slots=1)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.start()
    draining.drain()
    await stage.settle()
    del stage.puppet.acts["second"]
    await stage.advance(1.1)
    await stage.until(lambda: stage.names[-1:] == ["step.done"])
    assert [call.task for call in stage.puppet.calls] == ["first", "second", "second"]
    assert await stage.queued() == set()


async def test_a_claim_that_nobody_answers_is_given_back_at_the_end_of_the_grace(stage: Stage) -> None:
    worker = await stage.start(grace_s=5.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    worker.drain()
    await stage.settle()
    await stage.advance(5.1, step_s=1.0)
    await stage.until(lambda: is_over(stage))
    assert await stage.queued() == {"command-1"}


async def test_a_worker_that_cannot_reach_the_broker_at_all_can_be_drained(stage: Stage) -> None:
    stage.broker.stop()
    worker = await stage.start()
    await stage.advance(5.0, step_s=1.0)
    worker.drain()
    await stage.settle()
    await stage.until(lambda: is_over(stage))


async def test_a_drain_ends_even_if_a_report_is_never_taken(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_reported")
    log.refuses = True
    worker = await stage.start(event_log=log, grace_s=5.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    worker.drain()
    await stage.settle()
    await stage.advance(12.0, step_s=1.0)
    await stage.until(lambda: is_over(stage))
    assert await stage.queued() == {"command-1"}


async def test_close_ends_everything_and_acknowledges_nothing(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await worker.close()
    assert stage.puppet.cancelled == ["first"]
    assert stage.facts == []
    assert await stage.queued() == {"command-1"}
    await worker.close()


async def test_no_task_and_no_thread_stays_behind(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    before = asyncio.all_tasks()
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    await worker.close()
    await stage.settle()
    assert asyncio.all_tasks() - before == set()
