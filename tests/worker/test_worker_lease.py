from __future__ import annotations

import asyncio
import threading

from worker_stage import Endless, Refusing, Stage, facts_of, name_of

from noetl_stream.errors import Unreachable
from noetl_stream.tools.contract import ToolCall
from noetl_stream.worker.lease import BrokerLiveness, LeaseKeeper
from noetl_stream.worker.worker_limits import CONTACT_LOST_AFTER_S
from noetl_testkit.waiting import TIMEOUT_S

TWO_TASKS = """
- step: start
  tool:
  - {name: first, kind: puppet}
  - {name: second, kind: puppet}
"""


class Held:
    """A run and its delivery, whose renewals can be waited for, by any thread."""

    body = b""
    num_delivered = 1
    stored_ms = 0

    def __init__(self, *, fails: bool = False) -> None:
        self.delivery = self
        self.renewed = threading.Semaphore(0)
        self.fails = fails

    def ack(self) -> None:
        """Not asked for here."""

    def nak(self, delay_s: float = 0.0) -> None:
        """Not asked for here."""

    def in_progress(self) -> None:
        self.renewed.release()
        if self.fails:
            raise Unreachable("not connected")


def test_leases_are_renewed_while_the_thread_that_took_them_is_blocked() -> None:
    held = Held()
    keeper = LeaseKeeper([held], 0.001)
    keeper.start()
    assert held.renewed.acquire(timeout=TIMEOUT_S)
    assert held.renewed.acquire(timeout=TIMEOUT_S)
    keeper.close()


def test_a_released_lease_is_no_longer_renewed() -> None:
    released, kept = Held(), Held()
    held = [released, kept]
    keeper = LeaseKeeper(held, 0.001)
    held.remove(released)
    keeper.start()
    assert kept.renewed.acquire(timeout=TIMEOUT_S)
    keeper.close()
    assert not released.renewed.acquire(blocking=False)


def test_a_lease_that_cannot_be_renewed_does_not_end_the_others() -> None:
    failing, kept = Held(fails=True), Held()
    keeper = LeaseKeeper([failing, kept], 0.001)
    keeper.start()
    for _ in range(3):
        assert kept.renewed.acquire(timeout=TIMEOUT_S)
        assert failing.renewed.acquire(timeout=TIMEOUT_S)
    keeper.close()


async def test_a_worker_renews_the_leases_of_its_running_commands_alone(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    await stage.start(ack_wait_s=0.003)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    queue = stage.broker.command_queue
    (command_id,) = queue.queued
    stage.clock.advance(20.0)
    lease_end_s = queue.free_at_s(command_id)
    await stage.soon(lambda: queue.free_at_s(command_id) > lease_end_s)
    endless.release.set()
    await stage.settle()
    assert await stage.queued() == set()


async def test_the_lease_of_what_was_returned_is_not_renewed(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    await stage.start(ack_wait_s=0.003)
    plan = stage.plan(TWO_TASKS)
    await stage.issue(stage.command(plan, "runs"))
    await stage.issue(stage.command(plan, "given-back", digest="unknown"))
    await stage.advance(6.0, step_s=1.0)
    queue = stage.broker.command_queue
    free_at_s = queue.free_at_s("given-back")
    for _ in range(2):
        lease_end_s = queue.free_at_s("runs")
        stage.clock.advance(0.5)
        await stage.soon(lambda end_s=lease_end_s: queue.free_at_s("runs") > end_s)
    assert queue.free_at_s("given-back") == free_at_s


async def test_the_queue_is_asked_for_contact_only_without_other_proof(stage: Stage) -> None:
    queue = Refusing(stage.broker.command_queue, "reach")
    liveness = BrokerLiveness(queue, "default", stage.clock)
    watching = asyncio.create_task(liveness.watch(lambda: None))
    for _ in range(10):
        await stage.advance(4.0)
        liveness.touch()
    assert queue.tried == []
    await stage.advance(20.0, step_s=1.0)
    assert 3 <= len(queue.tried) <= 4
    watching.cancel()


async def test_without_contact_for_20_s_tools_are_ended_and_the_command_is_returned(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    stage.broker.stop()
    await stage.advance(CONTACT_LOST_AFTER_S - 1.0, step_s=0.5)
    assert stage.puppet.cancelled == []
    await stage.advance(8.0, step_s=0.5)
    assert stage.puppet.cancelled == ["second"]
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]


async def test_a_finished_task_is_still_reported_after_contact_was_lost(stage: Stage) -> None:
    stage.puppet.acts["first"] = first = Endless()
    stage.puppet.acts["second"] = Endless()
    await stage.answer_claims(lambda report: None)
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    stage.broker.stop()
    first.release.set()
    await stage.settle()
    await stage.advance(30.0, step_s=0.5)
    assert stage.puppet.cancelled == ["second"]
    stage.broker.start()
    await stage.advance(2.0, step_s=0.5)
    reported = [name for name in stage.names if name != "step.claimed"]  # of the copy that is delivered again
    assert reported[:4] == ["step.started", "task.started", "task.processed", "task.started"]
    assert await stage.queued() == {"command-1"}


async def test_contact_is_lost_too_without_any_answer(stage: Stage) -> None:
    queue = Silent(stage.broker.command_queue)
    stage.puppet.acts["first"] = Endless()
    await stage.start(queue=queue)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    queue.is_silent = True
    await stage.advance(30.0, step_s=0.5)
    assert stage.puppet.cancelled == ["first"]


class Silent(Refusing):
    """A queue that does not even refuse when it is to be reached."""

    def __init__(self, real: object) -> None:
        super().__init__(real, "issue")
        self.is_silent = False

    async def reach(self, pool: str) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        await self._real.reach(pool)


async def test_contact_that_comes_back_in_time_ends_nothing(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    for _ in range(3):
        stage.broker.stop()
        await stage.advance(12.0, step_s=0.5)
        stage.broker.start()
        await stage.advance(6.0, step_s=0.5)
    assert stage.puppet.cancelled == []


async def test_a_clock_that_jumps_while_the_loop_stood_still_ends_nothing(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(120.0)
    assert stage.puppet.cancelled == []


async def test_a_result_on_its_way_into_the_store_is_not_given_up_without_contact(stage: Stage) -> None:
    async def large(_call: ToolCall) -> str:
        stage.broker.stop()
        return "x" * 100_000

    stage.puppet.acts["first"] = large
    await stage.answer_claims(lambda report: None)
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(40.0, step_s=0.5)
    stage.broker.start()
    await stage.advance(2.0, step_s=0.5)
    own = [name_of(fact) for report in stage.reports if report.num_delivered == 1 for fact in facts_of(report)]
    assert own == ["step.started", *["task.started", "task.processed"] * 2, "step.done"]
    assert [call.task for call in stage.puppet.calls] == ["first", "second"]
