"""A worker says who it is and what it runs, to whoever asks."""

from __future__ import annotations

from functools import partial

from worker_stage import EXECUTION, Endless, Puppet, Stage

import noetl_stream
from noetl_stream.model.messages import ChildUse, RunningCommand, WorkerPresence
from noetl_stream.tools.capacity import Capacity
from noetl_stream.tools.contract import ToolCall
from noetl_stream.worker.worker_limits import MAX_RUNNING_SHOWN

ONE_TASK = "- {step: only, tool: [{name: run, kind: puppet}]}"


class BoundedPuppet:
    """A puppet of which only so many may act at once."""

    spec = Puppet.spec

    def __init__(self, puppet: Puppet, capacity: Capacity) -> None:
        self.run, self.close, self.capacity = puppet.run, puppet.close, capacity


async def test_every_worker_answers_about_itself(stage: Stage) -> None:
    started_ms = stage.clock.now_ms()
    await stage.start(slots=4)
    await stage.advance(5)
    await stage.start(slots=7, pool="gpu")
    one, other = await stage.presences()
    version = noetl_stream.__version__
    assert one == WorkerPresence(
        name="worker-1",
        pool="default",
        slots=4,
        busy=0,
        since_ms=started_ms,
        kinds=["noop", "puppet"],
        version=version,
        at_ms=started_ms + 5_000,
    )
    assert (other.name, other.pool, other.slots, other.since_ms) == ("worker-2", "gpu", 7, started_ms + 5_000)


async def test_running_commands_are_listed_with_their_deliveries(stage: Stage) -> None:
    act = stage.puppet.acts["run"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: stage.puppet.calls)
    (busy,) = await stage.presences()
    assert (busy.busy, busy.running) == (1, [RunningCommand(EXECUTION, "command-1", "only", 1)])
    act.release.set()
    await stage.settle()
    (idle,) = await stage.presences()
    assert (idle.busy, idle.running) == (0, [])


async def test_a_task_that_cannot_begin_says_what_it_waits_for_and_its_kind_how_many_wait(stage: Stage) -> None:
    capacity, endless = Capacity(1), Endless()

    async def act(call: ToolCall) -> str:
        async with capacity.place(partial(call.queued, "a free puppet")):
            return await endless(call)

    stage.puppet.acts["run"] = act
    stage.tools["puppet"] = BoundedPuppet(stage.puppet, capacity)
    await stage.start(slots=4)
    plan = stage.plan(ONE_TASK)
    for number in range(2):
        await stage.issue(stage.command(plan, f"command-{number}"))
    await stage.until(lambda: capacity.waiting)
    (busy,) = await stage.presences()
    assert [one.task_waits_for for one in busy.running] == ["", "a free puppet"]
    assert busy.children == {"puppet": ChildUse(busy=1, most=1, waiting=1)}
    endless.release.set()
    await stage.settle()
    (idle,) = await stage.presences()
    assert (idle.running, idle.children) == ([], {"puppet": ChildUse(busy=0, most=1)})


async def test_a_command_returned_is_named_with_its_next_delivery(stage: Stage) -> None:
    stage.puppet.acts["run"] = Endless()
    first = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: stage.puppet.calls)
    await first.close()
    stage.broker.command_queue.forget_unacked()
    await stage.start()
    (second,) = await stage.presences()
    assert second.name == "worker-2" and [one.delivered for one in second.running] == [2]


async def test_a_worker_names_a_bounded_number_of_commands(stage: Stage) -> None:
    act = stage.puppet.acts["run"] = Endless()
    count = MAX_RUNNING_SHOWN + 20
    await stage.start(slots=count)
    plan = stage.plan(ONE_TASK)
    for number in range(count):
        await stage.issue(stage.command(plan, f"command-{number}"))
    await stage.until(lambda: len(stage.puppet.calls) == count)
    (busy,) = await stage.presences()
    assert busy.busy == count
    assert [one.command_id for one in busy.running] == [f"command-{number}" for number in range(MAX_RUNNING_SHOWN)]
    act.release.set()


async def test_a_draining_worker_announces_it_until_it_has_ended(stage: Stage) -> None:
    act = stage.puppet.acts["run"] = Endless()
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: stage.puppet.calls)
    worker.drain()
    await stage.settle()
    (draining,) = await stage.presences()
    assert draining.draining and draining.busy == 1
    act.release.set()
    await stage.soon(lambda: stage.workers[0][1].done())  # a thread of its own ends first
    assert await stage.presences() == []
