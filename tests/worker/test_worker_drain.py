from __future__ import annotations

import asyncio
from typing import Any

from worker_stage import Endless, Refusing, Stage

from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.messages import Go, Progress
from noetl_stream.model.outcome import Outcome
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.lease import BrokerLiveness
from noetl_stream.worker.worker import Puller

LINGERS_S = 5.0

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
    await stage.soon(lambda: is_over(stage))
    assert stage.workers[0][1].exception() is None


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
    await stage.soon(lambda: is_over(stage))
    assert stage.names[-1] == "step.done"
    assert await stage.queued() == {"command-2"}


async def test_commands_that_arrive_while_a_worker_drains_go_to_the_others(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    draining = await stage.start()
    plan, noop = stage.plan(TWO_TASKS), stage.plan("- step: start\n  tool: {kind: noop}\n")
    await stage.issue(stage.command(plan))
    await stage.start()
    draining.drain()
    await stage.settle()
    for number in range(6):
        await stage.issue(stage.command(noop, f"noop-{number}"))
    assert stage.names.count("step.done") == 6
    endless.release.set()
    await stage.soon(lambda: is_over(stage))
    assert await stage.queued() == set()


async def test_a_draining_worker_asks_for_nothing_when_its_slots_become_free(stage: Stage) -> None:
    requests = Requests(stage.broker.command_queue)
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start(queue=requests, slots=1)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    worker.drain()
    await stage.settle()
    endless.release.set()
    await stage.soon(lambda: is_over(stage))
    assert requests.counts == [1]


async def test_a_stopped_puller_returns_what_comes_anyway_and_starts_what_comes_again(stage: Stage) -> None:
    """It would come until it has come too often, if nobody else asks for it."""
    started: list[int] = []
    log, liveness = (
        stage.broker.event_log,
        BrokerLiveness(stage.broker.command_queue, "default", stage.clock),
    )
    source = await stage.broker.command_queue.open_source("default")
    channel = Channel(log, "default", stage.clock, liveness)
    puller = Puller(source, 3, channel, lambda delivery, _: not started.append(delivery.num_delivered))
    pulling = asyncio.create_task(puller.run())
    await stage.settle()
    puller.stop()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    assert started == [2]
    puller.end()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), "command-2"))
    assert started == [2]
    assert source.credit == 0
    pulling.cancel()


async def test_a_draining_worker_finishes_what_came_again_while_more_could_come(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    await stage.answer_claims(lambda report: Go())
    worker = await stage.start(queue=Lingering(stage.broker.command_queue, stage.clock))
    worker.drain()
    await stage.settle()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(LINGERS_S + 1.0)
    assert not is_over(stage)
    endless.release.set()
    await stage.soon(lambda: is_over(stage))
    assert stage.names[-1] == "step.done"
    assert await stage.queued() == set()


async def test_leases_are_renewed_while_a_worker_drains(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    await stage.answer_claims(lambda report: Go())
    draining = await stage.start(grace_s=120.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.start()
    draining.drain()
    await stage.settle()
    await stage.advance(100.0, step_s=5.0)
    assert len(stage.puppet.calls) == 1
    endless.release.set()
    await stage.soon(lambda: is_over(stage))
    assert stage.claims == []


class Lingering:
    """The queue as in a NATS cluster: commands may come for a while after a source has asked for the last time."""

    def __init__(self, queue: Any, clock: Any) -> None:
        self._queue = queue
        self._clock = clock

    async def open_source(self, pool: str) -> Any:
        source = await self._queue.open_source(pool)
        finish = source.finish

        async def later() -> None:
            await self._clock.sleep(LINGERS_S)
            await finish()

        source.finish = later
        return source

    async def reach(self, pool: str) -> None:
        await self._queue.reach(pool)


class Requests:
    """The queue, with a note of what its sources were asked for."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.counts: list[int] = []

    async def open_source(self, pool: str) -> Any:
        source = await self._queue.open_source(pool)
        request = source.request

        def noted(count: int) -> None:
            self.counts.append(count)
            request(count)

        source.request = noted
        return source


async def test_a_run_that_outlives_the_grace_reports_its_progress_and_is_returned(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    worker = await stage.start(grace_s=10.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    worker.drain()
    await stage.settle()
    await stage.advance(9.9)
    assert stage.puppet.cancelled == []
    await stage.advance(0.2)
    await stage.soon(lambda: is_over(stage))
    assert stage.puppet.cancelled == ["second"]
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]
    assert await stage.queued() == {"command-1"}


async def test_another_worker_continues_at_once_with_what_a_draining_worker_returned(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    stands = Progress(task="second", runs=1, previous="first", results={"first": Outcome("ok", payload_of({}))})
    await stage.answer_claims(lambda report: Go(progress={"": stands}))
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


async def test_an_unanswered_claim_is_returned_at_the_end_of_the_grace(stage: Stage) -> None:
    worker = await stage.start(grace_s=5.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    worker.drain()
    await stage.settle()
    await stage.advance(5.1, step_s=1.0)
    await stage.soon(lambda: is_over(stage))
    assert await stage.queued() == {"command-1"}


async def test_a_worker_that_cannot_reach_the_broker_at_all_can_be_drained(stage: Stage) -> None:
    stage.broker.stop()
    worker = await stage.start()
    await stage.advance(5.0, step_s=1.0)
    assert not is_over(stage)
    worker.drain()
    await stage.settle()
    await stage.soon(lambda: is_over(stage))
    assert stage.workers[0][1].exception() is None


async def test_a_drain_ends_even_if_a_report_is_never_taken(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    worker = await stage.start(event_log=log, grace_s=5.0)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    worker.drain()
    await stage.settle()
    await stage.advance(12.0, step_s=1.0)
    await stage.soon(lambda: is_over(stage))
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
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    stage.puppet.acts["first"] = Endless()
    before = asyncio.all_tasks()
    worker = await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    assert len(log.tried) > 0
    await worker.close()
    await stage.settle()
    assert asyncio.all_tasks() - before == set()
